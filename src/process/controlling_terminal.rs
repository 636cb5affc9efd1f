//! The terminal from which this process was started, and the process group in its foreground: only that may read from it,
//! and gets the signals of its keys.

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getpgrp;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::os::fd::OwnedFd;

/// The controlling terminal, of which this process's group was in the foreground.
pub struct ControllingTerminal {
    terminal: OwnedFd,
    group: Pid,
}

impl ControllingTerminal {
    /// Returns `None` where there is none, or this process runs in the background.
    pub fn in_foreground() -> Option<Self> {
        own_group().and_then(Self::with_foreground)
    }

    /// Returns `None` where there is none, or another group than this one is in its foreground.
    fn with_foreground(group: Pid) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = open("/dev/tty", flags, Mode::empty()).ok()?;
        (tcgetpgrp(&terminal).ok()? == group).then_some(Self { terminal, group })
    }

    /// Returns the group that was in the foreground.
    pub fn group(&self) -> Pid {
        self.group
    }

    /// Returns the group that is in the foreground now.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.terminal).ok()
    }

    /// Puts another group into the foreground. For a group in the background that needs [`keep_writing_in_background`].
    pub fn give_to(&self, group: Pid) {
        let _gone_or_hung_up = tcsetpgrp(&self.terminal, group);
    }

    /// Puts the former group back into the foreground, unless a shell has given that to another meanwhile.
    pub fn take_back_from(&self, group: Pid) {
        let is_anothers = self
            .foreground()
            .is_some_and(|current| current != group && test_kill_process_group(current).is_ok());
        if !is_anothers {
            self.give_to(self.group);
        }
    }
}

/// Puts this process's group into the foreground of the terminal, if that is where the group of the one that started it is.
pub(super) fn take_foreground_from(group: i32) {
    let terminal = Pid::from_raw(group).and_then(ControllingTerminal::with_foreground);
    if let (Some(terminal), Some(own)) = (terminal, own_group()) {
        keep_writing_in_background();
        terminal.give_to(own);
        // The program that this process becomes would inherit it.
        let _is_valid = SigSet::from(Signal::SIGTTOU).thread_unblock();
    }
}

/// Returns the group of this process; `None` if that is outside its namespace, where it has no number. (rustix takes it for
/// an error of the kernel's.)
fn own_group() -> Option<Pid> {
    Pid::from_raw(getpgrp().as_raw())
}

/// Has this thread, and those that it starts, not be stopped when they write to the terminal while another group is in its
/// foreground. Processes that they start are.
pub fn keep_writing_in_background() {
    let _is_valid = SigSet::from(Signal::SIGTTOU).thread_block();
}
