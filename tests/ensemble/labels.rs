//! The label of a pod, as a Service selects by it, and an EndpointSlice with the leader's address: both written through a fake
//! API server that checks each call.

use crate::{
    certificates::{Authority, Issued, put},
    group::{agreed, agreed_after, has_role, leader_of, started_in_order},
    member::{Member, Setup},
    servers::Servers,
    wait::{LIMIT, eventually, within},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use tokio_rustls::rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

const KEY: &str = "bellwether.io/role";
const TOKEN_ANNOTATION: &str = "bellwether.io/fencing-token";
const TOKEN: &str = "header.payload-one.signature";
const NEXT_TOKEN: &str = "header.payload-two.signature";

/// A fake of Kubernetes' API server, for the calls that members make.
struct ApiServer {
    port: u16,
    authority: Authority,
    /// Service accounts, and configurations.
    home: TempDir,
    state: Arc<Mutex<State>>,
}

struct State {
    /// The only token that is accepted.
    token: String,
    mood: Mood,
    /// The labels of each pod.
    pods: BTreeMap<String, BTreeMap<String, String>>,
    /// The EndpointSlice `leader`, and how often it has been written.
    slice: Slice,
    /// All calls, also those that were refused.
    asked: Vec<(String, Value)>,
    /// The calls that no member should have made.
    wrong: Vec<String>,
}

#[derive(Clone, Default)]
struct Slice {
    version: u64,
    token: Option<String>,
    endpoints: Value,
    /// Another client writes it between the next reading and the write that follows.
    interferes: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Serves,
    Forbids,
    Hangs,
}

impl ApiServer {
    /// Starts a server that knows these pods.
    fn start(pods: &[&str]) -> Self {
        let authority = Authority::new("kubernetes");
        // The certificate names an address, as in a cluster.
        let Issued { certificate, key } = authority.issue("kube-apiserver", &["127.0.0.1"]);
        let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
        let config = ServerConfig::builder().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![chain], key).expect("they fit"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = State {
            token: TOKEN.to_owned(),
            mood: Mood::Serves,
            pods: pods.iter().map(|&pod| (pod.to_owned(), BTreeMap::new())).collect(),
            slice: Slice { version: 7, ..Slice::default() },
            asked: vec![],
            wrong: vec![],
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for visitor in listener.incoming().map_while(Result::ok) {
                let (config, state) = (Arc::clone(&config), Arc::clone(&shared));
                thread::spawn(move || serve(config, visitor, &state));
            }
        });
        let home = TempDir::with_prefix("bellwether-labels-").expect("a temporary directory");
        let server = Self { port, authority, home, state };
        server.account("account", &server.authority, TOKEN);
        server
    }

    /// Writes what is mounted for a service account, and returns its directory.
    fn account(&self, name: &str, authority: &Authority, token: &str) -> String {
        let directory = self.home.path().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        put(&directory, "ca.crt", &authority.pem());
        put(&directory, "namespace", "shop");
        put(&directory, "token", token);
        directory.display().to_string()
    }

    /// Returns a hook with a key and an account of its own.
    fn hook(&self, key: &str, account: &str, more: &str) -> String {
        let account = self.home.path().join(account);
        format!("[[hook]]\npod_label = {key:?}\nservice_account = {account:?}\n{more}\n")
    }

    /// Starts a member in this pod, with these hooks.
    fn member(&self, servers: &Servers, pod: &str, hooks: &[String]) -> Member {
        let [member] = started_in_order(&self.setup(Setup::of(servers), pod, hooks), [pod]);
        member
    }

    fn setup(&self, setup: Setup, pod: &str, hooks: &[String]) -> Setup {
        let config = put(self.home.path(), &format!("{pod}.toml"), &hooks.concat());
        setup
            .option("--config", &config.display().to_string())
            .environment("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .environment("KUBERNETES_SERVICE_PORT", &self.port.to_string())
            .environment("POD_NAME", pod)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while holding it")
    }

    fn label(&self, pod: &str) -> Option<String> {
        self.state().pods[pod].get(KEY).cloned()
    }

    #[track_caller]
    fn labels(&self, expected: &[(&str, &str)]) {
        eventually("the labels tell which leads", || {
            let seen: Vec<_> = expected.iter().map(|(pod, _)| self.label(pod)).collect();
            let values = expected.iter().map(|(_, value)| Some((*value).to_owned()));
            if values.eq(seen.iter().cloned()) { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    }

    /// Checks that no member made a wrong call, and that none told a token.
    #[track_caller]
    fn is_content(&self, members: &[&Member]) {
        assert!(self.state().wrong.is_empty(), "{:?}", self.state().wrong);
        for member in members {
            let told = format!("{}{}", member.log(), member.status());
            assert!(!told.contains("payload"), "{told}");
        }
    }
}

/// Serves one request a connection.
fn serve(config: Arc<ServerConfig>, visitor: TcpStream, state: &Mutex<State>) {
    let connection = ServerConnection::new(config).expect("the configuration is good");
    let mut reader = BufReader::new(StreamOwned::new(connection, visitor));
    let mut line = || {
        let mut line = String::new();
        let read = reader.read_line(&mut line);
        // A client that does not trust this server's certificate sends nothing more.
        read.ok().filter(|length| *length > 0).map(|_| line.trim_end().to_owned())
    };
    let Some(first) = line() else { return };
    let mut headers = BTreeMap::new();
    while let Some((name, value)) = line().as_deref().and_then(|line| line.split_once(": ")) {
        headers.insert(name.to_owned(), value.to_owned());
    }
    let header = |name: &str| headers.get(name).map_or("", String::as_str);
    let mut body = vec![0; header("content-length").parse().unwrap_or_default()];
    reader.read_exact(&mut body).expect("the body");
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();

    let mut state = state.lock().expect("no thread panics while holding it");
    let mood = state.mood;
    state.asked.push((first.clone(), body.clone()));
    if mood == Mood::Serves
        && first.contains(" /apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/")
    {
        let authorized = header("authorization") == format!("Bearer {}", state.token);
        let (status, answer) = if authorized {
            state.slice.answer(&first, header("content-type"), &body)
        } else {
            (401, json!({ "message": "Unauthorized" }))
        };
        if status == 400 {
            state.wrong.push(format!("{first} {body}"));
        }
        drop(state);
        return respond(&mut reader, status, &answer);
    }
    let pod = first
        .strip_prefix("PATCH /api/v1/namespaces/shop/pods/")
        .and_then(|rest| rest.strip_suffix("?fieldManager=bellwether HTTP/1.1"));
    let labels = body["metadata"]["labels"].as_object();
    let is_all = labels.is_some_and(|labels| body == json!({ "metadata": { "labels": labels } }));
    let host = header("host").strip_prefix("127.0.0.1:").is_some();
    let (status, message) = match (pod, labels) {
        _ if mood == Mood::Hangs => {
            drop(state);
            // Waits until the client hangs up.
            let _ = reader.read(&mut [0]);
            return;
        }
        (Some(pod), Some(labels))
            if is_all
                && host
                && header("content-type") == "application/merge-patch+json"
                && header("accept") == "application/json" =>
        {
            if header("authorization") != format!("Bearer {}", state.token) {
                (401, "Unauthorized".to_owned())
            } else if mood == Mood::Forbids {
                let user = "system:serviceaccount:shop:default";
                (
                    403,
                    format!(
                        "pods {pod:?} is forbidden: User {user:?} cannot patch resource \"pods\""
                    ),
                )
            } else if let Some(pod) = state.pods.get_mut(pod) {
                for (key, value) in labels {
                    pod.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
                }
                (200, String::new())
            } else {
                (404, format!("pods {pod:?} not found"))
            }
        }
        (None | Some(_), None | Some(_)) => {
            state.wrong.push(format!("{first} {headers:?} {body}"));
            (400, "no such call is expected".to_owned())
        }
    };
    drop(state);
    let said = json!({ "kind": "Status", "apiVersion": "v1", "code": status, "message": message });
    respond(&mut reader, status, &said);
}

fn respond(
    reader: &mut BufReader<StreamOwned<ServerConnection, TcpStream>>,
    status: u16,
    body: &Value,
) {
    let body = body.to_string();
    let answer = format!("HTTP/1.1 {status} So\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _hung_up = reader.get_mut().write_all(answer.as_bytes());
    let _hung_up = reader.get_mut().flush();
    // Waits until the client has read the answer.
    let _ = reader.read(&mut [0]);
}

impl Slice {
    /// Answers as Kubernetes does: a patch of another version than the present one is a conflict.
    fn answer(&mut self, request: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/leader";
        let annotations: BTreeMap<&str, &String> =
            self.token.iter().map(|token| (TOKEN_ANNOTATION, token)).collect();
        if request == format!("GET {path} HTTP/1.1") {
            let answer = json!({
                "kind": "EndpointSlice",
                "metadata": { "resourceVersion": self.version.to_string(), "annotations": annotations },
                "addressType": "IPv4",
                "endpoints": self.endpoints,
            });
            if std::mem::take(&mut self.interferes) {
                self.version += 1;
            }
            return (200, answer);
        }
        if request != format!("PATCH {path}?fieldManager=bellwether HTTP/1.1")
            || content_type != "application/merge-patch+json"
        {
            let status = if request.contains("/leader") { 400 } else { 404 };
            return (status, json!({ "message": "endpointslices \"other\" not found" }));
        }
        let metadata = &body["metadata"];
        let version = Some(self.version.to_string());
        if metadata["resourceVersion"].as_str() != version.as_deref() {
            return (409, json!({ "message": "the object has been modified" }));
        }
        self.version += 1;
        self.token = metadata["annotations"][TOKEN_ANNOTATION].as_str().map(str::to_owned);
        self.endpoints = body["endpoints"].clone();
        (200, json!({}))
    }
}

/// Returns how a hook's last run failed.
#[track_caller]
fn failure(member: &Member, hook: usize) -> String {
    eventually("the status tells how it failed", || {
        let hooks = member.status()["hooks"].clone();
        hooks[hook]["last"]["failure"].as_str().map(str::to_owned).ok_or_else(|| hooks.to_string())
    })
}

#[test]
fn a_label_goes_from_pod_to_pod_with_leadership_and_with_the_token_of_the_day() {
    let servers = Servers::standalone();
    let api = ApiServer::start(&["app-0", "app-1"]);
    // As a leader that was killed left it.
    api.state().pods.get_mut("app-1").unwrap().insert(KEY.to_owned(), "leader".to_owned());
    let hooks = [api.hook(KEY, "account", "")];
    let mut a = api.member(&servers, "app-0", &hooks);
    let b = api.member(&servers, "app-1", &hooks);
    api.labels(&[("app-0", "leader"), ("app-1", "follower")]);

    api.account("account", &api.authority, NEXT_TOKEN);
    api.state().token = NEXT_TOKEN.to_owned();
    assert_eq!(a.post("/resign").status, 202);
    api.labels(&[("app-0", "follower"), ("app-1", "leader")]);
    assert_eq!(b.post("/drain").status, 200);
    assert_eq!(api.label("app-1").as_deref(), Some("follower"), "once it is drained");
    api.labels(&[("app-0", "leader")]);
    let asked = api.state().asked.len();
    assert!((6..=8).contains(&asked), "once at each change, but at the start: {asked}");

    api.is_content(&[&a, &b]);
    a.signal("TERM");
    let (status, _) = a.wait();
    assert_eq!(status.code(), Some(0));
    assert_eq!(api.label("app-0").as_deref(), Some("follower"), "once it is gone");
    assert!(!a.log().contains("payload"), "{}", a.log());
}

#[test]
fn what_is_wrong_is_told_in_one_line_and_tried_until_it_is_mended() {
    let servers = Servers::standalone();
    let api = ApiServer::start(&["app-0"]);
    api.state().mood = Mood::Forbids;
    api.account("stranger", &Authority::new("of another cluster"), TOKEN);
    api.account("outdated", &api.authority, "payload.of.yesterday");
    api.account("broken", &api.authority, "two\nlines");
    let hooks =
        ["account", "stranger", "outdated", "broken", "missing"].map(|it| api.hook(KEY, it, ""));
    let member = api.member(&servers, "app-0", &hooks);
    let home = api.home.path().display();
    let expected = [
        "the API server answers 403 Forbidden for pod app-0 in the namespace shop (pods \"app-0\" is forbidden: User \
         \"system:serviceaccount:shop:default\" cannot patch resource \"pods\")"
            .to_owned(),
        format!(
            "the API server at 127.0.0.1:{}: the server shows a certificate that no CA in \
             {home}/stranger/ca.crt has signed",
            api.port
        ),
        "the API server answers 401 Unauthorized for pod app-0 in the namespace shop (Unauthorized)"
            .to_owned(),
        format!("{home}/broken/token holds no token"),
        format!("{home}/missing/token cannot be read: No such file or directory (os error 2)"),
    ];
    for (n, expected) in expected.iter().enumerate() {
        eventually("the status tells it", || {
            let said = failure(&member, n);
            if said == *expected { Ok(()) } else { Err(said) }
        });
        let line = format!("hook[{n}] pod label {KEY}: became-leader: {expected}, after ");
        eventually("the log tells it too", || {
            let log = member.log();
            if log.lines().any(|it| it.contains(&line)) { Ok(()) } else { Err(log) }
        });
    }
    assert_eq!(api.label("app-0"), None);

    let nowhere = api.member(&servers, "app-9", &hooks[..1]);
    api.state().mood = Mood::Serves;
    eventually("no such pod", || {
        let said = failure(&nowhere, 0);
        let so = said.starts_with("the API server answers 404 Not Found for pod app-9 in the ");
        if so { Ok(()) } else { Err(said) }
    });
    eventually("what is mended works", || {
        let hooks = member.status()["hooks"].clone();
        if hooks[0]["last"]["failure"].is_null() { Ok(()) } else { Err(hooks.to_string()) }
    });
    api.labels(&[("app-0", "leader")]);
    api.is_content(&[&member, &nowhere]);
}

#[test]
fn an_api_server_that_hangs_holds_nothing_up_for_longer_than_its_limit() {
    let servers = Servers::standalone();
    let api = ApiServer::start(&["app-0"]);
    api.state().mood = Mood::Hangs;
    let done = api.home.path().join("done");
    let after = format!(
        "[[hook]]\non = [\"became-leader\"]\ncommand = [\"touch\", {:?}]\n",
        done.display().to_string()
    );
    let hooks = [api.hook(KEY, "account", "timeout = \"700ms\""), after];
    let member = api.member(&servers, "app-0", &hooks);
    eventually("it leads", || has_role(&member, "leader"));
    eventually(
        "the hook after it has run",
        || {
            if done.exists() { Ok(()) } else { Err(member.log()) }
        },
    );
    assert_eq!(failure(&member, 0), "not done within 700ms");
    // The drain answers in time, and does not wait for a hook beyond its limit.
    assert_eq!(member.post("/drain").status, 200);
    api.state().mood = Mood::Serves;
    api.labels(&[("app-0", "follower")]);
    api.is_content(&[&member]);
}

/// A call that hangs is cancelled when there is a newer label to set.
#[test]
fn the_end_of_a_lease_is_told_though_its_beginning_could_not_be() {
    let mut servers = Servers::standalone();
    let api = ApiServer::start(&["app-0", "app-1"]);
    let hooks = [api.hook(KEY, "account", "timeout = \"10m\"")];
    let setup = Setup::of(&servers).sessions(Duration::from_secs(6));
    let [a] = started_in_order(&api.setup(setup.clone(), "app-0", &[]), ["app-0"]);
    api.state().mood = Mood::Hangs;
    let [b] = started_in_order(&api.setup(setup, "app-1", &hooks), ["app-1"]);
    let asked = |value: &str| {
        let state = api.state();
        let (_, body) = state.asked.last().ok_or("there was no call")?;
        if body["metadata"]["labels"][KEY] == value { Ok(()) } else { Err(body.to_string()) }
    };
    eventually("it begins as a follower", || asked("follower"));
    assert_eq!(a.post("/resign").status, 202);
    eventually("b leads, whatever becomes of its label", || has_role(&b, "leader"));
    assert_eq!(agreed([&a, &b]).id, "app-1");
    eventually("the new label is requested, without waiting for the outdated attempt", || {
        asked("leader")
    });

    servers.first().pause();
    eventually("its lease has ended", || {
        let answer = leader_of(&b);
        if answer["is_self"] == true { Err(answer.to_string()) } else { Ok(()) }
    });
    // The new label waits neither for the server's answer nor for the ten minutes of an attempt to pass.
    eventually("its label is to say so", || asked("follower"));
    let hook = b.status()["hooks"][0].clone();
    assert_eq!((&hook["cut_short"], &hook["failures"]), (&json!(2), &json!(0)), "{hook}");
    assert_eq!(hook["running"], "lost-leadership");
}

/// A cancelled request may arrive late, and people change labels as well.
#[test]
fn a_label_that_others_have_changed_is_set_again() {
    let servers = Servers::standalone();
    let api = ApiServer::start(&["app-0"]);
    let member = api.member(&servers, "app-0", &[api.hook(KEY, "account", "")]);
    api.labels(&[("app-0", "leader")]);
    let said = |member: &Member| member.log().matches("pod label").count();
    eventually("it is logged that the label was set", || {
        // Of two changes in a row, the first may have been logged alone.
        let hook = member.status()["hooks"][0].clone();
        if hook["running"].is_null() { Ok(()) } else { Err(hook.to_string()) }
    });
    let before = said(&member);
    api.state().pods.get_mut("app-0").unwrap().remove(KEY);
    let again =
        within(2 * LIMIT, || api.label("app-0").ok_or_else(|| format!("{:?}", api.state().asked)));
    assert_eq!(again.as_deref(), Ok("leader"));
    eventually("it is counted", || {
        let hook = member.status()["hooks"][0].clone();
        if hook["last"]["change"] == "state" { Ok(()) } else { Err(hook.to_string()) }
    });
    assert_eq!(said(&member), before, "and not worth a line: {}", member.log());
    api.is_content(&[&member]);
}

/// A member whose pod has this address, and the hook for the slice `leader`.
fn with_slice(api: &ApiServer, servers: &Servers, pod: &str, ip: &str) -> Member {
    let account = api.home.path().join("account");
    let hook = format!("[[hook]]\nendpoint_slice = \"leader\"\nservice_account = {account:?}\n");
    let setup = api.setup(Setup::of(servers), pod, &[hook]).environment("POD_IP", ip);
    let [member] = started_in_order(&setup, [pod]);
    member
}

#[track_caller]
fn slice_has(api: &ApiServer, address: &str, token: u64) {
    eventually("the slice has the leader's address", || {
        let slice = api.state().slice.clone();
        let endpoints = json!([{ "addresses": [address], "conditions": { "ready": true } }]);
        let is_right = slice.endpoints == endpoints && slice.token == Some(token.to_string());
        if is_right { Ok(()) } else { Err(format!("{:?} {}", slice.token, slice.endpoints)) }
    });
}

#[test]
fn an_endpoint_slice_has_the_address_of_the_leader_and_its_token() {
    let servers = Servers::standalone();
    let api = ApiServer::start(&[]);
    api.state().slice.interferes = true;
    let a = with_slice(&api, &servers, "app-0", "10.0.0.7");
    let b = with_slice(&api, &servers, "app-1", "10.0.0.8");
    let first = agreed([&a, &b]);
    slice_has(&api, "10.0.0.7", first.token);

    assert_eq!(a.post("/resign").status, 202);
    let second = agreed_after(&first, [&a, &b]);
    slice_has(&api, "10.0.0.8", second.token);
    eventually("the old leader leaves it alone", || {
        let hook = a.status()["hooks"][0].clone();
        if hook["last"]["change"] == "lost-leadership" { Ok(()) } else { Err(hook.to_string()) }
    });
    // A hook that starts after the election writes the state that it finds.
    let has_written =
        ["became-leader: done", "state: done"].iter().any(|done| a.log().contains(done));
    assert!(has_written, "{}", a.log());
    assert!(!a.log().contains("lost-leadership: done"), "nothing was written: {}", a.log());
    api.is_content(&[&a, &b]);
}

#[test]
fn endpoints_that_others_have_changed_are_written_again() {
    let servers = Servers::standalone();
    let api = ApiServer::start(&[]);
    let a = with_slice(&api, &servers, "app-0", "10.0.0.7");
    let leader = agreed([&a]);
    slice_has(&api, "10.0.0.7", leader.token);
    api.state().slice.endpoints = json!([
        { "addresses": ["10.0.0.7"], "conditions": { "ready": false } },
        { "addresses": ["10.0.0.9"], "conditions": { "ready": true } },
    ]);
    let again = within(2 * LIMIT, || {
        let endpoints = api.state().slice.endpoints.clone();
        if endpoints[1].is_null() { Ok(()) } else { Err(endpoints.to_string()) }
    });
    assert_eq!(again, Ok(()));
    slice_has(&api, "10.0.0.7", leader.token);
    api.is_content(&[&a]);
}

#[test]
fn an_endpoint_slice_that_a_later_leader_wrote_is_left_alone_and_that_is_reported() {
    let servers = Servers::standalone();
    let api = ApiServer::start(&[]);
    let later = u64::MAX.to_string();
    api.state().slice.token = Some(later.clone());
    let a = with_slice(&api, &servers, "app-0", "10.0.0.7");
    let said = failure(&a, 0);
    assert!(said.contains("was written by a later leader"), "{said}");
    assert!(said.contains(&later), "{said}");
    assert_eq!(api.state().slice.token, Some(later));

    // As an operator does it after ZooKeeper's data were lost.
    api.state().slice.token = None;
    slice_has(&api, "10.0.0.7", agreed([&a]).token);
}
