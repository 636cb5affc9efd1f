//! Parsers of single values, for the table of settings.

use super::error::ConfigError;
use super::{Listen, LogFormat, OnExit};
use hyper::Uri;
use recipes::election::Priority;
use recipes::{ForeignClient, MemberId};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The remedy for an invalid duration.
const DURATIONS: &str = "write 500ms, 10s or 2m";

/// Parses a duration.
///
/// # Errors
/// The problem and the remedy.
pub fn duration(text: &str) -> Result<Duration, ConfigError> {
    match humantime::parse_duration(text) {
        Ok(span) if (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&span) => {
            Ok(span)
        }
        Ok(_) => Err(ConfigError::without_key("must lie between 1ms and 1 day").remedy(DURATIONS)),
        Err(error) => Err(ConfigError::without_key(format!("is not a valid duration ({error})"))
            .remedy(DURATIONS)),
    }
}

/// Parses a text that must be one of the words in `known`, and returns the value of that word.
pub(super) fn one_of<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, ConfigError> {
    if let Some((_, value)) = known.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let words: Vec<_> = known.iter().map(|(word, _)| format!("{word:?}")).collect();
    Err(ConfigError::without_key(format!("must be {}", words.join(" or "))))
}

/// Returns the word in `known` for this value: the inverse of [`one_of`].
pub(super) fn word_for<T: PartialEq>(value: &T, known: &[(&'static str, T)]) -> &'static str {
    let word = known.iter().find(|(_, known)| known == value).map(|(word, _)| *word);
    word.expect("every value has a word")
}

/// Accepts any text.
pub(super) fn text(text: &str) -> Result<String, ConfigError> {
    Ok(text.to_owned())
}

/// Parses a file name. An empty name is an error; it shows no value, as there is none.
pub(super) fn file(text: &str) -> Result<PathBuf, ConfigError> {
    if text.is_empty() {
        return Err(ConfigError::without_key("is empty")
            .remedy("name a file, or leave it out")
            .hiding_value());
    }
    Ok(text.into())
}

/// Parses a Kerberos principal.
pub(super) fn principal(text: &str) -> Result<String, ConfigError> {
    let is_visible = !text.contains(|c: char| c.is_control() || c.is_whitespace());
    // Without a realm, Kerberos takes the default realm. Here, any text stands for it.
    let (name, realm) = text.rsplit_once('@').unwrap_or((text, "default"));
    if is_visible && !name.is_empty() && !realm.is_empty() {
        return Ok(text.to_owned());
    }
    Err(ConfigError::without_key("is not a principal")
        .remedy("write name@REALM or name/instance@REALM"))
}

/// Parses the name of a Kerberos service.
pub(super) fn service(text: &str) -> Result<String, ConfigError> {
    let is_forbidden = |c: char| c.is_control() || c.is_whitespace() || c == '/' || c == '@';
    if text.is_empty() || text.contains(is_forbidden) {
        return Err(ConfigError::without_key("is not the name of a service").remedy(
            "write the part of the servers' principals before the slash, such as zookeeper",
        ));
    }
    Ok(text.to_owned())
}

/// Parses the name of another client library, such as Curator, in whose elections this member takes part. Members
/// support these four only. The word `none` does not get here: it unsets the setting, see `Values::get_optional`.
pub(super) fn foreign_client(text: &str) -> Result<ForeignClient, ConfigError> {
    let clients = [
        ForeignClient::CuratorLatch,
        ForeignClient::CuratorSelector,
        ForeignClient::Kazoo,
        ForeignClient::ZookeeperRecipe,
    ];
    one_of(text, &clients.map(|client| (client.name(), client)))
        .map_err(|flaw| flaw.remedy("write \"none\" for an election of Bellwether's own"))
}

pub(super) fn member_id(text: &str) -> Result<MemberId, ConfigError> {
    MemberId::new(text).ok_or_else(|| {
        ConfigError::without_key(
            "must be 1 to 253 visible ASCII characters without spaces, as a host's name is",
        )
        .remedy("write a name such as app-0")
    })
}

/// Parses labels: a text such as `zone=a,version=1.4` from flags or the environment, or the JSON object to which
/// [`labels_as_text`] converts the labels of the file.
pub(super) fn labels(text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| {
            ConfigError::without_key(format!("are not valid labels ({error})")).remedy(LABELS)
        });
    }
    let mut labels = BTreeMap::new();
    // An empty text has no labels, but `split` returns one empty pair.
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        // A pair without `=` gets an empty key, which is an error below.
        let (key, value) = pair.split_once('=').unwrap_or_default();
        let [key, value] = [key.trim(), value.trim()];
        if key.is_empty() {
            let problem = format!("has {pair:?}, which is not a label");
            return Err(ConfigError::without_key(problem).remedy(LABELS));
        }
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            let problem = format!("has the key {key:?} twice");
            return Err(ConfigError::without_key(problem).remedy("write each key once"));
        }
    }
    Ok(labels)
}

