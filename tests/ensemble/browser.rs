//! Chromium without a window, driven over WebDriver by Debian's chromedriver.

use crate::{
    member::agent,
    process::{Process, tied_to_this_thread},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Lines},
    process::{ChildStdout, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use ureq::{Agent, http::Request};

pub(crate) struct Browser {
    /// The path below which all requests to this browser go.
    session: String,
    agent: Agent,
    _driver: Process,
    /// Kept open but not read, so that chromedriver can still write to it.
    _said: Lines<BufReader<ChildStdout>>,
    _profile: TempDir,
}

/// How long a browser may take to start, or to load a page, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Browser {
    pub(crate) fn start() -> Self {
        // Chromium's many processes leave chromedriver's group. What they cannot leave is a namespace,
        // and they all die with the first process in it.
        let mut command = tied_to_this_thread("unshare");
        command.args(["--pid", "--kill-child", "chromedriver", "--port=0"]).stdout(Stdio::piped());
        let mut driver = Process::start(&mut command);
        let stdout = driver.child().stdout.take().expect("stdout is piped");
        let mut said = BufReader::new(stdout).lines();
        let started = said.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        let port = started.expect("chromedriver is installed, and starts");

        let profile = TempDir::with_prefix("bellwether-browser-").expect("a temporary directory");
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let mut browser = Self {
            session: format!("http://127.0.0.1:{port}/session"),
            agent: agent(),
            _driver: driver,
            _said: said,
            _profile: profile,
        };
        let begun = browser.ask("", &wanted);
        browser.session += "/";
        browser.session += begun["sessionId"].as_str().expect("a session");
        browser
    }

    pub(crate) fn open(&self, url: &str) {
        self.ask("/url", &json!({"url": url}));
    }

    /// Runs this script, which finds the arguments in `arguments`, and returns its result.
    pub(crate) fn run(&self, script: &str, arguments: Value) -> Value {
        self.ask("/execute/sync", &json!({"script": script, "args": arguments}))
    }

    /// Sends a command of Chromium's own protocol.
    pub(crate) fn command(&self, name: &str, parameters: Value) -> Value {
        self.ask("/goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    /// Returns a screenshot of the whole page as a PNG.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        self.command("Emulation.setScrollbarsHidden", json!({"hidden": true}));
        // Of its own, the browser leaves as much out at the right as the scrollbar took.
        let size = "return [innerWidth, document.documentElement.scrollHeight]";
        let size = self.run(size, json!([]));
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let all = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.command("Page.captureScreenshot", all);
        let data = picture["data"].as_str().expect("a picture");
        BASE64_STANDARD.decode(data).expect("base64")
    }

    /// Returns what the pages' consoles have said since the last call, violations of a policy included.
    pub(crate) fn console(&self) -> Vec<String> {
        self.log("browser").into_iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// Returns the URLs to which the pages have sent requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        let events = self.log("performance").into_iter().map(|entry| {
            let message = entry["message"].as_str().expect("text");
            serde_json::from_str::<Value>(message).expect("JSON in text")["message"].take()
        });
        let sent = events.filter(|event| event["method"] == "Network.requestWillBeSent");
        let [of, to] = ["/params/documentURL", "/params/request/url"];
        let url = |event: &Value, path| event.pointer(path)?.as_str().map(str::to_owned);
        // The page that is open before the first `open` is Chromium's own.
        let sent = sent.filter(|event| !url(event, of).expect("a URL").starts_with("chrome://"));
        sent.map(|event| url(&event, to).expect("a URL")).collect()
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let Value::Array(entries) = self.ask("/se/log", &json!({"type": kind})) else {
            panic!("a log is a list")
        };
        entries
    }

    #[track_caller]
    fn ask(&self, path: &str, body: &Value) -> Value {
        let request = Request::post(format!("{}{path}", self.session))
            .header("content-type", "application/json")
            .body(body.to_string());
        let request = self
            .agent
            .configure_request(request.expect("a request"))
            .timeout_global(Some(PATIENCE))
            .build();
        let mut response = self.agent.run(request).expect("chromedriver answers");
        let status = response.status().as_u16();
        let mut answer: Value = response.body_mut().read_json().expect("JSON");
        assert_eq!(status, 200, "{path}: {answer}");
        answer["value"].take()
    }
}
