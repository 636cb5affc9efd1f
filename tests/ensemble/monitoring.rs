//! The metrics that Prometheus scrapes, and the alerts that it derives from them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::{
    group::{agreed, agreed_after, started_in_order},
    member::{Member, Setup, agent},
    process::{Process, tied_to_this_thread},
    scrape::Scrape,
    servers::{Servers, free_ports},
    wait::{eventually, throughout},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

#[test]
fn a_scrape_tells_what_the_documentation_promises_and_promtool_finds_no_fault() {
    let servers = Servers::standalone();
    let mut hooks = tempfile::NamedTempFile::new().unwrap();
    for command in ["true", "false"] {
        write!(
            hooks,
            "[[hook]]\non = [\"leader-changed\", \"became-leader\"]\ncommand = [{command:?}]\n"
        )
        .unwrap();
    }
    let values = tempfile::TempDir::new().unwrap();
    let kept = values.path().join("limits.json");
    write!(hooks, "[[config]]\nname = \"limits.json\"\nfile = {kept:?}\n").unwrap();
    let setup = Setup::of(&servers).option("--probe-listen", "127.0.0.1:0");
    let setup = setup.option("--config", hooks.path().to_str().unwrap());
    let [leader, follower] = started_in_order(&setup, ["a", "b"]);
    let runs = |hook: u8, result: &str| {
        let labels = format!(r#"hook="{hook}",result="{result}""#);
        Scrape::of(&leader).of_us("hook_runs_total", &labels)
    };
    eventually("its hooks have run", || {
        match [(0, "done"), (1, "failed")].map(|(n, how)| runs(n, how)) {
            [1.0, 1.0] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(
        [(0, "failed"), (1, "done"), (1, "cut_short")].map(|(n, how)| runs(n, how)),
        [0.0; 3]
    );
    for path in ["/leader", "/no/such/path", "/nor/this", "/events?of=a-post"] {
        leader.send(if path.starts_with("/e") { "POST" } else { "GET" }, path, &[], "");
    }
    let stream = leader.stream("/events");

    let scrape = Scrape::of(&leader);
    promtool_checks(&scrape.text);
    assert_eq!(scrape.described(), documented());
    // A request is counted when it has been answered.
    let answered = |route: &str, code: u16| scrape.value(&visits(route, code));
    assert_eq!(answered("/leader", 200), 1.0);
    assert_eq!(answered("unmatched", 404), 2.0, "paths are many, routes are few");
    assert_eq!(answered("/events", 405), 1.0);
    assert_eq!(answered("/events", 200), 1.0);
    assert_eq!(scrape.of_us("http_streams_open", ""), 1.0);
    drop(stream);
    eventually("the stream is closed", || match Scrape::of(&leader) {
        scrape if scrape.of_us("http_streams_open", "") == 0.0 => Ok(()),
        scrape => Err(scrape.text),
    });

    // The probe listener has the same metrics, and still nothing else.
    let at_the_probes = |path: &str| {
        let url = format!("http://127.0.0.1:{}{path}", follower.probe_port());
        let mut answer = agent().get(url).call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    };
    let (status, text) = at_the_probes("/metrics");
    assert_eq!(status, 200);
    promtool_checks(&text);
    assert_eq!(Scrape::read(text).described(), documented());
    assert_eq!(at_the_probes("/status").0, 404);
    assert!(Scrape::of(&follower).value(&visits("unmatched", 404)) >= 1.0, "of both listeners");
}

#[test]
fn a_real_prometheus_says_when_the_leader_was_killed_and_when_no_member_leads() {
    let mut servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--probe-listen", "127.0.0.1:0");
    let [mut a, b, c] = started_in_order(&setup, ["a", "b", "c"]);
    let first = agreed([&a, &b, &c]);
    let prometheus = Prometheus::scraping([&a, &b, &c]);
    let role = r#"sum(bellwether_role{election="/election"}) by (role)"#;
    eventually("it has scraped three members, and found one leader", || {
        let found = prometheus.query(role);
        let of = |role: &str| {
            let is = |series: &&Value| series["metric"]["role"] == role;
            found.iter().find(is).map(|series| series["value"][1].clone())
        };
        let all_well = of("leader") == Some("1".into()) && of("follower") == Some("2".into());
        if all_well { Ok(()) } else { Err(format!("{found:?}")) }
    });
    // As long as the shortened alerts need to fire.
    throughout("it has nothing to say", 3 * FOR, || match prometheus.firing() {
        firing if firing.is_empty() => Ok(()),
        firing => Err(format!("{firing:?}")),
    });

    let fires = |alert: &str| {
        eventually(alert, || match prometheus.firing() {
            firing if firing.contains(alert) => Ok(()),
            firing => Err(format!("{firing:?}")),
        });
    };
    let is_over = |alert: &str| {
        eventually(&format!("no more {alert}"), || match prometheus.firing() {
            firing if !firing.contains(alert) => Ok(()),
            firing => Err(format!("{firing:?}")),
        });
    };

    // For the ten seconds that its session still lasts, no member can lead, and the others name it.
    a.kill();
    fires("BellwetherLeaderNotSeen");
    agreed_after(&first, [&b, &c]);
    is_over("BellwetherLeaderNotSeen");

    servers.each().for_each(|server| server.pause());
    fires("BellwetherNoLeader");
    servers.each().for_each(|server| server.resume());
    is_over("BellwetherNoLeader");
}

/// What the alerts' waits are shortened to, a few scrapes.
const FOR: Duration = Duration::from_secs(2);

/// A Prometheus that scrapes once a second, with the alerts that are shipped.
struct Prometheus {
    address: String,
    home: tempfile::TempDir,
    _process: Process,
}

impl Prometheus {
    fn scraping<const N: usize>(members: [&Member; N]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let alerts = fs::read_to_string("deploy/monitoring/alerts.yaml").unwrap();
        let alerts = ["30s", "45s", "1m", "5m"].iter().fold(alerts, |alerts, wait| {
            let wait = format!("for: {wait}\n");
            assert!(alerts.contains(&wait), "{alerts}");
            alerts.replace(&wait, &format!("for: {}s\n", FOR.as_secs()))
        });
        fs::write(at("alerts.yaml"), alerts).unwrap();
        let targets = members.map(|member| format!("127.0.0.1:{}", member.probe_port()));
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [alerts.yaml]\n\
             scrape_configs: [{{job_name: shop, static_configs: [{{targets: {targets:?}}}]}}]\n"
        );
        fs::write(at("prometheus.yaml"), config).unwrap();
        let [port] = free_ports();
        let address = format!("127.0.0.1:{port}");
        let log = fs::File::create(at("log")).unwrap();
        let mut command = tied_to_this_thread("prometheus");
        command
            .arg(format!("--config.file={}", at("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", at("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .current_dir(home.path())
            .stderr(Stdio::from(log));
        let process = Process::start(&mut command);
        let prometheus = Self { address, home, _process: process };
        eventually("Prometheus, which scripts/test unpacks, is ready", || {
            let said = || fs::read_to_string(prometheus.home.path().join("log")).unwrap();
            prometheus.get("/-/ready").map_err(|error| format!("{error}: {}", said()))
        });
        prometheus
    }

    fn query(&self, question: &str) -> Vec<Value> {
        let question = question.replace('"', "%22").replace(' ', "%20");
        let question = question.replace('{', "%7B").replace('}', "%7D");
        self.data(&format!("/api/v1/query?query={question}"))["result"].as_array().unwrap().clone()
    }

    /// The names of the alerts that fire.
    fn firing(&self) -> BTreeSet<String> {
        let alerts = self.data("/api/v1/alerts");
        let alerts = alerts["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }

    fn data(&self, path: &str) -> Value {
        let answer = self.get(path).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["status"], "success", "{answer}");
        answer["data"].clone()
    }

    fn get(&self, path: &str) -> Result<String, String> {
        let url = format!("http://{}{path}", self.address);
        let mut answer = agent().get(url).call().map_err(|error| error.to_string())?;
        let body = answer.body_mut().read_to_string().map_err(|error| error.to_string())?;
        if answer.status() == 200 { Ok(body) } else { Err(body) }
    }
}

/// Returns the rows of the table in docs/reference/metrics.md.
fn documented() -> BTreeSet<(String, String, BTreeSet<String>)> {
    let docs = fs::read_to_string("docs/reference/metrics.md").unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let name = cells[0].strip_prefix("| `")?.strip_suffix('`')?;
        // There are other tables as well.
        let is_metric = ["gauge", "counter", "histogram"].contains(cells.get(1)?);
        // These members need no tickets: `kerberos.rs` has one that does.
        let is_metric = is_metric && !name.starts_with("bellwether_kerberos_");
        let labels = cells.get(2)?.split('`').map(str::trim).filter(|label| !label.is_empty());
        let labels = labels.map(str::to_owned).collect();
        is_metric.then(|| (name.to_owned(), cells[1].to_owned(), labels))
    };
    docs.lines().filter_map(row).collect()
}

fn visits(route: &str, code: u16) -> String {
    // The crate writes labels in the order of their names.
    format!(
        r#"bellwether_http_requests_total{{code="{code}",election="/election",route="{route}"}}"#
    )
}

fn promtool_checks(text: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool, which scripts/test unpacks");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    let found = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && found.is_empty(), "{found}\n{text}");
}
