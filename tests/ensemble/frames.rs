//! The frames of ZooKeeper's protocol, as what stands between a member and a server reads them.

use std::io::{self, Read};

/// The longest frame that is read, in bytes.
const LONGEST: usize = 16 * 1024 * 1024;

/// Reads a frame, its length included.
///
/// # Errors
/// `InvalidData` where the length is none: a four-letter word, for example, which is not passed on.
pub(crate) fn read_frame(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let size = usize::try_from(i32::from_be_bytes(length)).ok().filter(|size| *size <= LONGEST);
    let mut frame = length.to_vec();
    frame.resize(4 + size.ok_or(io::ErrorKind::InvalidData)?, 0);
    stream.read_exact(&mut frame[4..])?;
    Ok(frame)
}