/// The remedy for invalid labels.
const LABELS: &str = "write KEY=VALUE,KEY=VALUE, such as zone=eu-1,version=1.4";

/// Writes labels as a JSON object, which [`labels`] can parse.
pub(super) fn labels_as_text(labels: &BTreeMap<String, String>) -> String {
    serde_json::to_string(labels).expect("texts are JSON")
}

/// Shows labels in the syntax of flags and the environment: `zone=a,version=1.4`.
pub(super) fn shown_labels(text: &str) -> String {
    let labels = labels(text).unwrap_or_default();
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(",")
}

/// Parses the address of the API's listener: `IP:PORT`, or `unix:` and the path of a socket.
pub(super) fn listen_at(text: &str) -> Result<Listen, ConfigError> {
    let Some(path) = text.strip_prefix("unix:") else {
        let example = "127.0.0.1:4040, or unix:/run/bellwether.sock";
        return socket_address(text, example).map(Listen::Tcp);
    };
    // The kernel's `sockaddr_un` limits the length of a socket's path.
    if !path.starts_with('/') || path.ends_with('/') || path.len() > 107 || path.contains('\0') {
        return Err(ConfigError::without_key("is not a socket").remedy(
            "write unix: and an absolute path of at most 107 bytes, such as \
             unix:/run/bellwether.sock",
        ));
    }
    Ok(Listen::Unix(path.into()))
}

/// Parses a file mode of three or four octal digits, such as `0644`.
pub(super) fn mode(text: &str) -> Result<u32, ConfigError> {
    // `from_str_radix` also accepts a sign, which is not a digit.
    let unsigned = (3..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| unsigned && *mode <= 0o777);
    mode.ok_or_else(|| {
        ConfigError::without_key("is not a file mode")
            .remedy("write octal digits, such as \"0644\"")
    })
}

/// Parses the name or number of a group. Whether the group exists is checked later, by `files::group_number`.
pub(super) fn group(text: &str) -> Result<String, ConfigError> {
    if text.is_empty() || text.contains([':', '\n', '\0']) {
        return Err(
            ConfigError::without_key("is not a group").remedy("write a group's name or number")
        );
    }
    Ok(text.to_owned())
}

/// Parses the address of the listener for probes.
pub(super) fn probe_address(text: &str) -> Result<SocketAddr, ConfigError> {
    socket_address(text, "0.0.0.0:4041")
}

/// Parses `IP:PORT`, `:PORT` or `localhost:PORT`. The error shows the example.
fn socket_address(text: &str, example: &str) -> Result<SocketAddr, ConfigError> {
    let whole = match text.split_once(':') {
        // As in other programs, an empty host means all addresses of this machine.
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        Some(_) | None => text.to_owned(),
    };
    whole.parse().map_err(|_| {
        ConfigError::without_key("is not an address")
            .remedy(format!("write IP:PORT, such as {example}"))
    })
}

