//! What a command starts ends with it, whichever of the processes that watch over it ends, or stops, first.

use crate::{
    group::started_in_order,
    member::{Member, Setup},
    process::{Process, parent_of, send_signal, tied_to_this_thread},
    servers::Servers,
    task::Diary,
    wait::eventually,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    fmt, fs,
    io::{BufRead, BufReader},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    process::Stdio,
    thread,
};

/// Three generations of processes in sessions of their own, which ignore signals as the command does. All of them
/// hold its lock.
const OFFSPRING: &str = r#"
    trap '' TERM HUP
    (setsid sh -c '(setsid sh -c "(setsid sleep 600 &); sleep 600" &); sleep 600' &)
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watcher {
    Inner,
    Outer,
    Sidecar,
}

#[derive(Clone, Debug)]
struct Case(Vec<(Watcher, &'static str)>);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: Vec<_> =
            self.0.iter().map(|(watcher, signal)| format!("{watcher:?} {signal}")).collect();
        f.write_str(&said.join(", then "))
    }
}

/// Returns each of the three watchers alone, and each two of them, killed and stopped in either order.
fn cases() -> Vec<Case> {
    let watchers = [Watcher::Inner, Watcher::Outer, Watcher::Sidecar];
    let faults: Vec<_> =
        watchers.iter().flat_map(|it| ["KILL", "STOP"].map(|how| (*it, how))).collect();
    let pairs = faults.iter().flat_map(|first| {
        let others = faults.iter().filter(|second| first.0 != second.0);
        others.map(|second| Case(vec![*first, *second]))
    });
    faults.iter().map(|fault| Case(vec![*fault])).chain(pairs).collect()
}

#[test]
fn nothing_that_a_command_started_lives_beside_the_next_whatever_becomes_of_two_watchers() {
    let servers = Servers::standalone();
    let _crowd = Crowd::of(8000);
    let cases = cases();
    assert_eq!(cases.len(), 30);
    thread::scope(|scope| {
        for (nth, cases) in cases.chunks(8).enumerate() {
            let setup = Setup::of(&servers).short_sessions();
            thread::Builder::new()
                .name(format!("cases {nth}"))
                .spawn_scoped(scope, move || {
                    for (case, election) in cases.iter().zip(0..) {
                        let election = format!("/election-{nth}-{election}");
                        let setup = setup.clone().option("--election", &election);
                        nothing_lives_beside_the_next(setup, case);
                    }
                })
                .expect("a thread");
        }
    });
}

fn nothing_lives_beside_the_next(setup: Setup, case: &Case) {
    let diary = Diary::new();
    let members = started_in_order(&diary.kept_by(setup, OFFSPRING), ["a", "b"]);
    let first = diary.next_run(0);
    assert_eq!(first.who, "a");
    let inner = parent_of(first.pid);
    let outer = parent_of(inner);
    assert_eq!(parent_of(outer).unsigned_abs(), members[0].process_id());
    let guards = Guards { inner: pidfd(inner), outer: pidfd(outer) };
    for (watcher, signal) in &case.0 {
        match watcher {
            Watcher::Inner => send(&guards.inner, signal),
            Watcher::Outer => send(&guards.outer, signal),
            Watcher::Sidecar => kill_if_alive(members[0].process_id().cast_signed(), signal),
        }
    }
    // A guard that is only stopped is noticed when it is needed.
    if !case.0.iter().any(|(watcher, _)| *watcher == Watcher::Sidecar) {
        let _leaves_or_left = members[0].try_post("/resign");
    }
    let second = eventually(&format!("{case}: the next one runs"), || {
        diary.runs().get(1).cloned().ok_or_else(|| members.each_ref().map(Member::log).join("\n"))
    });
    assert_eq!(second.who, "b", "{case}: {second:?}");
    assert_eq!(diary.text("overlaps"), "", "{case}: {}", members[0].log());
    diary.shows_one_at_a_time();
    drop(members);
    eventually("nothing of it is left", || {
        if diary.is_held() { Err(case.to_string()) } else { Ok(()) }
    });
}

