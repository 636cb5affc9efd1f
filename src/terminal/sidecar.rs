//! One sidecar, and how to ask it: HTTP over a port or a socket, with a limit to every wait.

use super::ClientError;
use super::text::visible;
use crate::api::{PROBLEM_TYPES, Problem};
use crate::config::{self, Listen};
use crate::http_client::HttpConnection;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A command is answered when it has been carried out, for which a sidecar itself has fifteen seconds,
/// its hooks included.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
/// A client that waits for a change asks again after this long, so that it does not wait long for a sidecar that is frozen.
const ROUND: Duration = Duration::from_secs(20);
/// A stream is taken for dead after this long: a sidecar sends at least a comment every 15 s.
pub(super) const SILENCE: Duration = Duration::from_secs(45);
/// The body of a queue of very many members is shorter.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// No request or answer of ZooKeeper is longer, unless its operators want it.
pub(super) const LONGEST_VALUE: usize = LONGEST_ANSWER;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The default port of sidecars.
const PORT: u16 = 4040;

/// The address of a sidecar, and the credentials for it.
pub struct Sidecar {
    place: SidecarAddress,
    token: Option<Token>,
}

enum SidecarAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The token that a command has to show. It is never printed.
pub struct Token(HeaderValue);

/// Headers of a request, and its body.
type Content = (Vec<(HeaderName, String)>, Bytes);

/// Returns what to ask for what comes after this index, and how long the answer may take.
pub(super) fn blocking(path: &str, seen: Option<u64>) -> (String, Duration) {
    match seen {
        Some(index) => {
            let path = format!("{path}?index={index}&wait={}s", ROUND.as_secs());
            (path, ROUND + ANSWER_TIMEOUT)
        }
        None => (path.to_owned(), ANSWER_TIMEOUT),
    }
}

/// The answer of a sidecar.
pub struct SidecarAnswer {
    asked: String,
    status: StatusCode,
    is_problem: bool,
    index: Option<u64>,
    text: String,
}

