//! What the daemon needs besides its parts.

pub mod log_line;
pub mod reload;
pub mod systemd;
