//! The file in which a process saves its session for the next one, so that a restart does not look like a crash.
//!
//! A lock on the file prevents two processes from using the session at once. The kernel releases it when the last process
//! that has the file open ends. A file that replaced this one would not be locked, so the file is written in place: with one
//! call, within one page, and with a checksum that shows that it is complete.

use crate::api::LeaseClock;
use crate::clock::Clock;
use crate::config::Settings;
use ::zookeeper::SessionInfo;
use base64::prelude::{BASE64_STANDARD, Engine};
use recipes::{Moment, SessionId, SessionRecord};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tracing::{info, warn};

/// The format of the file; a file with another version is not read.
const VERSION: u32 = 1;
/// The length of the file, one page: the write of a page is complete or does not happen, whenever the process is killed.
const SIZE: usize = 4096;
/// The longest password of a session that is accepted from a file, in bytes. ZooKeeper's passwords have 16.
const LONGEST_PASSWORD: usize = 256;

/// The session file of this process, locked.
pub struct SessionFile {
    file: File,
    path: PathBuf,
    inode: u64,
    owner: SessionOwner,
    state: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    /// The session that was last written, or found in the file; `None` if there is none.
    session: Option<SavedSession>,
    /// The reason why the last attempt to write failed, as it was logged; `None` if the attempt succeeded.
    problem: Option<String>,
}

/// The session file, with its content at the start of this process.
pub struct OpenedSessionFile {
    pub file: SessionFile,
    /// The session of the previous process, if the file has one that can be used.
    pub former: Option<SavedSession>,
    /// The reason why the content cannot be used, with the name of the file. The next save overwrites the content.
    pub flaw: Option<String>,
}

/// The owner of the session. A process resumes the session only if all of these fields have the same values for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SessionOwner {
    servers: String,
    path: String,
    member: String,
    host: String,
    /// Identifies the clock of the saved moments, by the boot and the time namespace.
    clock: String,
}

#[derive(Serialize, Deserialize)]
struct SessionFileJson {
    version: u32,
    owner: SessionOwner,
    /// The inode of the file, which is different in a copy.
    inode: u64,
    session: Option<SavedSession>,
}

/// A session as it is saved. It has no `Debug`, because the password is a secret: who has it can take the session over.
#[derive(Clone, Serialize, Deserialize)]
pub struct SavedSession {
    id: i64,
    /// In Base64.
    password: String,
    timeout_ms: u64,
    /// The moment before which the servers certainly do not end the session, if one is known.
    known_until_ns: Option<u64>,
    /// The last index of the member, from which the next process counts on.
    index: Option<u64>,
    /// When the process last wrote the file, and so was still alive.
    noted_at_ns: u64,
    /// True if the process had begun to close the session.
    pub(crate) is_closing: bool,
    /// The number of restarts of the process that the session had survived by then.
    pub(crate) restarts: u64,
}

impl SessionFile {
    /// Opens this member's file, or creates it, and locks it. The lock lasts until this file and all descriptors from
    /// [`Self::share_lock`] are closed, which the end of a process does as well.
    ///
    /// # Errors
    /// A sentence that names the file, the problem, and how to fix it.
    pub fn open(
        path: &Path,
        settings: &Settings,
        member: &str,
        clock: Clock,
    ) -> Result<OpenedSessionFile, String> {
        Self::open_unnamed(path, settings, member, clock)
            .map_err(|what| format!("zookeeper.session_file {} {what}", path.display()))
    }