impl Sidecar {
    /// Parses `http://HOST:PORT`, also without `http://` or `HOST`, `PORT` alone, or `unix:PATH`.
    ///
    /// # Errors
    /// One sentence that says what is wrong with it.
    pub fn at(url: &str) -> Result<Self, String> {
        let wrong = || {
            Err(format!(
                "--url {url:?} is not a sidecar's address: write http://HOST:PORT, such as \
                 http://127.0.0.1:4040, or unix:PATH, such as unix:/run/bellwether.sock"
            ))
        };
        if let Some(path) = url.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::new(SidecarAddress::Unix(path.into())))
            } else {
                wrong()
            };
        }
        let with_scheme = match url.split_once("://") {
            Some(_) => url.to_owned(),
            None if url.starts_with(':') => format!("http://127.0.0.1{url}"),
            // A number alone is not the name of a host.
            None if url.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("http://127.0.0.1:{url}")
            }
            None => format!("http://{url}"),
        };
        let Ok(uri) = with_scheme.parse::<Uri>() else { return wrong() };
        let is_bare = uri.path() == "/" && uri.query().is_none();
        if uri.scheme() != Some(&Scheme::HTTP) || !is_bare {
            return wrong();
        }
        let Some((host, port)) = config::host_and_port(&uri) else { return wrong() };
        let port = port.unwrap_or(if with_scheme == url { 80 } else { PORT });
        Ok(Self::new(SidecarAddress::Tcp { host: host.to_owned(), port }))
    }

    /// The one that is served there, asked from the same machine.
    pub fn that_listens(listen: &Listen) -> Self {
        let address = match listen {
            Listen::Tcp(address) => config::on_this_machine(*address),
            Listen::Unix(path) => return Self::new(SidecarAddress::Unix(path.clone())),
        };
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Self::new(SidecarAddress::Tcp { host, port: address.port() })
    }

    pub(super) fn is_shown_a_token(&self) -> bool {
        self.token.is_some()
    }

    #[must_use]
    pub fn shown(self, token: Option<Token>) -> Self {
        Self { token, ..self }
    }

    fn new(place: SidecarAddress) -> Self {
        Self { place, token: None }
    }

    /// Asks, and reads the whole answer.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        patience: Duration,
    ) -> Result<SidecarAnswer, ClientError> {
        self.answer(method, path, Content::default(), patience).await
    }

    /// Writes a value, if the header says nothing against it, and reads the whole answer.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub(super) async fn write(
        &self,
        method: Method,
        path: &str,
        condition: Option<(HeaderName, String)>,
        value: Bytes,
        patience: Duration,
    ) -> Result<SidecarAnswer, ClientError> {
        let content = (condition.into_iter().collect(), value);
        self.answer(method, path, content, patience).await
    }

    /// Sends a command with this JSON, and reads the whole answer.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub(super) async fn post(
        &self,
        path: &str,
        json: String,
        patience: Duration,
    ) -> Result<SidecarAnswer, ClientError> {
        let json = (vec![(CONTENT_TYPE, "application/json".to_owned())], json.into());
        self.answer(Method::POST, path, json, patience).await
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        with: Content,
        patience: Duration,
    ) -> Result<SidecarAnswer, ClientError> {
        let asked = format!("{}{path}", self.name());
        let in_doubt = in_doubt(&method);
        let read = async {
            let connection = self.connected().await?;
            let response = self.send_over(connection, method, path, with).await?;
            SidecarAnswer::read(&asked, response).await
        };
        timeout(patience, read).await.unwrap_or_else(|_| {
            let late = format!("no answer within {patience:?}{in_doubt}");
            Err(ClientError::unanswered(&asked, &late))
        })
    }

    /// Asks, and leaves the answer's body to be read as it comes.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        last_event: Option<&str>,
    ) -> Result<Response<Incoming>, ClientError> {
        let connection = self.connected().await?;
        let last_event = last_event.map(|id| (LAST_EVENT_ID, id.to_owned()));
        let content = (last_event.into_iter().collect(), Bytes::new());
        self.send_over(connection, method, path, content).await
    }

    /// Sends a command that lasts for as long as its connection. Returns also a second hold on that.
    pub(super) async fn begin(
        &self,
        path: &str,
    ) -> Result<(Response<Incoming>, OwnedFd), ClientError> {
        let connection = self.connected().await?;
        let hold = connection.second_hold();
        let hold =
            hold.map_err(|error| ClientError::unanswered(&self.name(), &error.to_string()))?;
        Ok((self.send_over(connection, Method::POST, path, Content::default()).await?, hold))
    }

    /// Sends a request with these headers besides, and this body.
    async fn send_over(
        &self,
        connection: HttpConnection,
        method: Method,
        path: &str,
        (headers, body): Content,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder().method(&method).uri(path).header(HOST, self.host());
        if method != Method::GET {
            request = request.header("x-bellwether", "terminal");
            if let Some(Token(token)) = &self.token {
                request = request.header(AUTHORIZATION, token);
            }
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body));
        let request = request.expect("every part was checked before");
        let answered = connection.send(request).await;
        answered.map_err(|error| {
            ClientError::unanswered(&self.name(), &format!("{error}{}", in_doubt(&method)))
        })
    }

    async fn connected(&self) -> Result<HttpConnection, ClientError> {
        let why = match timeout(CONNECT_TIMEOUT, self.connect()).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no connection within {CONNECT_TIMEOUT:?}"),
        };
        Err(ClientError::unanswered(&self.name(), &format!("{why}{WHAT_TO_TRY}")))
    }

    async fn connect(&self) -> io::Result<HttpConnection> {
        match &self.place {
            SidecarAddress::Unix(path) => HttpConnection::to_socket(path).await,
            SidecarAddress::Tcp { host, port } => HttpConnection::to_port(host, *port).await,
        }
    }

    /// Returns its URL, as `--url` takes it.
    pub(super) fn name(&self) -> String {
        match &self.place {
            SidecarAddress::Tcp { host, port } => format!("http://{host}:{port}"),
            SidecarAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    fn host(&self) -> String {
        match &self.place {
            SidecarAddress::Tcp { host, port } => format!("{host}:{port}"),
            SidecarAddress::Unix(_) => "localhost".into(),
        }
    }
}

/// The problems of a sidecar that ZooKeeper does not answer, besides those where something cannot be read.
const UNREACHED: [&str; 2] = ["not-written", "unconfirmed"];

/// Returns what a problem says, with the command or flag in place of the header or path of HTTP.
fn in_words_of_commands(kind: &str, detail: String) -> String {
    match kind {
        "unauthorized" if detail.starts_with("the command token is not") => {
            "the command token is not the sidecar's: see the file that --token-file or BELLWETHER_TOKEN_FILE names, and \
                           its http.token_file"
                .into()
        }
        "unauthorized" => {
            "the sidecar wants its command token: name a file that holds it by --token-file or \
                           BELLWETHER_TOKEN_FILE"
                .into()
        }
        "no-such-value" => {
            detail.split(": ").next().unwrap_or_default().to_owned()
                + ": `bellwether config put` creates it, and `config get --wait` waits for it"
        }
        "other-version" => {
            detail.split(": ").next().unwrap_or_default().to_owned()
                + ": `bellwether config get -o json` has the value with its version, for --if-version"
        }
        _ => detail.replace("/status", "`bellwether status`"),
    }
}

/// Added to an error if no sidecar is found.
const WHAT_TO_TRY: &str = ": does a sidecar run there? --url or BELLWETHER_URL says which one to ask, and a sidecar's log \
                           where it listens (http.listen)";

/// Added to an error if it is not known whether the sidecar got the command.
fn in_doubt(method: &Method) -> &'static str {
    if method == Method::GET {
        ""
    } else {
        "; what it was told may still be done: see `bellwether status`"
    }
}

