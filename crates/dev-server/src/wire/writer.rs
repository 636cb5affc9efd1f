//! Encodes jute into the bytes of one frame.

/// Appends values to a frame, which begins with its length.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; 4] }
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.bytes.push(u8::from(value));
    }

    pub(crate) fn int(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn long(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends a buffer, or null as a length of -1.
    pub(crate) fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.int(-1),
            Some(bytes) => {
                self.int(length(bytes.len()));
                self.bytes.extend_from_slice(bytes);
            }
        }
    }

    pub(crate) fn string(&mut self, value: &str) {
        self.buffer(Some(value.as_bytes()));
    }

    pub(crate) fn vector<T>(&mut self, elements: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.int(length(elements.len()));
        for each in elements {
            element(self, each);
        }
    }

    /// Returns the frame, beginning with its length.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let body = length(self.bytes.len().saturating_sub(4));
        if let Some(head) = self.bytes.first_chunk_mut() {
            *head = body.to_be_bytes();
        }
        self.bytes
    }
}

/// Converts a length to the type that is sent. Frames are far shorter than 2 GiB, so it always fits.
fn length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_begins_with_its_length() {
        let mut writer = Writer::new();
        writer.bool(true);
        writer.string("ab");
        writer.buffer(None);
        assert_eq!(writer.finish(), [0, 0, 0, 11, 1, 0, 0, 0, 2, b'a', b'b', 255, 255, 255, 255]);
    }
}