    /// Does the work of [`Self::open`]. Its errors follow the name of the file.
    fn open_unnamed(
        path: &Path,
        settings: &Settings,
        member: &str,
        clock: Clock,
    ) -> Result<OpenedSessionFile, String> {
        let file = open_locked(path)?;
        let inode = file.metadata().map_err(cannot_be("read"))?.ino();
        let owner = SessionOwner {
            servers: settings.zookeeper.hosts.clone(),
            path: format!("{}/{}", settings.root, settings.znodes.kind()),
            member: member.to_owned(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            clock: clock_identity()?,
        };
        let mut bytes = vec![];
        (&file).take(SIZE as u64).read_to_end(&mut bytes).map_err(cannot_be("read"))?;
        if !may_be_session_file(&bytes) {
            return Err(
                "is neither empty nor a session file, and would be overwritten: name another"
                    .into(),
            );
        }
        let file = Self { file, path: path.to_owned(), inode, owner, state: Mutex::default() };
        // This leaves room for a session, on which `write` relies.
        file.encode(None).ok_or("cannot hold so long names: shorten zookeeper.servers")?;
        let (former, flaw) = match file.load(&bytes, clock.now()) {
            Ok(former) => (former, None),
            Err(flaw) => (None, Some(format!("zookeeper.session_file {} {flaw}", path.display()))),
        };
        Ok(OpenedSessionFile { file, former, flaw })
    }

    /// Returns a descriptor of the locked file, for a process that must hold the lock as well.
    ///
    /// # Errors
    /// The limit of open files is reached.
    pub fn share_lock(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Saves a session that was just granted, before anything is created in it.
    pub(crate) fn save(&self, session: &SessionInfo, timeout: Duration, now: Moment) {
        let saved = SavedSession {
            id: session.id().0,
            password: BASE64_STANDARD.encode(session.password()),
            timeout_ms: millis(timeout),
            known_until_ns: None,
            index: None,
            noted_at_ns: nanos(now),
            is_closing: false,
            restarts: 0,
        };
        self.write(&mut self.state(), Some(saved));
    }

    /// Notes that this process has resumed the session that it found in the file. How long the servers keep that
    /// session is not known until the next heartbeat.
    pub(crate) fn note_taken_over(&self, timeout: Duration, restarts: u64, now: Moment) {
        self.update(|saved| {
            saved.timeout_ms = millis(timeout);
            saved.known_until_ns = None;
            saved.noted_at_ns = nanos(now);
            saved.restarts = restarts;
            true
        });
    }

    /// Saves the current record of the session. Does nothing if the file has a session with another id: only [`Self::save`]
    /// replaces a session.
    pub(crate) fn note(&self, record: SessionRecord, now: Moment) {
        self.update(|saved| {
            if saved.id != record.session.0 {
                return false;
            }
            saved.timeout_ms = millis(record.timeout);
            saved.known_until_ns = record.known_until.map(nanos);
            saved.index = record.index;
            saved.noted_at_ns = nanos(now);
            true
        });
    }

    /// Notes that the session is about to be closed. From then on it may end at any moment, so the next process may only
    /// close it.
    pub(crate) fn note_closing(&self) {
        self.update(|saved| {
            saved.is_closing = true;
            true
        });
    }

    /// Changes the session that is saved, if there is one, and writes it if `change` returns true.
    fn update(&self, change: impl FnOnce(&mut SavedSession) -> bool) {
        let mut state = self.state();
        if let Some(mut saved) = state.session.clone()
            && change(&mut saved)
        {
            self.write(&mut state, Some(saved));
        }
    }

    /// Removes the file, because there is no session to resume. Does nothing if the path leads to another file.
    pub(crate) fn remove(&self) {
        if self.is_in_place()
            && let Err(error) = fs::remove_file(&self.path)
        {
            // The file could not be deleted, so clear it: the next process must not resume an ended session.
            self.write(&mut self.state(), None);
            warn!("cannot remove {}: {error}; it stays, without a session", self.path.display());
        }
    }

    /// Writes the session into the file. If that fails, this member goes on, but the next process cannot resume the session.
    fn write(&self, state: &mut FileState, session: Option<SavedSession>) {
        // This hardly ever fails: `open` has checked that a session fits whose password is as long as ZooKeeper's.
        let encoded =
            self.encode(session.clone()).ok_or_else(|| io::ErrorKind::FileTooLarge.into());
        state.session = session;
        let path = self.path.display();
        let problem = match encoded.and_then(|bytes| self.file.write_all_at(&bytes, 0)) {
            Ok(()) if self.is_in_place() => {
                if state.problem.take().is_some() {
                    info!("{path} is written again");
                }
                return;
            }
            // A file that was removed can still be written, but the next process does not find it.
            Ok(()) => format!("{path} was removed or replaced: the next start makes another"),
            Err(error) => {
                // The old content may be wrong by now. Empty the file, or else remove it, so that no process reads it.
                if self.file.set_len(0).is_err() {
                    let _already_gone = fs::remove_file(&self.path);
                }
                format!("{path} cannot be written: {error}")
            }
        };
        if state.problem.is_none() {
            let problem = format!("a restart will cost the session: {problem}");
            warn!("{problem}");
            state.problem = Some(problem);
        }
    }

    /// Returns why the last attempt to write the file failed.
    pub(crate) fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    /// Returns true if the path still leads to this file.
    fn is_in_place(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode)
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Encodes the content of the file. Returns `None` if it does not fit.
    fn encode(&self, session: Option<SavedSession>) -> Option<Vec<u8>> {
        let owner = self.owner.clone();
        let inode = self.inode;
        let written = SessionFileJson { version: VERSION, owner, inode, session };
        let mut bytes = serde_json::to_vec(&written).expect("texts and numbers are JSON");
        bytes.push(b'\n');
        let checksum = checksum(&bytes);
        bytes.extend(checksum.as_bytes());
        // Before the first session, leave room for one: with a password of `LONGEST_PASSWORD`, a session takes less.
        let room = if written.session.is_none() { 1024 } else { 0 };
        if bytes.len() + room >= SIZE {
            return None;
        }
        bytes.resize(SIZE - 1, b' ');
        bytes.push(b'\n');
        Some(bytes)
    }

    /// Decodes the file's content. Returns the session in it, if there is one, after storing it as `state.session`.
    ///
    /// # Errors
    /// The reason why the content cannot be used: it is damaged, or it was not written by this member since this
    /// machine's last boot. The text follows the name of the file.
    fn load(&self, bytes: &[u8], now: Moment) -> Result<Option<SavedSession>, String> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let damaged = || "is damaged, or no session file".to_owned();
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)? + 1;
        let (text, rest) = bytes.split_at(end);
        if rest.trim_ascii() != checksum(text).as_bytes() {
            return Err(damaged());
        }
        let SessionFileJson { owner, inode, session, .. } = serde_json::from_slice(text)
            .ok()
            .filter(|written: &SessionFileJson| written.version == VERSION)
            .ok_or("is of another version of this program")?;
        let compared = [
            ("is of another connect string", &owner.servers, &self.owner.servers),
            ("is of another path", &owner.path, &self.owner.path),
            ("is of another member", &owner.member, &self.owner.member),
            ("is of another host", &owner.host, &self.owner.host),
        ];
        if let Some((what, saved, ours)) =
            compared.into_iter().find(|(_, saved, ours)| saved != ours)
        {
            return Err(format!("{what}, {saved:?}, and not {ours:?}"));
        }
        if owner.clock != self.owner.clock {
            return Err("is of another boot".into());
        }
        if inode != self.inode {
            return Err("is a copy of another file".into());
        }
        let Some(saved) = session else { return Ok(None) };
        // Within a boot, this clock never goes back, so a moment in the future was read from another clock.
        if saved.noted_at() > now {
            return Err("is of another clock".into());
        }
        let password = BASE64_STANDARD.decode(&saved.password).map_err(|_| damaged())?;
        // The file has a fixed length, so a longer password might not fit when the session is written again.
        if password.len() > LONGEST_PASSWORD {
            return Err(damaged());
        }
        self.state().session = Some(saved.clone());
        Ok(Some(saved))
    }
}

