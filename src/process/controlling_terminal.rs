//! The terminal from which this process was started, and its foreground process group. Only that group may read from the
//! terminal, and only that group receives the signals of its keys.

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getpgrp;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::os::fd::OwnedFd;

/// The controlling terminal, and the process group that was in its foreground.
pub struct ControllingTerminal {
    terminal: OwnedFd,
    group: Pid,
}

impl ControllingTerminal {
    /// Returns `None` if there is no controlling terminal, or if this process runs in the background.
    pub fn in_foreground() -> Option<Self> {
        own_group().and_then(Self::with_foreground)
    }

    /// Returns `None` if there is no controlling terminal, or if another group than `group` is in its foreground.
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

    /// Puts another group into the foreground. A caller in the background must first call [`keep_writing_in_background`].
    pub fn give_to(&self, group: Pid) {
        let _gone_or_hung_up = tcsetpgrp(&self.terminal, group);
    }

    /// Takes the foreground back from `group` for the original group, unless a shell has given it to a third group
    /// meanwhile.
    pub fn take_back_from(&self, group: Pid) {
        let is_anothers = self
            .foreground()
            .is_some_and(|current| current != group && test_kill_process_group(current).is_ok());
        if !is_anothers {
            self.give_to(self.group);
        }
    }
}

/// Puts this process's group into the foreground of the terminal, if the process group `group` is there now.
pub(super) fn take_foreground_from(group: i32) {
    let terminal = Pid::from_raw(group).and_then(ControllingTerminal::with_foreground);
    if let (Some(terminal), Some(own)) = (terminal, own_group()) {
        keep_writing_in_background();
        terminal.give_to(own);
        // Unblock it, since the program that this process becomes would inherit the mask.
        let _is_valid = SigSet::from(Signal::SIGTTOU).thread_unblock();
    }
}

/// Returns the process group of this process, or `None` if the group's leader is outside of its PID namespace, where the
/// group has no number. (rustix's `getpgrp` treats that as a kernel error.)
fn own_group() -> Option<Pid> {
    Pid::from_raw(getpgrp().as_raw())
}

/// Blocks SIGTTOU in this thread and in threads that it starts later, so that they are not stopped when they write to the
/// terminal in the background. Processes that they start are still stopped.
pub fn keep_writing_in_background() {
    let _is_valid = SigSet::from(Signal::SIGTTOU).thread_block();
}
