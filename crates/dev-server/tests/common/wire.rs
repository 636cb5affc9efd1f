//! Jute, written and read a second time: a mistake in the server's own is not repeated here.

/// What a request consists of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn bool(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    pub(crate) fn buffer(self, value: &[u8]) -> Self {
        let mut body = self.int(value.len().try_into().unwrap());
        body.0.extend(value);
        body
    }

    pub(crate) fn string(self, value: &str) -> Self {
        self.buffer(value.as_bytes())
    }

    /// A buffer, or null.
    pub(crate) fn bytes(self, value: Option<&[u8]>) -> Self {
        match value {
            Some(bytes) => self.buffer(bytes),
            None => self.int(-1),
        }
    }

    /// A string, or null.
    pub(crate) fn text(self, value: Option<&str>) -> Self {
        self.bytes(value.map(str::as_bytes))
    }

    /// A list with entries of permissions, scheme and id.
    pub(crate) fn acl(self, entries: &[(i32, &str, &str)]) -> Self {
        let body = self.int(entries.len().try_into().unwrap());
        entries
            .iter()
            .fold(body, |body, (perms, scheme, id)| body.int(*perms).string(scheme).string(id))
    }

    /// What comes before an operation of a multi, or with -1 after the last one.
    pub(crate) fn part(self, kind: i32) -> Self {
        self.int(kind).bool(kind == -1).int(-1)
    }
}

/// What is left of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

/// A znode's stat, without its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) ephemeral_owner: i64,
    pub(crate) data_length: i32,
    pub(crate) children: i32,
    pub(crate) pzxid: i64,
}

impl<'a> Rest<'a> {
    pub(crate) fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub(crate) fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.take(1) != [0]
    }

    pub(crate) fn buffer(&mut self) -> Option<&'a [u8]> {
        match self.int() {
            -1 => None,
            length => Some(self.take(length.try_into().unwrap())),
        }
    }

    pub(crate) fn string(&mut self) -> String {
        String::from_utf8(self.buffer().unwrap().to_vec()).unwrap()
    }

    pub(crate) fn strings(&mut self) -> Vec<String> {
        (0..self.int()).map(|_| self.string()).collect()
    }

    pub(crate) fn stat(&mut self) -> Stat {
        let (czxid, mzxid) = (self.long(), self.long());
        let (_ctime, _mtime) = (self.long(), self.long());
        Stat {
            czxid,
            mzxid,
            version: self.int(),
            cversion: self.int(),
            aversion: self.int(),
            ephemeral_owner: self.long(),
            data_length: self.int(),
            children: self.int(),
            pzxid: self.long(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }
}