impl SavedSession {
    /// Returns the session for the client library.
    pub(crate) fn session(&self) -> SessionInfo {
        let password = BASE64_STANDARD.decode(&self.password).expect("checked when it was loaded");
        SessionInfo::with_password(::zookeeper::SessionId(self.id), password)
    }

    pub(crate) fn record(&self) -> SessionRecord {
        SessionRecord {
            session: SessionId(self.id),
            timeout: Duration::from_millis(self.timeout_ms),
            known_until: self.known_until_ns.map(|ns| Moment(Duration::from_nanos(ns))),
            index: self.index,
        }
    }

    pub(crate) fn noted_at(&self) -> Moment {
        Moment(Duration::from_nanos(self.noted_at_ns))
    }
}

/// Returns true if nothing is lost when this content is overwritten: it is empty, consists of zeros, or begins as a session
/// file does. Zeros, or a part of a session file, may be left if the machine stopped during a write.
fn may_be_session_file(bytes: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"{\"version\":";
    let shorter = bytes.len().min(BEGINNING.len());
    bytes[..shorter] == BEGINNING[..shorter] || bytes.iter().all(|byte| *byte == 0)
}

/// Opens the file and locks it, provided that the path still leads to it.
fn open_locked(path: &Path) -> Result<File, String> {
    // Between our opening and locking of the file, the process that held the lock may have removed or replaced it. Then
    // the path leads to another file, or to none: try again.
    for _ in 0..8 {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match open(path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err("is a symbolic link: name the file itself".into()),
            Err(error) => {
                return Err(format!(
                    "cannot be opened: {error}. Its directory has to exist, and both have to be writable"
                ));
            }
        };
        let metadata = file.metadata().map_err(cannot_be("read"))?;
        if !metadata.is_file() {
            return Err("is not a regular file: name another".into());
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err("belongs to another user: remove it, or name another".into());
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(
                "can be read or written by others, and holds a secret: remove it, or chmod 600"
                    .into(),
            );
        }
        if metadata.nlink() > 1 {
            return Err("has a second name (a hard link): remove it, or name another".into());
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err("is held by another process, whose session it keeps: end that process and its command, or \
                     name another file"
                    .into());
            }
            Err(error) => return Err(format!("cannot be locked: {error}")),
        }
        if fs::symlink_metadata(path)
            .is_ok_and(|current| (current.dev(), current.ino()) == (metadata.dev(), metadata.ino()))
        {
            return Ok(file);
        }
    }
    Err("is replaced again and again: name another".into())
}

