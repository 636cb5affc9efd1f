//! The server as other clients meet it: kazoo and Curator with their own recipes, and ZooKeeper's shell.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bellwether_dev_server::{DevServer, ServerSettings};
use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use tokio::task::spawn_blocking;

/// Debian's. `slf4j-nop` logs nothing.
const CURATOR: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/curator-framework.jar:\
    /usr/share/java/curator-client.jar:/usr/share/java/guava.jar:/usr/share/java/zookeeper.jar:\
    /usr/share/java/slf4j-nop.jar";

#[tokio::test]
async fn the_recipes_of_kazoo_work() {
    // That of the environment in which scripts/test has installed it.
    let python = env::var_os("KAZOO_PYTHON").unwrap_or_else(|| "python3".into());
    let output = run(python, &["tests/clients/recipes.py"], "").await;
    let worked = [
        "election",
        "lock",
        "read_and_write_locks",
        "semaphore",
        "barrier",
        "double_barrier",
        "counter",
        "queues",
        "partitioner",
        "party",
        "data_watch",
        "children_watch",
        "transactions",
        "tree_cache",
        "sessions_and_access",
    ];
    assert_eq!(lines(&output), worked, "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn the_recipes_of_curator_work() {
    let java = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", CURATOR];
    let arguments = [&java[..], &["tests/clients/Recipes.java"]].concat();
    let output = run("java".into(), &arguments, "").await;
    let worked = [
        "LeaderLatch",
        "LeaderSelector",
        "InterProcessMutex",
        "DistributedDoubleBarrier",
        "PersistentNode",
        "DistributedAtomicLong",
        "CuratorCache",
        "CuratorTransaction",
    ];
    assert_eq!(lines(&output), worked, "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

/// What `zkCli.sh` starts, told line by line what to do.
#[tokio::test]
async fn the_shell_of_zookeeper_works() {
    let told = "create /z data\n\
        create -s -e /z/seq- e\n\
        get /z\n\
        set /z two\n\
        get -s /z\n\
        addauth digest u:p\n\
        setAcl /z auth::cdrwa\n\
        getAcl /z\n\
        create -c /box\n\
        create -t 600000 /ttl x\n\
        ls -R /\n\
        addWatch -m PERSISTENT_RECURSIVE /z\n\
        create /z/child c\n\
        deleteall /z\n\
        delete /z\n\
        quit\n";
    let classes = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar";
    let shell = ["-Xmx128m", "-cp", classes, "org.apache.zookeeper.ZooKeeperMain", "-server"];
    let output = run("java".into(), &shell, told).await;
    let all = [&output.stdout[..], &output.stderr].concat();
    let all = String::from_utf8(all).unwrap();
    for line in [
        "Created /z",
        "Created /z/seq-0000000000",
        "data",
        "two",
        "dataVersion = 1",
        "numChildren = 1",
        "'digest,'u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=",
        ": cdrwa",
        "Created /box",
        "Created /ttl",
        "/zookeeper/quota",
        "WatchedEvent state:SyncConnected type:NodeCreated path:/z/child",
        "WatchedEvent state:SyncConnected type:NodeDeleted path:/z/seq-0000000000",
        "WatchedEvent state:SyncConnected type:NodeDeleted path:/z",
        "Node does not exist: /z",
    ] {
        assert!(all.lines().any(|it| it == line), "no {line:?} in\n{all}");
    }
}

/// Runs a program with the address of a new server as its last argument. The kernel ends it with the test.
async fn run(program: OsString, arguments: &[&str], told: &'static str) -> Output {
    let server = DevServer::start(ServerSettings::default()).await.unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&program)
        .args(arguments)
        .arg(server.address().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = spawn_blocking(move || {
        let mut child = command.spawn().expect("util-linux (setpriv) is installed");
        child.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    output.await.unwrap()
}

fn lines(output: &Output) -> Vec<&str> {
    str::from_utf8(&output.stdout).unwrap().lines().collect()
}
