//! Numbers that no other process can guess, of the operating system's generator: the one place that asks it, which a
//! simulation can replace.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns an id that no other process can guess, and that is given once: it protects what is named by it.
pub(crate) fn id() -> u128 {
    let mut bytes = [0; 16];
    // So few bytes come as a whole.
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
