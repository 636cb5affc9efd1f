//! The keytab: the principals of its keys, and when the KDC may be asked with it.

use super::code;
use crate::config::security::Kerberos;
use crate::config::table::KERBEROS_KEYTAB;
use crate::config::{ConfigError, shown_path};
use crate::files::{self, Size};
use ::zookeeper::GssapiError;
use recipes::Moment;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

/// The first two bytes of a keytab, for the two versions of its format.
const KEYTAB_MAGIC: [[u8; 2]; 2] = [[5, 1], [5, 2]];

/// The pauses after which the KDC is asked again with a keytab that it refused as a failed login: after the first refusal,
/// and after each further one. Each member adds up to half of the pause at random.
///
/// Suppose an administrator gives the principal another key, and the new keytab reaches the members minutes later. The KDC
/// counts each attempt with the old keytab, for all members together, and locks the principal after a few (`-maxfailure`).
const REFUSED_PAUSES: [Duration; 2] = [Duration::from_secs(15 * 60), Duration::from_secs(60 * 60)];

/// The pause after which the KDC is asked again about a principal that is locked, expired or unknown to it. The pause is
/// short, because the KDC does not count such attempts as failed logins.
const UNUSABLE_PAUSE: Duration = Duration::from_secs(60);

/// Identifies the content of a keytab.
type Fingerprint = [u8; 32];

/// Prevents members with an outdated keytab from asking the KDC so often that it locks their common principal.
#[derive(Default)]
pub(super) struct KeytabGate(Option<Refusal>);

/// The KDC's refusal of a keytab.
struct Refusal {
    keytab: Fingerprint,
    error: GssapiError,
    /// The number of times that the KDC has refused this keytab.
    times: usize,
    ask_again_at: Moment,
}

impl KeytabGate {
    /// Returns the error with which the KDC has refused this keytab, if the KDC must not be asked with it again yet.
    pub(super) fn refusal(&self, keytab: Fingerprint, now: Moment) -> Option<&GssapiError> {
        let refusal = self.0.as_ref()?;
        if refusal.keytab == keytab && now < refusal.ask_again_at {
            return Some(&refusal.error);
        }
        None
    }

    /// Notes the KDC's answer to this keytab: an error, or `None` if it has issued tickets.
    pub(super) fn note(&mut self, keytab: Fingerprint, error: Option<&GssapiError>, now: Moment) {
        let Some(error) = error else {
            self.0 = None;
            return;
        };
        let times = match &self.0 {
            Some(refusal) if refusal.keytab == keytab => refusal.times,
            _ => 0,
        };
        let pause = match error.code() {
            code::WRONG_KEY | code::PREAUTHENTICATION_FAILED => {
                REFUSED_PAUSES[times.min(REFUSED_PAUSES.len() - 1)]
            }
            code::CLIENT_REVOKED
            | code::CLIENT_EXPIRED
            | code::KEY_EXPIRED
            | code::CLIENT_UNKNOWN => UNUSABLE_PAUSE,
            // This error says nothing about the keytab or the principal, so an earlier refusal still counts.
            _ => return,
        };
        // Lengthen the pause at random, so that members with the same keytab do not ask all at once.
        let ask_again_at = now.after(pause.mul_f64(1.0 + fastrand::f64() / 2.0));
        self.0 = Some(Refusal { keytab, error: error.clone(), times: times + 1, ask_again_at });
    }
}

/// Checks the keytab, as far as possible without the KDC. Returns a warning if it seems to belong to another principal.
pub(super) fn check(settings: &Kerberos) -> Result<Option<String>, ConfigError> {
    let Some(keytab) = settings.keytab.as_deref() else { return Ok(None) };
    let content = read(keytab).map_err(|flaw| flaw.in_file(KERBEROS_KEYTAB.key(), keytab))?;
    Ok(explain_missing_key(settings, keytab, &content))
}

/// Returns the fingerprint of the current keytab.
///
/// # Errors
/// The reason why the keytab cannot be used, with the name of the setting and of the file.
pub(super) fn fingerprint(keytab: &Path) -> Result<Fingerprint, String> {
    match read(keytab) {
        Ok(content) => Ok(Sha256::digest(&*content).into()),
        Err(flaw) => Err(flaw.in_file(KERBEROS_KEYTAB.key(), keytab).to_string()),
    }
}

/// Explains that the keytab has no key of the member's principal, and whose keys it has. Returns `None` if it has such
/// a key, or if that cannot be found out.
pub(super) fn missing_key(settings: &Kerberos) -> Option<String> {
    let keytab = settings.keytab.as_deref()?;
    explain_missing_key(settings, keytab, &read(keytab).ok()?)
}

/// Does the work of [`missing_key`] with the keytab's content.
fn explain_missing_key(settings: &Kerberos, keytab: &Path, content: &[u8]) -> Option<String> {
    let principals = principals(content)?;
    let own = settings.principal.as_deref()?;
    for principal in &principals {
        let is_own = match principal.rsplit_once('@') {
            // If no realm is configured, our principal belongs to the default realm, which may be any.
            Some((name, _)) if !own.contains('@') => name == own,
            _ => principal == own,
        };
        if is_own {
            return None;
        }
    }
    let found = match principals.is_empty() {
        true => "it has none at all".into(),
        false => format!("it has those of {}", principals.join(", ")),
    };
    let key = KERBEROS_KEYTAB.key();
    Some(format!(
        "{key}, {}, has no key of {own}: {found} (klist -k shows them)",
        shown_path(keytab)
    ))
}