impl Token {
    /// `None` if it is not one line of visible ASCII characters.
    pub fn new(written: &[u8]) -> Option<Self> {
        let token = config::token_in(written)?;
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

impl ClientError {
    pub(super) fn unanswered(whom: &str, why: &str) -> Self {
        Self::Unanswered(format!("{} gives no answer: {}", visible(whom), visible(why)))
    }

    pub(super) fn nonsense(whom: &str, why: &str) -> Self {
        Self::Unanswered(format!(
            "{} does not answer as a sidecar does: {}",
            visible(whom),
            visible(why)
        ))
    }
}

pub(super) fn index_in(headers: &HeaderMap) -> Option<u64> {
    headers.get("x-bellwether-index")?.to_str().ok()?.parse().ok()
}

impl SidecarAnswer {
    /// Reads the whole answer to what was asked there.
    pub(super) async fn read(
        asked: &str,
        response: Response<Incoming>,
    ) -> Result<Self, ClientError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| ClientError::unanswered(asked, &error.to_string()))?;
        let text = String::from_utf8(body.to_bytes().into());
        let text = text.map_err(|_| ClientError::unanswered(asked, "the answer is not text"))?;
        let content_type = head.headers.get(CONTENT_TYPE);
        Ok(Self {
            asked: asked.to_owned(),
            status: head.status,
            is_problem: content_type.is_some_and(|kind| kind == "application/problem+json"),
            index: index_in(&head.headers),
            text,
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The index of the answer, also without a leader.
    pub fn index(&self) -> Option<u64> {
        self.index
    }

    /// Parses the body of a success.
    ///
    /// # Errors
    /// A problem document is a no, anything else makes no sense.
    pub fn body<T: serde::de::DeserializeOwned>(&self) -> Result<T, ClientError> {
        if self.status.is_success() {
            return self.parsed();
        }
        let is_refusal = self.is_problem && self.may_be_a_refusal();
        if !is_refusal {
            return Err(self.unexpected_status());
        }
        let Problem { r#type, title, detail, .. } = self.parsed()?;
        let Some(kind) = r#type.strip_prefix(PROBLEM_TYPES) else {
            return Err(self.nonsense(&format!("it says {title}")));
        };
        // Otherwise the resource does not exist.
        let is_told = kind.ends_with("-off") || ["no-such-value", "no-such-place"].contains(&kind);
        if self.status == StatusCode::NOT_FOUND && !is_told {
            return Err(self.unexpected_status());
        }
        let told = visible(&format!("{title}: {}", in_words_of_commands(kind, detail)));
        let is_unread = kind.ends_with("-unavailable") || UNREACHED.contains(&kind);
        Err(if is_unread { ClientError::Unread(told) } else { ClientError::No(told) })
    }

    /// Parses a body that comes with a no as well.
    pub(super) fn parsed<T: serde::de::DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(&self.text).map_err(|error| self.nonsense(&error.to_string()))
    }

    fn unexpected_status(&self) -> ClientError {
        self.nonsense(&format!("it says {}", self.status))
    }

    pub(super) fn nonsense(&self, why: &str) -> ClientError {
        ClientError::nonsense(&self.asked, why)
    }

    /// Other errors say that it was asked wrongly.
    fn may_be_a_refusal(&self) -> bool {
        matches!(
            self.status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::CONFLICT
                | StatusCode::PRECONDITION_FAILED
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::SERVICE_UNAVAILABLE
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_port_or_a_socket() {
        let name = |url| Sidecar::at(url).map(|sidecar| sidecar.name());
        for url in ["http://127.0.0.1:4040", "http://[::1]:1", "http://app-0.app:80", "unix:/a b"] {
            assert_eq!(name(url).unwrap(), url);
        }
        for (url, meant) in [
            ("http://h/", "http://h:80"),
            ("localhost:4040", "http://localhost:4040"),
            (":4041", "http://127.0.0.1:4041"),
            ("4041", "http://127.0.0.1:4041"),
            ("app-0", "http://app-0:4040"),
            ("[::1]:1", "http://[::1]:1"),
        ] {
            assert_eq!(name(url).unwrap(), meant);
        }
        for url in [
            "",
            ":",
            "99999",
            "h:x",
            "h:1/leader",
            "me:secret@h:1",
            "https://h:1",
            "http://",
            "http://h:x",
            "http://h:",
            "http://h:65536",
            "http://h:1/leader",
            "http://h:1/?a",
            "http://me:secret@h:1",
            "unix:",
            "unix:run.sock",
            "ftp://h",
            "/leader",
        ] {
            assert!(name(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_sidecar_that_listens_everywhere_is_asked_on_the_loopback() {
        let name =
            |listen: &str| Sidecar::that_listens(&Listen::Tcp(listen.parse().unwrap())).name();
        assert_eq!(name("0.0.0.0:4040"), "http://127.0.0.1:4040");
        assert_eq!(name("[::]:4040"), "http://[::1]:4040");
        assert_eq!(name("10.0.0.7:1"), "http://10.0.0.7:1");
    }

    /// The sidecar may have got the command although no answer came, so the error says that it may still be done.
    #[tokio::test]
    async fn a_command_without_an_answer_may_still_be_done() {
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let sidecar = Sidecar::that_listens(&Listen::Tcp(port.local_addr().expect("it is bound")));
        let said = async |method: Method| {
            let patience = Duration::from_millis(50);
            let asked = "/pause";
            let silent = sidecar.ask(method.clone(), asked, patience).await;
            // Both connections: the first has failed already, and the client tries once more.
            let hangs_up = async { drop((port.accept().await, port.accept().await)) };
            let (_, gone) = tokio::join!(hangs_up, sidecar.ask(method, asked, ANSWER_TIMEOUT));
            [silent, gone].map(|answer| match answer {
                Err(ClientError::Unanswered(why)) => why,
                other => panic!("{:?}", other.map(|answer| answer.text)),
            })
        };
        for (method, in_doubt) in [(Method::GET, false), (Method::POST, true)] {
            for why in said(method.clone()).await {
                assert_eq!(why.contains("may still be done"), in_doubt, "{method}: {why}");
            }
        }
    }

    /// A no can be counted on; what ZooKeeper alone knows cannot be told without it.
    #[test]
    fn what_a_sidecar_cannot_tell_without_zookeeper_is_no_no() {
        let told = |status: u16, kind: &str, detail: &str| {
            let r#type = format!("{PROBLEM_TYPES}{kind}");
            let body = serde_json::json!({"type": r#type, "title": "t", "status": status, "detail": detail});
            let answer = SidecarAnswer {
                asked: "http://h:1/x".into(),
                status: StatusCode::from_u16(status).expect("a status"),
                is_problem: true,
                index: None,
                text: body.to_string(),
            };
            let (code, why) = answer.body::<()>().expect_err("a problem").told();
            (code, why.unwrap_or_default())
        };
        for kind in [
            "config-unavailable",
            "locks-unavailable",
            "barriers-unavailable",
            "queue-unavailable",
            "not-written",
            "unconfirmed",
        ] {
            assert_eq!(
                told(503, kind, "see /status"),
                (3, "t: see `bellwether status`".into()),
                "{kind}"
            );
        }
        for (status, kind) in [(503, "no-leader"), (409, "not-leader"), (503, "command-pending")] {
            assert_eq!(told(status, kind, "d"), (1, "t: d".into()), "{kind}");
        }
        for (status, kind, word) in [
            (401, "unauthorized", "--token-file"),
            (404, "no-such-value", "config put"),
            (412, "other-version", "--if-version"),
        ] {
            let (code, why) = told(status, kind, "h: PUT If-Match Authorization");
            assert!(code == 1 && why.contains(word) && !why.contains("PUT"), "{kind}: {why}");
        }
        assert_eq!(told(404, "no-such-path", "d").0, 3, "it was asked for what is not there");
    }

    #[test]
    fn a_token_is_one_visible_line() {
        assert!(Token::new(b" secret\n").is_some());
        for wrong in ["", " \n", "a b", "a\nb", "ä"] {
            assert!(Token::new(wrong.as_bytes()).is_none(), "{wrong:?}");
        }
    }
}
