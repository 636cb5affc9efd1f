//! A sidecar, and requests to it: HTTP over a port or a Unix socket, with a time limit for every wait.

use super::ClientError;
use super::answer::{EventStream, SidecarAnswer};
use super::text::visible;
use crate::config::{self, Listen};
use crate::http_client::{self, ByteStream};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Response, Uri};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The time limit for connecting to a sidecar.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit for the whole answer to a query, or for the beginning of a stream of events.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for commands. A sidecar answers when it has carried out the command and its hooks have run, which may
/// take fifteen seconds.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

/// The default port of sidecars.
const PORT: u16 = 4040;

/// Commands that do not call a sidecar, and so have no `--url`.
const WITHOUT_URL: [&str; 5] = ["run", "exec", "dev", "inspect", "check-config"];

/// The address of a sidecar, and the credentials for it.
pub struct Sidecar {
    address: SidecarAddress,
    /// The token that is sent with commands, if the user gave one.
    pub token: Option<Token>,
    /// The value of `--url`, which is added to the commands in hints.
    pub url: Option<String>,
}

enum SidecarAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The secret that lets a client give commands to a sidecar. It is never printed.
pub struct Token(HeaderValue);

/// A request to a sidecar, and the time limit for the answer.
pub struct SidecarRequest<'a> {
    sidecar: &'a Sidecar,
    method: Method,
    path: String,
    headers: Vec<(HeaderName, String)>,
    body: Bytes,
    timeout: Duration,
}

