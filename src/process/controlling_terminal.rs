//! The terminal from which this process was started, and its foreground process group. Only that group may read from the
//! terminal, and only that group receives the signals of its keys.

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getpgrp;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::os::fd::OwnedFd;

/// The controlling terminal of this process, and the process group that was in its foreground at first.
pub struct ControllingTerminal {
    terminal: OwnedFd,
    /// The group that was in the foreground when this value was created.
    group: Pid,
}

impl ControllingTerminal {
    /// Opens the terminal. Returns `None` if there is no controlling terminal, or if this process runs in the background.
    pub fn in_foreground() -> Option<Self> {
        own_group().and_then(Self::with_foreground)
    }

    /// Opens the terminal. Returns `None` if there is no controlling terminal, or if `group` is not in its foreground.
    fn with_foreground(group: Pid) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = open("/dev/tty", flags, Mode::empty()).ok()?;
        (tcgetpgrp(&terminal).ok()? == group).then_some(Self { terminal, group })
    }

    /// Returns the group that was in the foreground when this value was created.
    pub fn group(&self) -> Pid {
        self.group
    }

    /// Returns the group that is in the foreground now.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.terminal).ok()
    }

    /// Puts `group` into the foreground. A process in the background must first call [`keep_writing_in_background`], or
    /// the kernel stops it with SIGTTOU.
    pub fn give_to(&self, group: Pid) {
        // This fails if the group or the terminal is gone, and then nothing is left to do.
        let _ignored = tcsetpgrp(&self.terminal, group);
    }

    /// Puts the group that was in the foreground at first there again, instead of `group`. Does nothing if a group
    /// other than `group` is in the foreground now and still exists: a shell has put it there.
    pub fn take_back_from(&self, group: Pid) {
        let has_other_group = self
            .foreground()
            .is_some_and(|current| current != group && test_kill_process_group(current).is_ok());
        if !has_other_group {
            self.give_to(self.group);
        }
    }
}

/// Puts the process group of this process into the foreground of the terminal, if the process group `group` is there now.
pub(super) fn take_foreground_from(group: i32) {
    let terminal = Pid::from_raw(group).and_then(ControllingTerminal::with_foreground);
    if let (Some(terminal), Some(own)) = (terminal, own_group()) {
        keep_writing_in_background();
        terminal.give_to(own);
        // Unblock SIGTTOU again, because the program that this process becomes would inherit the blocked signal.
        let _ignored = SigSet::from(Signal::SIGTTOU).thread_unblock();
    }
}

/// Returns the process group of this process, or `None` if the group's leader is outside of its PID namespace, where the
/// group has no number. (rustix's `getpgrp` treats that as a kernel error.)
fn own_group() -> Option<Pid> {
    Pid::from_raw(getpgrp().as_raw())
}

/// Blocks SIGTTOU in the calling thread and in threads that it starts later, so that the kernel does not stop this
/// process when one of them writes to the terminal in the background. The processes that this process starts can still be
/// stopped.
pub fn keep_writing_in_background() {
    // This cannot fail, because SIGTTOU is a valid signal.
    let _ignored = SigSet::from(Signal::SIGTTOU).thread_block();
}
