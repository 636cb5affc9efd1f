//! A server's log of transactions on disk, from which one is taken out: the server has then lost it, as servers with
//! ZOOKEEPER-4785 and its like do by themselves.
//!
//! The format is ZooKeeper's `FileTxnLog`: "ZKLG", a version and the database's number; then, for each transaction, the
//! Adler-32 of what follows its length, the length, a header (session, request, zxid, time, kind), the record, and a `B`.
//! All numbers are big-endian. Servers do not look for gaps.

use crate::servers::Server;
use std::{fs, path::Path};

/// `closeSession` and `create2`, as logs number them.
pub(crate) const CLOSE_SESSION: i32 = -11;
pub(crate) const CREATE: i32 = 15;

const FILE_HEADER: usize = 16;
const RECORD: usize = 32;

pub(crate) struct Transaction<'a> {
    pub(crate) session: i64,
    pub(crate) zxid: i64,
    pub(crate) kind: i32,
    record: &'a [u8],
}

impl Transaction<'_> {
    /// Whether it names this path, also within a transaction of several operations.
    pub(crate) fn names(&self, path: &str) -> bool {
        let length = i32::try_from(path.len()).expect("a short path").to_be_bytes();
        let name = [&length[..], path.as_bytes()].concat();
        self.record.windows(name.len()).any(|window| window == name)
    }
}

/// Takes the one transaction that is wanted out of the logs of a server that does not run.
///
/// Fails, and leaves the logs as they are, unless there is just one, others come behind it (else the other servers would
/// send it again), and no snapshot has it.
pub(crate) fn lose(
    server: &Server,
    wanted: impl Fn(&Transaction<'_>) -> bool,
) -> Result<(), String> {
    assert!(!server.runs(), "the server runs");
    let mut logs = vec![];
    let (directory, mut lost, mut last) = (server.logs(), vec![], 0);
    for file in files(&directory, "log.") {
        let log = fs::read(&file).expect("the log is read");
        assert_eq!(&log[..4], b"ZKLG", "{}", file.display());
        let mut kept = log[..FILE_HEADER].to_vec();
        let mut rest = &log[FILE_HEADER..];
        while let Some((entry, payload, behind)) = split(rest) {
            let transaction = read(payload);
            last = transaction.zxid.max(last);
            match wanted(&transaction) {
                true => lost.push(transaction.zxid),
                false => kept.extend(entry),
            }
            rest = behind;
        }
        logs.push((file, kept));
    }
    let [lost] = lost[..] else { return Err(format!("{} such transactions", lost.len())) };
    if lost == last {
        return Err("none is behind it".to_owned());
    }
    for file in files(&directory, "snapshot.") {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let zxid = i64::from_str_radix(name.trim_start_matches("snapshot."), 16).expect("a zxid");
        if zxid >= lost {
            return Err(format!("{name} has the transaction {lost:x}"));
        }
    }
    for (file, log) in logs {
        fs::write(file, log).expect("the log is written");
    }
    Ok(())
}

fn files(directory: &Path, beginning: &str) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(directory).expect("the server's directory");
    let all = all.map(|entry| entry.expect("an entry").path());
    let is_wanted = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning))
    };
    let mut files: Vec<_> = all.filter(is_wanted).collect();
    files.sort();
    files
}

/// Returns one entry, its payload and the rest. The file is as long as was set aside, and ends in zeros.
fn split(log: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let checksum = i64::from_be_bytes(log.get(..8)?.try_into().ok()?);
    let length = i32::from_be_bytes(log.get(8..12)?.try_into().ok()?);
    let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
    let payload = log.get(12..12 + length)?;
    assert_eq!(checksum, i64::from(adler32(payload)), "the log is as its server wrote it");
    let (entry, behind) = log.split_at(12 + length + 1);
    Some((entry, payload, behind))
}

fn read(payload: &[u8]) -> Transaction<'_> {
    let long = |at: usize| i64::from_be_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
    let kind = i32::from_be_bytes(payload[28..RECORD].try_into().expect("four bytes"));
    Transaction { session: long(0), zxid: long(12), kind, record: &payload[RECORD..] }
}

pub(crate) fn adler32(bytes: &[u8]) -> u32 {
    let step = |(a, b): (u32, u32), byte: &u8| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (a + b) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), step);
    b << 16 | a
}