impl Sidecar {
    /// Parses `http://HOST:PORT` (`http://` and `HOST` may be omitted), `PORT`, or `unix:PATH`.
    ///
    /// # Errors
    /// A sentence with the problem and the remedy.
    pub fn at(url: &str) -> Result<Self, String> {
        let wrong = || {
            Err(format!(
                "--url {url:?} is not a sidecar's address: write http://HOST:PORT, such as \
                 http://127.0.0.1:4040, or unix:PATH, such as unix:/run/bellwether.sock"
            ))
        };
        if let Some(path) = url.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::new(SidecarAddress::Unix(path.into()))),
                false => wrong(),
            };
        }
        let with_scheme = match url.split_once("://") {
            Some(_) => url.to_owned(),
            None if url.starts_with(':') => format!("http://127.0.0.1{url}"),
            // A bare number is a port, not a host name.
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
        // If the user wrote a scheme, the default port is that of HTTP.
        let default_port = if url.contains("://") { 80 } else { PORT };
        let port = port.unwrap_or(default_port);
        Ok(Self::new(SidecarAddress::Tcp { host: host.to_owned(), port }))
    }

    /// Returns the sidecar on this machine that listens at `listen`.
    pub fn listening_at(listen: &Listen) -> Self {
        match listen {
            Listen::Tcp(address) => {
                let url = format!("http://{}", config::on_this_machine(*address));
                Self::at(&url).expect("a socket address with a port")
            }
            Listen::Unix(path) => Self::new(SidecarAddress::Unix(path.clone())),
        }
    }

    /// Returns the sidecar at this address.
    fn new(address: SidecarAddress) -> Self {
        Self { address, token: None, url: None }
    }

    /// Adds `--url`, if it was given, to each command in backquotes in a text for people.
    pub(super) fn with_url(&self, text: &str) -> String {
        let Some(url) = &self.url else { return text.to_owned() };
        let url = if url.contains(' ') { format!("'{url}'") } else { url.clone() };
        // Split at backquotes, every second part is one that stood between two backquotes.
        let parts = text.split('`').enumerate().map(|(n, part)| {
            let command = part.strip_prefix("bellwether ").filter(|_| n % 2 == 1);
            let name = command.and_then(|command| command.split_whitespace().next());
            if name.is_some_and(|name| !WITHOUT_URL.contains(&name)) {
                format!("{part} --url {}", visible(&url))
            } else {
                part.to_owned()
            }
        });
        parts.collect::<Vec<_>>().join("`")
    }

    /// Creates the request for a query.
    pub fn get(&self, path: impl Into<String>) -> SidecarRequest<'_> {
        self.request(Method::GET, path).within(ANSWER_TIMEOUT)
    }

    /// Creates the request for a command.
    pub fn post(&self, path: impl Into<String>) -> SidecarRequest<'_> {
        self.request(Method::POST, path)
    }

    /// Creates a request with the time limit of a command.
    pub(super) fn request(&self, method: Method, path: impl Into<String>) -> SidecarRequest<'_> {
        SidecarRequest {
            sidecar: self,
            method,
            path: path.into(),
            headers: vec![],
            body: Bytes::new(),
            timeout: COMMAND_TIMEOUT,
        }
    }

    /// Connects within [`CONNECT_TIMEOUT`], or returns an error with hints for the user.
    async fn connect_in_time(&self) -> Result<(Box<dyn ByteStream>, OwnedFd), ClientError> {
        let why = match timeout(CONNECT_TIMEOUT, self.connect()).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no connection within {CONNECT_TIMEOUT:?}"),
        };
        Err(ClientError::no_answer(&self.base_url(), &format!("{why}{WHAT_TO_TRY}")))
    }

    /// Connects. Also returns a second descriptor of the connection, for other processes that keep the connection open:
    /// for the sidecar, it is open until both descriptors are closed.
    async fn connect(&self) -> io::Result<(Box<dyn ByteStream>, OwnedFd)> {
        match &self.address {
            SidecarAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                let descriptor = stream.as_fd().try_clone_to_owned()?;
                Ok((Box::new(stream), descriptor))
            }
            SidecarAddress::Tcp { host, port } => {
                let stream = http_client::connect(host, *port).await?;
                let descriptor = stream.as_fd().try_clone_to_owned()?;
                Ok((Box::new(stream), descriptor))
            }
        }
    }

    /// Returns the sidecar's URL, as accepted by `--url`.
    pub(super) fn base_url(&self) -> String {
        match &self.address {
            SidecarAddress::Tcp { host, port } => format!("http://{host}:{port}"),
            SidecarAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Returns the value of the header `Host`.
    fn host(&self) -> String {
        match &self.address {
            SidecarAddress::Tcp { host, port } => format!("{host}:{port}"),
            SidecarAddress::Unix(_) => "localhost".into(),
        }
    }
}

impl SidecarRequest<'_> {
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub(super) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Sends the request, and reads the whole answer.
    ///
    /// # Errors
    /// There is no answer, or it is not that of a sidecar.
    pub async fn answer(self) -> Result<SidecarAnswer, ClientError> {
        let url = self.url();
        self.exchange(async |response, _| SidecarAnswer::read(&url, response).await).await
    }

    /// Sends the request, and opens the stream of events in the answer. The stream lasts as long as its connection.
    ///
    /// # Errors
    /// There is no answer, or it is a refusal.
    pub(super) async fn events(self) -> Result<EventStream, ClientError> {
        let url = self.url();
        self.exchange(async |response, descriptor| {
            EventStream::new(&url, response, descriptor).await
        })
        .await
    }

    /// Sends the request, and reads the answer, within the time limit.
    async fn exchange<T>(
        self,
        read: impl AsyncFnOnce(Response<Incoming>, OwnedFd) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let exchange = async {
            let (response, descriptor) = self.send().await?;
            read(response, descriptor).await
        };
        let limit = self.timeout;
        timeout(limit, exchange).await.unwrap_or_else(|_| {
            let why = format!("no answer within {limit:?}{}", self.in_doubt());
            Err(ClientError::no_answer(&self.url(), &why))
        })
    }

    /// Returns the URL of the request, for errors.
    fn url(&self) -> String {
        format!("{}{}", self.sidecar.base_url(), self.path)
    }

    /// Returns an addition to the error for a missing answer: a hint that a command may still be carried out, and
    /// nothing for a query.
    fn in_doubt(&self) -> &'static str {
        match self.method {
            Method::GET => "",
            _ => "; the sidecar may still carry out the command: see `bellwether status`",
        }
    }

    /// Sends the request. Returns the beginning of the answer, and a second descriptor of the connection.
    async fn send(&self) -> Result<(Response<Incoming>, OwnedFd), ClientError> {
        let Self { sidecar, method, path, headers, .. } = self;
        let (connection, descriptor) = sidecar.connect_in_time().await?;
        let mut request = Request::builder().method(method).uri(path).header(HOST, sidecar.host());
        if method != Method::GET {
            // A sidecar without a command token requires this header, because a web page of another site cannot send
            // it.
            request = request.header("x-bellwether", "terminal");
            if let Some(Token(token)) = &sidecar.token {
                request = request.header(AUTHORIZATION, token);
            }
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body.clone()));
        let request = request.expect("every part was checked before");
        let response = http_client::send(connection, request).await.map_err(|error| {
            ClientError::no_answer(&sidecar.base_url(), &format!("{error}{}", self.in_doubt()))
        })?;
        Ok((response, descriptor))
    }
}

