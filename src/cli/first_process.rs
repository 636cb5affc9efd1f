//! Finds the listen address of the sidecar that runs as process 1 of this container, so that a command in the container
//! needs no `--url`.

use super::{Cli, sources};
use crate::config::{Listen, table};
use clap::FromArgMatches;
use std::fs;
use std::path::Path;

/// Returns the listen address of process 1. It is found in the command line and the configuration file of process 1,
/// and in the environment of this process, which is usually the same as that of process 1. Returns `None` if process 1
/// is not a sidecar.
pub(super) fn listen() -> Option<Listen> {
    listen_of(&fs::read_to_string("/proc/1/cmdline").ok()?)
}

/// Parses a command line in the kernel's format, with a zero byte after each argument.
fn listen_of(line: &str) -> Option<Listen> {
    let arguments: Vec<&str> = line.strip_suffix('\0')?.split('\0').collect();
    if Path::new(arguments.first()?).file_name()? != env!("CARGO_PKG_NAME") {
        return None;
    }
    let matches = super::command().try_get_matches_from(arguments).ok()?;
    let (Cli::Run(file) | Cli::Exec { file, .. }) = Cli::from_arg_matches(&matches).ok()? else {
        return None;
    };
    let (_, matches) = matches.subcommand()?;
    sources::values(file.config, matches).ok()?.get(&table::LISTEN).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn listens(arguments: &[&str]) -> Option<String> {
        let line: String = arguments.iter().map(|argument| format!("{argument}\0")).collect();
        listen_of(&line).map(|listen| listen.to_string())
    }

    #[test]
    fn a_sidecar_says_by_its_flag_or_its_file_where_it_listens() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"[http]\nlisten = \"127.0.0.1:6060\"\n").unwrap();
        let config = file.path().to_str().unwrap();
        let flag = "--listen=127.0.0.1:5050";
        for (arguments, place) in [
            (&["/bellwether", "run", flag][..], "127.0.0.1:5050"),
            (&["bellwether", "run", "--config", config], "127.0.0.1:6060"),
            (&["bellwether", "run", "--config", config, flag], "127.0.0.1:5050"),
            (&["/bellwether", "exec", "--listen", "unix:/a", "--", "x", flag], "unix:/a"),
        ] {
            assert_eq!(listens(arguments).as_deref(), Some(place), "{arguments:?}");
        }
    }

    #[test]
    fn what_is_no_sidecar_listens_nowhere() {
        let flag = "--listen=127.0.0.1:5050";
        for arguments in [
            &[][..],
            &["/sbin/init", "run", flag],
            &["/bellwether"],
            &["/bellwether", "leader"],
            &["/bellwether", "check-config", flag],
            &["/bellwether", "run", "--listen=nowhere"],
            &["/bellwether", "run", "--config=/does/not/exist"],
        ] {
            assert_eq!(listens(arguments), None, "{arguments:?}");
        }
    }
}
