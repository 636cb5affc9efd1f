//! The description of the API for programs, held against what a member answers.

use crate::{
    group::started_in_order,
    http::ok,
    member::Setup,
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
    let directory = tempfile::tempdir().unwrap();
    let said = directory.path().join("said");

    let url = format!("http://127.0.0.1:{}/openapi.json", member.port());
    let mut asking = Process::start(
        // 503 is a described answer here, like any other. No schema can say what fits into a znode. A stream
        // has no end to wait for, also that of a lock (`hold`) or a barrier (`enter`), whatever wait it is asked with: once
        // held, it goes on. A lock may be waited for as long as a query says (`keep`), which is up to ten minutes. And a
        // member that is shut down answers nothing more.
        tied_to_this_thread("st")
            .args([
                "run",
                &url,
                "--checks",
                "all",
                "--exclude-checks",
                "not_a_server_error,positive_data_acceptance",
                "--exclude-path-regex",
                "^/(events|sse|shutdown)$",
                "--exclude-operation-id",
                "hold",
                "--exclude-operation-id",
                "keep",
                "--exclude-operation-id",
                "enter",
            ])
            .args([
                "--header",
                "Authorization: Bearer secret",
                "--max-examples",
                "20",
                "--seed",
                "1",
            ])
            .args(["--suppress-health-check", "all", "--warnings", "off", "--no-color"])
            .current_dir(directory.path())
            .stdout(Stdio::from(File::create(&said).unwrap()))
            .stderr(Stdio::from(File::options().append(true).open(&said).unwrap())),
    );
    let ended = within(Duration::from_secs(300), || asking.ended().ok_or(String::new()));

    let said = fs::read_to_string(&said).unwrap();
    let well = ended.as_ref().is_ok_and(ExitStatus::success);
    assert!(well, "schemathesis, which scripts/test installs: {ended:?}\n{said}");
    assert_eq!(member.get("/livez").status, 200);
}
