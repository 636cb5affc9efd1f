//! Parses the connect string, the election's path and the prefix of its znodes.

use super::error::ConfigError;
use super::parse::host_and_port;
use std::net::Ipv6Addr;

/// A parsed connect string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// `host:port,host:port`.
    pub hosts: String,
    /// The chroot: a path, or empty.
    pub chroot: String,
}

/// Parses a connect string, `host:port,host:port/chroot`.
pub(super) fn parse(text: &str) -> Result<Servers, ConfigError> {
    servers(text.trim()).ok_or_else(|| match text.contains('@') {
        // The text before an @ may contain a password, so the error must not show it.
        true => ConfigError::without_key("is not a connect string, and has an @")
            .remedy("user and password belong in zookeeper.credentials_file")
            .hiding_value(),
        false => ConfigError::without_key("is not a connect string")
            .remedy("write host:port,host:port/chroot, such as zk-0:2181,zk-1:2181,[fd00::1]:2181"),
    })
}

fn servers(text: &str) -> Option<Servers> {
    let (hosts, chroot) = text.split_at(text.find('/').unwrap_or(text.len()));
    let chroot = if chroot == "/" { "" } else { chroot };
    if !chroot.is_empty() && !is_path(chroot) || chroot.contains(',') {
        return None;
    }
    let mut with_ports = vec![];
    for host in hosts.split(',') {
        let uri = host.trim().parse().ok()?;
        let (name, port) = host_and_port(&uri)?;
        let port = port.unwrap_or(2181);
        let is_host = match name.starts_with('[') {
            true => name.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok(),
            false => true,
        };
        if !is_host || port == 0 {
            return None;
        }
        with_ports.push(format!("{name}:{port}"));
    }
    Some(Servers { hosts: with_ports.join(","), chroot: chroot.to_owned() })
}

/// Parses the election's path, below the chroot.
pub(super) fn parse_election(text: &str) -> Result<String, ConfigError> {
    if text == "/" {
        return Err(ConfigError::without_key("holds all of ZooKeeper")
            .remedy("give the election a path of its own, such as \"/election\""));
    }
    if is_path(text) {
        return Ok(text.to_owned());
    }
    Err(ConfigError::without_key(NOT_A_PATH).remedy("write a path such as \"/election\""))
}

/// Parses the path that contains the znodes of locks, barriers and values, below the chroot. The path is empty for `/`.
/// Returns `None` for an empty text, which switches recipes off.
pub(super) fn parse_root(text: &str) -> Result<Option<String>, ConfigError> {
    match text {
        "" => Ok(None),
        "/" => Ok(Some(String::new())),
        text if is_path(text) => Ok(Some(text.to_owned())),
        _ => Err(ConfigError::without_key(NOT_A_PATH)
            .remedy("write a path such as \"/\", or \"\" to switch recipes off")),
    }
}

/// Parses the prefix of the names of the members' znodes.
pub(super) fn parse_prefix(text: &str) -> Result<String, ConfigError> {
    let is_valid = !text.is_empty()
        && text.len() <= 200
        && !text.contains('/')
        && !text.chars().any(|c| is_refused(c) || c.is_whitespace());
    if is_valid {
        return Ok(text.to_owned());
    }
    Err(ConfigError::without_key("cannot begin a znode's name")
        .remedy("use visible characters without \"/\", such as \"leader_\""))
}

const NOT_A_PATH: &str = "must be a path that ZooKeeper accepts: it starts with \"/\" and does not end with it, has no \
                       part that is empty, \".\" or \"..\", and is not in /zookeeper";

/// Returns whether members may create znodes at this path: ZooKeeper accepts it, and it is neither `/` nor in `/zookeeper`,
/// which ZooKeeper uses itself.
fn is_path(path: &str) -> bool {
    let Some(below) = path.strip_prefix('/') else { return false };
    below.split('/').all(|part| !["", ".", ".."].contains(&part))
        && below.split('/').next() != Some("zookeeper")
        && !path.chars().any(is_refused)
}

/// Returns whether ZooKeeper rejects the character in a path.
fn is_refused(c: char) -> bool {
    // ZooKeeper checks each unit of UTF-16 and rejects surrogates, and thus every character above U+FFFF.
    c > '\u{ffff}'
        || matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{f000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_port_has_zookeepers_own() {
        let servers = parse("a:1,[::1]:2,c/deep/root").unwrap();
        assert_eq!(servers.hosts, "a:1,[::1]:2,c:2181");
        assert_eq!(servers.chroot, "/deep/root");
        assert_eq!(parse("a:1/").unwrap().chroot, "");
    }

    #[test]
    fn blanks_around_a_server_are_no_part_of_it() {
        let servers = parse(" zk-0:2181, zk-1 ,zk-2:2181/root\n").unwrap();
        assert_eq!(servers.hosts, "zk-0:2181,zk-1:2181,zk-2:2181");
        assert_eq!(servers.chroot, "/root");
    }

    #[test]
    fn what_is_no_connect_string_is_refused_and_a_password_in_it_not_repeated() {
        let servers = ["", "a:0", "a:x", ":1", "a:1,,b:2", "a:1/../b", "::1:2181", "a b:1"];
        for text in servers.into_iter().chain(["a:+1", "[zz]:1", "a:1/b,c:1"]) {
            assert!(parse(text).is_err(), "{text}");
        }
        let error =
            parse("app:hush@h:1").unwrap_err().with_value("zookeeper.servers", "app:hush@h:1");
        assert!(!error.to_string().contains("hush"), "{error}");
    }

    #[test]
    fn what_is_no_path_and_no_prefix_is_refused() {
        for path in
            ["", "x", "/", "/a/", "/a//b", "/a/./b", "/..", "/a\u{1}", "/zookeeper/x", "/🐑"]
        {
            assert!(parse_election(path).is_err(), "{path}");
        }
        for prefix in ["", "a/b", "a b", "\u{0}"] {
            assert!(parse_prefix(prefix).is_err(), "{prefix}");
        }
    }
}