/// Parses a number from `LEAST` to `MOST`, both included.
pub(super) fn number<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, ConfigError> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number
        .ok_or_else(|| ConfigError::without_key(format!("must be a number from {LEAST} to {MOST}")))
}

pub(super) fn priority(text: &str) -> Result<Priority, ConfigError> {
    let number = text.parse().ok().and_then(Priority::new);
    number.ok_or_else(|| {
        ConfigError::without_key("must be a number from 0 to 100")
            .remedy("50 is the usual one, 0 for a member of last resort")
    })
}

/// Parses a duration for a setting that `never` unsets. `Values::get_optional` has handled that word, so here it appears
/// only in the remedy.
pub(super) fn duration_or_never(text: &str) -> Result<Duration, ConfigError> {
    duration(text).map_err(|flaw| flaw.or_remedy("\"never\""))
}

pub(super) fn on_exit(text: &str) -> Result<OnExit, ConfigError> {
    let known = [("leave", OnExit::Leave), ("stay", OnExit::Stay), ("restart", OnExit::Restart)];
    one_of(text, &known)
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, ConfigError> {
    let known = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    one_of(&text.to_ascii_lowercase(), &known)
}

pub(super) fn log_level(text: &str) -> Result<String, ConfigError> {
    // `Targets` takes a misspelt level for the name of a target, so the level of each part is checked as well.
    let has_level = |part: &str| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        level.trim().parse::<LevelFilter>().is_ok()
    };
    if text.split(',').all(has_level) && text.parse::<Targets>().is_ok() {
        return Ok(text.to_owned());
    }
    Err(ConfigError::without_key("is not a level")
        .remedy("write error, warn, info, debug or trace, also for a part: info,bellwether=debug"))
}

/// Returns the address at which processes on this machine reach a listener at `address`: for 0.0.0.0 and `::`, the loopback
/// address.
pub fn on_this_machine(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// Returns the host of a URL, in brackets if it is an IPv6 address, and its port. Returns `None` if the host is missing, if
/// the URL has a user name, or if the port is not a number.
pub fn host_and_port(uri: &Uri) -> Option<(&str, Option<u16>)> {
    let authority = uri.authority()?;
    let host = authority.host();
    let port = uri.port_u16();
    let whole = match port {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    (!host.is_empty() && authority.as_str() == whole).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_the_environment_has_them() {
        let told = [("zone", "a"), ("version", "1=4")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(labels("zone=a, version=1=4").unwrap(), BTreeMap::from(told));
        for wrong in ["zone", "=a", "zone=a,", "zone=a,b", "{\"a\":1}"] {
            assert!(labels(wrong).unwrap_err().to_string().contains("write KEY=VALUE"), "{wrong}");
        }
    }

    /// Otherwise the last one would win, and nobody would notice.
    #[test]
    fn a_label_that_is_there_twice_is_an_error_that_names_it() {
        let error = labels("zone=a,version=1,zone=b").unwrap_err().to_string();
        assert!(error.contains("\"zone\" twice"), "{error}");
    }

    #[test]
    fn an_address_may_be_written_as_other_programs_have_it() {
        for (text, meant) in [
            (":4040", "0.0.0.0:4040"),
            ("localhost:4040", "127.0.0.1:4040"),
            ("[::1]:4040", "[::1]:4040"),
        ] {
            assert_eq!(listen_at(text).unwrap().to_string(), meant);
            assert_eq!(probe_address(text).unwrap().to_string(), meant);
        }
        for wrong in [":", ":x", "::1:4040", "4040", "localhost", "elsewhere:4040"] {
            assert!(listen_at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_are_the_same_after_they_were_one_text() {
        let told = [("zone", "a,b=c"), ("empty", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let told = BTreeMap::from(told);
        assert_eq!(labels(&labels_as_text(&told)).unwrap(), told);
        assert_eq!(shown_labels(&labels_as_text(&told)), "empty=,zone=a,b=c");
        assert_eq!(labels("").unwrap(), BTreeMap::new());
    }
}
