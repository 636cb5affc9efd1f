//! Parsers of single values, for the table of settings.

use super::Listen;
use super::error::ConfigError;
use crate::files::{self, Size};
use clap::ValueEnum;
use hyper::Uri;
use recipes::election::Priority;
use recipes::{ForeignClient, MemberId};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Value;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Parses a duration.
///
/// # Errors
/// The problem and the remedy.
pub fn duration(text: &str) -> Result<Duration, ConfigError> {
    let allowed = Duration::from_millis(1)..=Duration::from_secs(86_400);
    let duration = humantime::parse_duration(text).ok().filter(|span| allowed.contains(span));
    duration.ok_or_else(|| {
        ConfigError::without_key("must be a duration from 1ms to 1 day")
            .remedy("write 500ms, 10s or 2m")
    })
}

/// Parses a text that must be the word for one of the variants.
pub(super) fn one_of<T: ValueEnum>(text: &str) -> Result<T, ConfigError> {
    one_of_words(text, T::value_variants().iter().map(|value| (word_for(value), value.clone())))
}

/// Parses a text that must be one of these words, and returns the value of that word.
pub(super) fn one_of_words<T>(
    text: &str,
    known: impl IntoIterator<Item = (impl AsRef<str>, T)>,
) -> Result<T, ConfigError> {
    let mut words = vec![];
    for (word, value) in known {
        if word.as_ref() == text {
            return Ok(value);
        }
        words.push(format!("{:?}", word.as_ref()));
    }
    Err(ConfigError::without_key(format!("must be {}", words.join(" or "))))
}

/// Returns the word for this value: the inverse of [`one_of`].
pub(super) fn word_for(value: &impl ValueEnum) -> String {
    let word = value.to_possible_value().expect("no variant is without a word");
    word.get_name().to_owned()
}

/// Accepts any text.
pub(super) fn text(text: &str) -> Result<String, ConfigError> {
    Ok(text.to_owned())
}

/// Parses a file name. An empty name is an error: a file with a secret must not be left out by mistake.
pub(super) fn file(text: &str) -> Result<PathBuf, ConfigError> {
    if text.is_empty() {
        return Err(ConfigError::without_key("is empty").remedy("name a file, or leave it out"));
    }
    Ok(text.into())
}

/// Parses a name in Kerberos, such as a principal.
pub(super) fn kerberos_name(text: &str) -> Result<String, ConfigError> {
    if text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(ConfigError::without_key("is not a name in Kerberos")
            .remedy("write visible characters without spaces, such as app@EXAMPLE.ORG"));
    }
    Ok(text.to_owned())
}

/// Parses the name of another client library, such as Curator, in whose elections this member takes part. Members
/// support these four only. The word `none` does not get here: it is the default, see `Values::get_optional`.
pub(super) fn foreign_client(text: &str) -> Result<ForeignClient, ConfigError> {
    let clients = [
        ForeignClient::CuratorLatch,
        ForeignClient::CuratorSelector,
        ForeignClient::Kazoo,
        ForeignClient::ZookeeperRecipe,
    ];
    one_of_words(text, clients.map(|client| (client.name(), client)))
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

/// Parses labels: a text such as `zone=a,version=1.4`.
pub(super) fn labels(text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut labels = BTreeMap::new();
    // An empty text has no labels, but `split` returns one empty pair.
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        // A pair without `=` gets an empty key, which is an error below.
        let (key, value) = pair.split_once('=').unwrap_or_default();
        let [key, value] = [key.trim(), value.trim()];
        if key.is_empty() {
            let problem = format!("has {pair:?}, which is not a label");
            return Err(ConfigError::without_key(problem)
                .remedy("write KEY=VALUE,KEY=VALUE, such as zone=eu-1,version=1.4"));
        }
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            let problem = format!("has the key {key:?} twice");
            return Err(ConfigError::without_key(problem).remedy("write each key once"));
        }
    }
    Ok(labels)
}

