//! The description of the API for programs, held against what a member answers.

use crate::{
    group::started_in_order,
    locks::Lock,
    member::{Member, Setup, ok},
    process::{Process, tied_to_this_thread},
    servers::Servers,
    wait::within,
};
use std::{
    fs::{self, File},
    io::Write,
    process::{ExitStatus, Stdio},
    time::Duration,
};

/// 503 is a described answer here, like any other. No schema can say what fits into a znode.
const NEVER_CHECKED: &str = "not_a_server_error,positive_data_acceptance";

/// Whatever is asked, also against the description, the answer's status, type and body are among those that the
/// description names.
#[test]
fn every_answer_is_as_the_description_says() {
    let servers = Servers::standalone();
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"secret").unwrap();
    let mut hook = tempfile::NamedTempFile::new().unwrap();
    hook.write_all(b"[[hook]]\non = [\"became-leader\"]\ncommand = [\"false\"]\n").unwrap();
    let setup = Setup::of(&servers).option("--config", hook.path().to_str().unwrap());
    let setup = setup.option("--token-file", token.path().to_str().unwrap());
    let [member, _other] = started_in_order(&setup, ["a", "b"]);
    assert_eq!(ok(&member, "/openapi.json")["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut taken = Lock::asked_with("authorization: Bearer secret", &member, "/locks/taken");
    taken.event("held");
    // A stream of events has no end to wait for. And a member that is shut down answers nothing more.
    let streams = ["--exclude-operation-id", "hold", "--exclude-operation-id", "enter"];
    let others = ["--exclude-path-regex", "^/(events|sse|shutdown)$"];
    as_described(&member, NEVER_CHECKED, &[&streams[..], &others].concat());
    // It takes an event's data for text, whose form it cannot know.
    let checks = &format!("{NEVER_CHECKED},response_schema_conformance");
    let streams = ["--include-operation-id", "hold", "--include-operation-id", "enter"];
    as_described(&member, checks, &streams);
    assert_eq!(member.get("/livez").status, 200);
}

fn as_described(member: &Member, excluded_checks: &str, operations: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let said = directory.path().join("said");
    let url = format!("http://127.0.0.1:{}/openapi.json", member.port());
    let mut asking = Process::start(
        tied_to_this_thread("st")
            .args(["run", &url, "--checks", "all", "--exclude-checks", excluded_checks])
            .args(operations)
            .args(["--header", "Authorization: Bearer secret"])
            .args(["--max-examples", "20", "--seed", "1"])
            .args(["--suppress-health-check", "all", "--warnings", "off", "--no-color"])
            .env("SCHEMATHESIS_HOOKS", "ending_streams")
            .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ensemble"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(directory.path())
            .stdout(Stdio::from(File::create(&said).expect("a file")))
            .stderr(Stdio::from(File::options().append(true).open(&said).expect("it is there"))),
    );
    let ended = within(Duration::from_secs(300), || asking.ended().ok_or(String::new()));
    let said = fs::read_to_string(&said).expect("what it said");
    let well = ended.as_ref().is_ok_and(ExitStatus::success);
    assert!(well, "schemathesis, which scripts/test installs: {ended:?}\n{said}");
}