/// A hint to add to the error if the connection fails.
const WHAT_TO_TRY: &str = ": does a sidecar run there? Choose one with --url or BELLWETHER_URL; its log says where it \
                           listens (http.listen)";

impl Token {
    /// Returns `None` if the text is not one line of visible ASCII characters.
    pub fn new(written: &[u8]) -> Option<Self> {
        let token = config::parse_token(written)?;
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::UNANSWERED;
    use super::*;

    #[test]
    fn a_place_is_a_port_or_a_socket() {
        let name = |url| Sidecar::at(url).map(|sidecar| sidecar.base_url());
        let complete =
            ["http://127.0.0.1:4040", "http://[::1]:1", "http://app-0.app:80", "unix:/a b"];
        for url in complete {
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
            |listen: &str| Sidecar::listening_at(&Listen::Tcp(listen.parse().unwrap())).base_url();
        assert_eq!(name("0.0.0.0:4040"), "http://127.0.0.1:4040");
        assert_eq!(name("[::]:4040"), "http://[::1]:4040");
        assert_eq!(name("10.0.0.7:1"), "http://10.0.0.7:1");
    }

    /// The sidecar may have received the command although no answer came, so the error says that the sidecar may still
    /// carry it out.
    #[tokio::test]
    async fn a_command_without_an_answer_may_still_be_done() {
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let sidecar = Sidecar::listening_at(&Listen::Tcp(port.local_addr().expect("it is bound")));
        let said = async |method: Method| {
            let patience = Duration::from_millis(50);
            let asked = "/pause";
            let silent = sidecar.request(method.clone(), asked).within(patience).answer().await;
            // Accept and close two connections: that of the request above, which has timed out, and that of the next
            // one.
            let hangs_up = async { drop((port.accept().await, port.accept().await)) };
            let (_, gone) = tokio::join!(hangs_up, sidecar.request(method, asked).answer());
            [silent, gone].map(|answer| match answer {
                Err(ClientError { exit_code: UNANSWERED, message: Some(why) }) => why,
                other => panic!("{:?}", other.map(|answer| answer.status)),
            })
        };
        for (method, in_doubt) in [(Method::GET, false), (Method::POST, true)] {
            for why in said(method.clone()).await {
                assert_eq!(why.contains("may still carry out"), in_doubt, "{method}: {why}");
            }
        }
    }

    #[test]
    fn a_token_is_one_visible_line() {
        assert!(Token::new(b" secret\n").is_some());
        for wrong in ["", " \n", "a b", "a\nb", "ä"] {
            assert!(Token::new(wrong.as_bytes()).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn commands_in_a_text_repeat_the_url_that_was_given() {
        fn hinted(url: &str) -> Sidecar {
            Sidecar { url: Some(url.into()), ..Sidecar::at(url).unwrap() }
        }
        let inspects = "`bellwether inspect` shows which";
        assert_eq!(hinted(":4041").with_url(inspects), inspects);
        let text = "paused, until `bellwether resume`: see `/status`, or `bellwether locks a`";
        let with_url = |sidecar: Sidecar| sidecar.with_url(text);
        let local = Sidecar::listening_at(&Listen::Tcp("127.0.0.1:1".parse().unwrap()));
        assert_eq!(with_url(local), text, "none was given");
        for (url, shown) in [(":4041", ":4041"), ("unix:/a b", "'unix:/a b'")] {
            let expected = format!(
                "paused, until `bellwether resume --url {shown}`: see `/status`, or `bellwether locks a --url {shown}`"
            );
            assert_eq!(with_url(hinted(url)), expected);
        }
    }
}
