//! The keytab, and when the KDC may be asked with it.

use super::code;
use crate::config::ConfigError;
use crate::config::security::Kerberos;
use crate::config::table::KERBEROS_KEYTAB;
use crate::files::{self, Size};
use ::zookeeper::GssapiError;
use recipes::Moment;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

/// The first two bytes of a keytab, for the two versions of its format.
const KEYTAB_MAGIC: [[u8; 2]; 2] = [[5, 1], [5, 2]];

/// The pause after which the KDC is asked again with a keytab that it refused as a failed login. Each member adds up to half of
/// the pause at random.
///
/// Suppose an administrator gives the principal another key, and the new keytab reaches the members minutes later. The KDC
/// counts each attempt with the old keytab, for all members together, and locks the principal after a few (`-maxfailure`).
const REFUSED_PAUSE: Duration = Duration::from_secs(60 * 60);

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
        let pause = match error.code() {
            code::WRONG_KEY | code::PREAUTHENTICATION_FAILED => REFUSED_PAUSE,
            code::CLIENT_REVOKED
            | code::CLIENT_EXPIRED
            | code::KEY_EXPIRED
            | code::CLIENT_UNKNOWN => UNUSABLE_PAUSE,
            // This error says nothing about the keytab or the principal, so an earlier refusal still counts.
            _ => return,
        };
        // Lengthen the pause at random, so that members with the same keytab do not ask all at once.
        let ask_again_at = now.after(pause.mul_f64(1.0 + fastrand::f64() / 2.0));
        self.0 = Some(Refusal { keytab, error: error.clone(), ask_again_at });
    }
}

/// Checks the keytab, as far as possible without the KDC.
pub(super) fn check(settings: &Kerberos) -> Result<(), ConfigError> {
    let Some(keytab) = &settings.keytab else { return Ok(()) };
    read(keytab).map(drop).map_err(|flaw| flaw.in_file(KERBEROS_KEYTAB.key(), keytab))
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

#[cfg(test)]
mod tests {
    use super::*;
    use ::zookeeper::GssapiCredentials;

    #[test]
    fn a_refused_keytab_is_not_shown_to_the_kdc_again_before_it_has_changed() {
        // No error with a code of our choice can be made: the gate is told what to do with any by its pause.
        let error = GssapiCredentials::acquire(Some("a\0"), &[]).err().unwrap();
        let mut gate = KeytabGate::default();
        let start = Moment(Duration::from_secs(7));
        gate.note([1; 32], Some(&error), start);
        assert!(gate.refusal([1; 32], start).is_none(), "that says nothing of the keytab");

        let ask_again_at = start.after(REFUSED_PAUSE);
        gate.0 = Some(Refusal { keytab: [1; 32], error: error.clone(), ask_again_at });
        let later = |seconds| start.after(Duration::from_secs(seconds));
        assert!(gate.refusal([1; 32], later(3599)).is_some());
        assert!(gate.refusal([2; 32], later(1)).is_none(), "it has been replaced");
        assert!(gate.refusal([1; 32], later(3600)).is_none(), "the KDC may have changed");
        gate.note([1; 32], Some(&error), later(3600));
        assert!(gate.0.is_some(), "a KDC that is away does not lift it");
        gate.note([1; 32], None, later(3601));
        assert!(gate.0.is_none());
    }
}