/// Sends a signal to a process that an earlier fault may have ended.
fn kill_if_alive(pid: i32, signal: &str) {
    if fs::exists(format!("/proc/{pid}")).expect("/proc can be read") {
        let _gone_meanwhile = std::process::Command::new("kill")
            .args(["-s", signal, &pid.to_string()])
            .stderr(Stdio::null())
            .status();
    }
}

/// Kills the guards when dropped: a stopped one would stay. By then their numbers may be those of another case's.
struct Guards {
    inner: OwnedFd,
    outer: OwnedFd,
}

impl Drop for Guards {
    fn drop(&mut self) {
        send(&self.inner, "KILL");
        send(&self.outer, "KILL");
    }
}

fn pidfd(pid: i32) -> OwnedFd {
    let pid = Pid::from_raw(pid).expect("a process has a number");
    pidfd_open(pid, PidfdFlags::empty()).expect("the guard runs")
}

/// Sends a signal to a guard that an earlier fault may have ended.
fn send(guard: &OwnedFd, signal: &str) {
    let signal = if signal == "STOP" { Signal::STOP } else { Signal::KILL };
    let _gone_meanwhile = pidfd_send_signal(guard, signal);
}

/// Many idle processes.
pub(crate) struct Crowd(Process);

impl Crowd {
    pub(crate) fn of(count: usize) -> Self {
        let script = format!(
            "i=0; while [ $i -lt {count} ]; do sleep 600 & i=$((i+1)); done; echo all; wait"
        );
        let mut command = tied_to_this_thread("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--", "sh", "-c", &script]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut crowd = Self(Process::start(command));
        let said = crowd.0.child().stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).expect("it says when all are there");
        assert_eq!(line, "all\n");
        crowd
    }
}

/// Neither guard nor sidecar may kill a process of another user.
#[test]
fn what_cannot_be_killed_is_complained_of_and_leadership_is_not_given_up_for_it() {
    // Without root, a namespace has one user, and there is no other that it could become.
    if fs::read_to_string("/proc/self/uid_map").unwrap().split_whitespace().nth(2) == Some("1") {
        return eprintln!("not tried: this namespace has one user");
    }
    let mut servers = Servers::standalone();
    let diary = Diary::new();
    let home = diary.path(".").canonicalize().unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    let as_root = diary.path("as-root");
    fs::copy("/usr/bin/setpriv", &as_root).unwrap();
    fs::set_permissions(&as_root, fs::Permissions::from_mode(0o4755)).unwrap();
    let escaped = diary.path("escaped");
    let escapes = format!(
        "[ -e {0} ] || setsid {1} --reuid 0 --clear-groups sh -c 'echo $$ > {0}; exec sleep 60' &",
        escaped.display(),
        as_root.display(),
    );
    let nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "--"];
    let setup = diary.kept_by(Setup::of(&servers).short_sessions(), &escapes).run_by(&nobody);
    let [member] = started_in_order(&setup, ["a"]);
    let escaped: i32 =
        eventually("it escapes", || diary.text("escaped").trim().parse().map_err(|_| member.log()));

    let told = member.post("/resign");
    assert_eq!(told.status, 503, "it is not carried out yet: {told:?}");
    assert_eq!(crate::group::leader_of(&member)["is_self"], true, "it leads on");
    servers.first().pause();
    eventually("it complains", || {
        let log = member.log();
        let said =
            log.contains("of the program were killed but are still alive, and the lease has ended");
        if said && log.contains(&escaped.to_string()) { Ok(()) } else { Err(log) }
    });
    servers.first().resume();
    send_signal(escaped, "KILL");
    eventually("all goes on", || {
        diary.runs().get(1).cloned().map(drop).ok_or_else(|| member.log())
    });
}