/// Returns the identity of the clock of the saved moments, for [`SessionOwner::clock`].
fn clock_identity() -> Result<String, String> {
    let LeaseClock { boot_id, time_namespace } = LeaseClock::read();
    let boot_id = boot_id.ok_or(
        "may outlive a reboot, which cannot be detected here: there is no /proc/sys/kernel/random/boot_id",
    )?;
    Ok(format!("{boot_id} {}", time_namespace.unwrap_or_default()))
}

/// Returns a function that describes an error, to be passed to `map_err`. `what` is a participle, such as "read".
fn cannot_be<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("cannot be {what}: {error}")
}

fn checksum(text: &[u8]) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.0.as_nanos()).expect("a machine does not run for 584 years")
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Values;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_noted_is_found_by_the_next_process() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("session");
        let now = Clock::system().now();
        let known_until = Some(now.after(SECOND));
        let session = SessionId(7);
        let index = Some(64);
        let record = SessionRecord { session, timeout: 9 * SECOND, known_until, index };
        {
            let OpenedSessionFile { file, former, flaw } = opened(&path);
            assert!(former.is_none() && flaw.is_none());
            save(&file, 7);
            file.note(SessionRecord { session: SessionId(8), ..record }, now);
            file.note(record, now);
        }
        let former = opened(&path).former.expect("it was noted");
        assert_eq!((former.record(), former.noted_at()), (record, now));
        assert_eq!(former.session().password(), b"password");
        assert!(!former.is_closing && former.restarts == 0);
        {
            let OpenedSessionFile { file, .. } = opened(&path);
            file.note_taken_over(8 * SECOND, 1, now);
        }
        let taken = opened(&path).former.expect("it is still there");
        assert_eq!((taken.restarts, taken.record().timeout), (1, 8 * SECOND));
        assert_eq!(taken.record().known_until, None, "until the next heartbeat");
    }

    #[test]
    fn a_session_that_is_being_closed_says_so_also_if_another_process_opened_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("session");
        save(&opened(&path).file, 7);
        opened(&path).file.note_closing();
        assert!(opened(&path).former.expect("it may live").is_closing);
    }

    #[test]
    fn a_file_that_is_removed_under_its_process_is_a_problem() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("session");
        let file = opened(&path).file;
        save(&file, 7);
        assert_eq!(file.problem(), None);
        fs::remove_file(&path).unwrap();
        save(&file, 7);
        let problem = file.problem().unwrap();
        assert!(problem.contains("was removed or replaced"), "{problem}");
    }

    #[test]
    fn a_file_is_one_process_s_until_all_are_gone_that_hold_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("session");
        let first = opened(&path).file;
        assert!(refusal(&path).contains("is held by another process"), "{}", refusal(&path));
        let guard = first.share_lock().unwrap();
        drop(first);
        assert!(refusal(&path).contains("is held by another process"));
        drop(guard);
        opened(&path).file.remove();
        assert!(!path.exists());
    }

    #[test]
    fn only_a_file_of_ours_alone_is_used() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::write(at("open"), "").unwrap();
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink(at("open"), at("link")).unwrap();
        drop(opened(&at("file")));
        fs::hard_link(at("file"), at("name")).unwrap();
        for (path, why) in [
            (at("open"), "can be read or written by others"),
            (at("link"), "is a symbolic link"),
            (at("name"), "has a second name"),
            (home.path().to_owned(), "Is a directory"),
            ("/dev/null".into(), "is not a regular file"),
            (at("none/session"), "cannot be opened"),
        ] {
            assert!(refusal(&path).contains(why), "{}: {}", path.display(), refusal(&path));
        }
        let mode = fs::metadata(at("file")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_damaged_or_anothers_is_warned_of_and_not_taken_up() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("session");
        let other = home.path().join("copy");
        save(&opened(&path).file, 7);
        let whole = fs::read(&path).unwrap();
        assert_eq!(whole.len(), SIZE);
        let warned = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let OpenedSessionFile { former, flaw, .. } = opened(&path);
            assert!(former.is_none());
            flaw.unwrap_or_default()
        };
        assert_eq!(warned(b""), "", "a file that was truncated is a new one");
        for length in [1, 40, 200] {
            assert!(warned(&whole[..length]).contains("is damaged"));
        }
        let mut garbled = whole.clone();
        garbled[60] ^= 1;
        assert!(warned(&garbled).contains("is damaged"));
        assert!(warned(&[0; SIZE]).contains("is damaged"), "the machine stopped as it was written");
        fs::write(&path, b"any text\n").unwrap();
        assert!(refusal(&path).contains("neither empty nor a session file"));
        assert_eq!(fs::read(&path).unwrap(), b"any text\n", "nothing is lost");
        fs::write(&path, b"").unwrap();
        let file = opened(&path).file;
        let long = SavedSession { password: BASE64_STANDARD.encode([0; 600]), ..saved(7) };
        file.write(&mut file.state(), Some(long));
        drop(file);
        assert!(opened(&path).flaw.is_some_and(|flaw| flaw.contains("is damaged")));
        fs::write(&path, &whole).unwrap();
        fs::copy(&path, &other).unwrap();
        let copied = opened(&other).flaw.expect("it is a copy");
        assert!(copied.contains("is a copy of another file"), "{copied}");
        let another = Settings { root: "/other".into(), ..settings() };
        let flaw = SessionFile::open(&path, &another, "me", Clock::system()).unwrap().flaw;
        assert!(flaw.expect("it is another's").contains("is of another path,"));
        let flaw = SessionFile::open(&path, &settings(), "you", Clock::system()).unwrap().flaw;
        assert!(
            flaw.expect("it is another's")
                .contains("is of another member, \"me\", and not \"you\"")
        );
        // A flaw changes nothing there.
        assert!(opened(&path).former.is_some());
    }

    #[test]
    fn what_is_swapped_or_truncated_while_it_is_held_is_not_believed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("session");
        let other = home.path().join("other");
        let file = opened(&path).file;
        save(&file, 7);
        file.file.set_len(0).unwrap();
        file.note_closing();
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            SIZE as u64,
            "it is written whole each time"
        );
        fs::rename(&path, &other).unwrap();
        symlink(&other, &path).unwrap();
        assert!(refusal(&path).contains("is a symbolic link"));
        file.remove();
        assert!(path.is_symlink() && other.exists(), "the path leads to another file");
    }

    #[test]
    fn what_cannot_be_written_is_a_problem_until_it_can() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("session");
        let file = opened(&path).file;
        let writable = file.file.try_clone().unwrap();
        let file = SessionFile { file: File::open(&path).unwrap(), ..file };
        // A file that cannot be emptied either is removed.
        let second = home.path().join("second");
        fs::hard_link(&path, &second).unwrap();
        save(&file, 7);
        let problem = file.problem().expect("it is open for reading alone");
        assert!(problem.contains("session cannot be written: "), "{problem}");
        let file = SessionFile { file: writable, ..file };
        save(&file, 8);
        assert!(file.problem().is_some(), "no next process finds it");
        let long = SavedSession { password: BASE64_STANDARD.encode([0; 6_000]), ..saved(8) };
        file.write(&mut file.state(), Some(long));
        assert_eq!(fs::metadata(&second).unwrap().len(), 0, "it does not fit");
        fs::rename(&second, &path).unwrap();
        save(&file, 9);
        assert_eq!(file.problem(), None);
    }

    fn save(file: &SessionFile, id: i64) {
        file.write(&mut file.state(), Some(saved(id)));
    }

    fn saved(id: i64) -> SavedSession {
        SavedSession {
            id,
            password: BASE64_STANDARD.encode(b"password"),
            timeout_ms: 10_000,
            known_until_ns: None,
            index: None,
            noted_at_ns: 0,
            is_closing: false,
            restarts: 0,
        }
    }

    #[track_caller]
    fn opened(path: &Path) -> OpenedSessionFile {
        SessionFile::open(path, &settings(), "me", Clock::system()).expect("it can be used")
    }

    fn refusal(path: &Path) -> String {
        let refused = SessionFile::open(path, &settings(), "me", Clock::system());
        refused.err().expect("it cannot be used")
    }

    fn settings() -> Settings {
        Settings::new(&Values::given(&[]), 10 * SECOND).unwrap()
    }
}
