//! The sidecar as the first process of a container: it inherits every orphan, and has to wait for them.

use crate::{
    hook_notes::hooks_know_how_theirs_ended, member::Setup, servers::Servers, task::Diary,
};

/// Starts it as process 1 of a namespace of its own.
const FIRST: [&str; 6] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--"];

#[test]
fn no_zombie_is_left_under_process_1() {
    let servers = Servers::standalone();
    let diary = Diary::new();
    let orphans = "for i in 1 2 3 4 5; do (setsid sleep 0.05 & ) ; done";
    let script =
        format!("{orphans}; sleep 1; ps -A -o stat=,args= | grep -c ^Z > \"$DIARY/said\"; exit 9");
    let setup = diary.kept_by(Setup::of(&servers), &script);
    let mut member = setup.run_by(&FIRST).start("a");
    assert_eq!(member.wait().0.code(), Some(9), "{}", member.log());
    assert_eq!(diary.text("said"), "0\n");
}

#[test]
fn hooks_beside_a_command_of_the_first_process_know_how_theirs_ended() {
    hooks_know_how_theirs_ended(|setup| setup.run_by(&FIRST));
}