/// Reads the file, and checks that it is a keytab.
fn read(keytab: &Path) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    let content = files::read(keytab, Size::Certificates).map_err(ConfigError::without_key)?;
    let content = Zeroizing::new(content);
    let flaw = match content.first_chunk() {
        Some(magic) if KEYTAB_MAGIC.contains(magic) => return Ok(content),
        _ if content.is_empty() => "is empty",
        _ => "is not a keytab",
    };
    Err(ConfigError::without_key(flaw).remedy("have it made by ktadd or ktutil"))
}

/// Returns the principals of the keys, each once; `None` if the format is unknown or the content is damaged.
fn principals(content: &[u8]) -> Option<Vec<String>> {
    // Of the two versions, the first is not parsed: its byte order is that of the machine that wrote the file.
    let mut rest = content.strip_prefix(&KEYTAB_MAGIC[1])?;
    let mut found = vec![];
    while !rest.is_empty() {
        let length = i32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
        let mut entry = take(&mut rest, length.unsigned_abs() as usize)?;
        // A negative length marks a hole, which a deleted key has left.
        if length <= 0 {
            continue;
        }
        let components = number(&mut entry)?;
        let realm = text(&mut entry)?;
        let name = (0..components).map(|_| text(&mut entry)).collect::<Option<Vec<_>>>()?;
        let principal = format!("{}@{realm}", name.join("/"));
        if !found.contains(&principal) {
            found.push(principal);
        }
    }
    Some(found)
}

/// Takes this many bytes from the front of `rest`; `None` if there are fewer.
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

/// Takes a number of two bytes.
fn number(rest: &mut &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(take(rest, 2)?.try_into().ok()?))
}

/// Takes a text, in front of which there is its length.
fn text(rest: &mut &[u8]) -> Option<String> {
    let length = number(rest)?;
    String::from_utf8(take(rest, length.into())?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::zookeeper::GssapiCredentials;

    /// A keytab with a key of each of these, and a hole.
    fn keytab(principals: &[&str]) -> Vec<u8> {
        let counted = |text: &str| [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat();
        let mut content = vec![5, 2];
        content.extend((-3_i32).to_be_bytes());
        content.extend([0; 3]);
        for principal in principals {
            let (name, realm) = principal.split_once('@').unwrap();
            let components: Vec<_> = name.split('/').collect();
            let mut entry = (components.len() as u16).to_be_bytes().to_vec();
            entry.extend(counted(realm));
            components.iter().for_each(|component| entry.extend(counted(component)));
            // The name's type, the time, the version, and the key.
            entry.extend([0; 9]);
            entry.extend([0, 18, 0, 2, 7, 7]);
            content.extend((entry.len() as i32).to_be_bytes());
            content.extend(entry);
        }
        content
    }

    #[test]
    fn a_keytab_without_a_key_of_the_principal_is_noticed() {
        let lacks = |principal: &str, content: &[u8]| {
            let settings = Kerberos {
                principal: Some(principal.into()),
                keytab: None,
                service: "zookeeper".into(),
            };
            explain_missing_key(&settings, Path::new("/k"), content)
        };
        let both = keytab(&["app@R", "zookeeper/zk-0@R", "app@R"]);
        for own in ["app@R", "app", "zookeeper/zk-0@R"] {
            assert_eq!(lacks(own, &both), None);
        }
        let other = lacks("web@R", &both).unwrap();
        assert!(
            other.contains("has no key of web@R: it has those of app@R, zookeeper/zk-0@R ("),
            "{other}"
        );
        assert!(lacks("app@Q", &both).is_some());
        assert!(lacks("app@R", &keytab(&[])).unwrap().contains("it has none at all"));
        // What is not understood is for Kerberos to judge.
        assert_eq!(lacks("web@R", &both[..both.len() - 1]), None);
        assert_eq!(lacks("web@R", &[5, 1, 7]), None);
    }

    #[test]
    fn a_refused_keytab_is_not_shown_to_the_kdc_again_before_it_has_changed() {
        // No error with a code of our choice can be made: the gate is told what to do with any by its pause.
        let error = GssapiCredentials::acquire(Some("a\0"), &[]).err().unwrap();
        let mut gate = KeytabGate::default();
        let start = Moment(Duration::from_secs(7));
        gate.note([1; 32], Some(&error), start);
        assert!(gate.refusal([1; 32], start).is_none(), "that says nothing of the keytab");

        let refusal = |times| Refusal {
            keytab: [1; 32],
            error: error.clone(),
            times,
            ask_again_at: start.after(REFUSED_PAUSES[0]),
        };
        gate.0 = Some(refusal(1));
        let later = |seconds| start.after(Duration::from_secs(seconds));
        assert!(gate.refusal([1; 32], later(899)).is_some());
        assert!(gate.refusal([2; 32], later(1)).is_none(), "it has been replaced");
        assert!(gate.refusal([1; 32], later(900)).is_none(), "the KDC may have changed");
        gate.note([1; 32], Some(&error), later(900));
        assert!(gate.0.is_some(), "a KDC that is away does not lift it");
        gate.note([1; 32], None, later(901));
        assert!(gate.0.is_none());
    }
}
