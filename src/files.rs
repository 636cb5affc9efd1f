//! Reads the small files that an operator names, and refuses long files, pipes and devices.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The limit for the length of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One line, such as a token or a number: at most 4 KiB.
    Line,
    /// Certificates, keys or credentials: at most 1 MiB.
    Certificates,
}

/// Reads a regular file of at most this size.
///
/// # Errors
/// The problem as a text that follows the file's name, such as "is not a small file". It reveals nothing of the file's
/// content, which may be secret.
pub fn read(file: &Path, size: Size) -> Result<Vec<u8>, String> {
    let (longest, refusal) = match size {
        Size::Line => (4 << 10, "is not a small file"),
        Size::Certificates => (1 << 20, "is not a file of at most 1 MiB"),
    };
    // Reading a pipe may block, and reading a device may never end.
    let metadata = fs::metadata(file).map_err(unreadable)?;
    if !metadata.is_file() || metadata.len() > longest {
        return Err(refusal.into());
    }
    // Allocate the whole capacity at once: a buffer that grows would leave parts of a secret behind in freed memory.
    // One more byte, so that the read which finds the end of the file has room too.
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    // Do not trust the length in the metadata: it is 0 for files in /proc, and other files may grow meanwhile.
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(longest + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > longest { Err(refusal.into()) } else { Ok(bytes) }
}

fn unreadable(error: io::Error) -> String {
    format!("cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_read_that_is_no_longer_than_it_may_be() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        let read_with = |length: usize, size: Size| {
            fs::write(&file, vec![b'x'; length]).unwrap();
            read(&file, size).map(|bytes| bytes.len())
        };
        assert_eq!(read_with(4096, Size::Line), Ok(4096));
        assert_eq!(read_with(4097, Size::Line), Err("is not a small file".into()));
        assert_eq!(read_with(1 << 20, Size::Certificates), Ok(1 << 20));
        let refused = read_with((1 << 20) + 1, Size::Certificates);
        assert_eq!(refused, Err("is not a file of at most 1 MiB".into()));
        for other in [home.path(), Path::new("/dev/zero")] {
            assert_eq!(read(other, Size::Line), Err("is not a small file".into()), "{other:?}");
        }
        // Its metadata have a length of 0.
        let longer_than_metadata = read(Path::new("/proc/self/smaps"), Size::Line);
        assert_eq!(longer_than_metadata, Err("is not a small file".into()));
        let missing = read(&home.path().join("missing"), Size::Line).unwrap_err();
        assert!(missing.starts_with("cannot be read: "), "{missing}");
    }
}