/// Writes labels from the file as the text that [`labels`] parses.
pub(super) fn labels_as_text(value: Value) -> Result<String, ConfigError> {
    let labels: Option<BTreeMap<String, String>> = value.try_into().ok();
    let has_no_separator = |labels: &BTreeMap<String, String>| {
        labels.iter().all(|(key, value)| !key.contains(['=', ',']) && !value.contains(','))
    };
    let Some(labels) = labels.filter(has_no_separator) else {
        return Err(ConfigError::without_key("must be a table of texts without commas")
            .remedy("write such as { zone = \"eu-1\" }"));
    };
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Ok(pairs.join(","))
}

/// Parses the address of the API's listener: `IP:PORT`, or `unix:` and the path of a socket.
pub(super) fn listen_at(text: &str) -> Result<Listen, ConfigError> {
    let Some(path) = text.strip_prefix("unix:") else {
        return socket_address(text).map(Listen::Tcp);
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

/// Parses a group that is given by number or by name. Names are looked up only in `/etc/group`, because a static binary
/// cannot use the directories of groups, such as LDAP, that the C library asks.
pub(super) fn group(text: &str) -> Result<u32, ConfigError> {
    let groups = files::read(Path::new("/etc/group"), Size::Certificates).unwrap_or_default();
    let number = text.parse().ok().or_else(|| number_in(&String::from_utf8_lossy(&groups), text));
    number.ok_or_else(|| {
        ConfigError::without_key("is not in /etc/group").remedy("write the group's number")
    })
}

/// Returns the number of the group with this name in the text of `/etc/group`.
fn number_in(groups: &str, group: &str) -> Option<u32> {
    // A line is `name:password:number:members`.
    groups.lines().find_map(|line| match line.split(':').collect::<Vec<_>>()[..] {
        [name, _, number, ..] if name == group => number.parse().ok(),
        _ => None,
    })
}

/// Parses `IP:PORT`, `:PORT` or `localhost:PORT`.
pub(super) fn socket_address(text: &str) -> Result<SocketAddr, ConfigError> {
    let whole = match text.split_once(':') {
        // As in other programs, an empty host means all addresses of this machine.
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        Some(_) | None => text.to_owned(),
    };
    whole.parse().map_err(|_| {
        ConfigError::without_key("is not an address")
            .remedy("write IP:PORT, such as 127.0.0.1:4040")
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

/// Parses a duration for a setting whose default is `never`. `Values::get_optional` has handled that word, so here it
/// appears only in the remedy.
pub(super) fn duration_or_never(text: &str) -> Result<Duration, ConfigError> {
    duration(text).map_err(|_| {
        ConfigError::without_key("must be a duration from 1ms to 1 day")
            .remedy("write 500ms, 10s or 2m; or \"never\"")
    })
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
        for wrong in ["zone", "=a", "zone=a,", "zone=a,b"] {
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
            assert_eq!(socket_address(text).unwrap().to_string(), meant);
        }
        for wrong in [":", ":x", "::1:4040", "4040", "localhost", "elsewhere:4040"] {
            assert!(listen_at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_are_the_same_after_they_were_one_text() {
        let told = [("zone", "a=c"), ("empty", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let told = BTreeMap::from(told);
        let written = Value::try_from(&told).unwrap();
        assert_eq!(labels_as_text(written).unwrap(), "empty=,zone=a=c");
        assert_eq!(labels("empty=,zone=a=c").unwrap(), told);
        assert_eq!(labels("").unwrap(), BTreeMap::new());
    }

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nshop:x:1001:a,b\n+broken\nshop2:x:y:\n";
        assert_eq!(number_in(groups, "shop"), Some(1001));
        for other in ["sho", "x", "1001", "+broken", "shop2", ""] {
            assert_eq!(number_in(groups, other), None, "{other}");
        }
    }
}
