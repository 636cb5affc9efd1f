//! Decodes jute from the bytes of one frame.

use std::fmt;

/// An error in the bytes that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

/// Reads values from the front of a frame.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.array::<1>()? != [0])
    }

    pub(crate) fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// Reads a buffer; a length of -1 means null.
    pub(crate) fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| Malformed("a length is negative"))?;
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(Malformed("a length is beyond the frame"))?;
        self.rest = rest;
        Ok(Some(taken))
    }

    /// Reads a string; a length of -1 means null.
    pub(crate) fn string(&mut self) -> Result<Option<String>, Malformed> {
        Ok(self.buffer()?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    /// Reads a vector; a count of -1 means null, and any other negative count means empty, as in Java.
    pub(crate) fn vector<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = self.int()?;
        if count == -1 {
            return Ok(None);
        }
        // The vector grows with the elements that are present, not with the announced count.
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(Malformed("the frame ends early"))?;
        self.rest = rest;
        Ok(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_in_order() {
        let bytes = [0, 0, 0, 7, 255, 255, 255, 255, 255, 255, 255, 254, 1, 0, 0, 0, 2, b'h', b'i'];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.int(), Ok(7));
        assert_eq!(reader.long(), Ok(-2));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.string(), Ok(Some("hi".to_owned())));
        assert!(reader.is_empty());
    }

    #[test]
    fn minus_one_is_null() {
        let bytes = [255; 8];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.buffer(), Ok(None));
        assert_eq!(reader.vector(Reader::int), Ok(None));
    }

    #[test]
    fn a_length_beyond_the_frame_is_malformed() {
        assert!(Reader::new(&[0x7f, 255, 255, 255, 1, 2]).buffer().is_err());
        assert!(Reader::new(&[0x80, 0, 0, 0, 1, 2]).buffer().is_err());
        assert!(Reader::new(&[0, 0]).int().is_err());
    }

    #[test]
    fn a_count_beyond_the_frame_is_malformed_and_reserves_nothing() {
        assert!(Reader::new(&[0x7f, 255, 255, 255]).vector(Reader::int).is_err());
        assert_eq!(Reader::new(&[0x80, 0, 0, 0]).vector(Reader::int), Ok(Some(Vec::new())));
    }
}
