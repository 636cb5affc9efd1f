//! Unguessable numbers from the operating system's generator. Only this module reads it, so that a simulation can replace
//! it.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a unique id that no other process can guess, so that only a client that was given the id of a lock, for example,
/// can release that lock.
pub(crate) fn id() -> u128 {
    let mut bytes = [0; 16];
    // The kernel fills buffers of up to 256 bytes completely.
    while let Err(error) = getrandom(&mut bytes, GetRandomFlags::empty()) {
        assert_eq!(error, Errno::INTR, "the kernel has getrandom");
    }
    u128::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_are_the_same() {
        assert_ne!(super::id(), super::id());
    }
}
