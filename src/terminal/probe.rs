//! Answers yes or no with the exit code, for probes in an image without a shell.

use super::text::visible;
use super::{ClientError, NO, Sidecar, print};
use crate::api::{IS_LEADER, LIVEZ, Leadership, READYZ};
use clap::ValueEnum;
use hyper::StatusCode;

/// The question of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Probe {
    /// Does this member lead at this very moment?
    IsLeader,
    /// Is it in the queue and know a leader?
    Ready,
    /// Is its process sound, with ZooKeeper or without?
    Live,
}

/// Asks the question of the probe. Returns an error unless the answer is yes.
pub(super) async fn probe(
    sidecar: &Sidecar,
    probe: Probe,
    verbose: bool,
) -> Result<(), ClientError> {
    let path = match probe {
        Probe::IsLeader => IS_LEADER.path.to_owned(),
        Probe::Ready => format!("{}?verbose", READYZ.path),
        Probe::Live => format!("{}?verbose", LIVEZ.path),
    };
    let answer = sidecar.get(path).answer().await?;
    let passed = match answer.status {
        StatusCode::OK => true,
        StatusCode::SERVICE_UNAVAILABLE => false,
        other => return Err(answer.nonsense(&format!("it says {other}"))),
    };
    let why = match probe {
        Probe::IsLeader => {
            let leadership: Leadership = answer.parsed()?;
            if leadership.is_leader != passed {
                return Err(answer.nonsense("it contradicts itself"));
            }
            leadership.reason
        }
        Probe::Ready | Probe::Live => match checks(&answer.text(), passed) {
            Some(checks) => checks,
            None => return Err(answer.nonsense("not a list of checks")),
        },
    };
    match passed {
        true if verbose => print(&(visible(&why) + "\n")),
        true => Ok(()),
        false => Err(ClientError::new(NO, visible(&why))),
    }
}

/// Returns the checks in one line: all of them if all passed, otherwise those that failed. Returns `None` if the text is
/// not a list of checks.
fn checks(text: &str, passed: bool) -> Option<String> {
    let sign = if passed { "[+]" } else { "[-]" };
    let chosen: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(sign)).collect();
    (!chosen.is_empty()).then(|| chosen.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_are_returned_in_one_line() {
        let text = "[+]queue ok: in the queue\n[-]leader failed: none\nreadyz check failed\n";
        assert_eq!(checks(text, false).unwrap(), "leader failed: none");
        let text = "[+]queue ok: in the queue\n[+]leader ok: a leads\nreadyz check passed\n";
        assert_eq!(checks(text, true).unwrap(), "queue ok: in the queue; leader ok: a leads");
        assert_eq!(checks(text, false), None);
        for nonsense in ["", "ok", "check passed", "<html>"] {
            assert_eq!(checks(nonsense, true), None);
        }
    }
}
