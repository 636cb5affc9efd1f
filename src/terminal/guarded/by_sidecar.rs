//! Lets a sidecar hold a lock, or enter a barrier, for this process while their connection is open.

use super::super::answer::{EventStream, ReceivedEvent};
use super::super::sidecar::ANSWER_TIMEOUT;
use super::super::{ClientError, NO, Sidecar};
use super::{HoldingProgress, Patience, describe_gathering, this_process};
use crate::api::{self, BarrierEntered, BarrierWaiting, LockEnded, LockHeld, LockWaiting};
use crate::exec::CommandLease;
use crate::holdings::HoldingName;
use recipes::holding::HoldingSpec;
use recipes::lock::Mode;
use recipes::{FencingToken, Moment};
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

/// The sidecar's event stream for the lock or barrier.
pub(super) struct SidecarStream {
    events: EventStream,
    /// The id with which this process leaves the barrier, once the sidecar has sent it.
    pub(super) id: Arc<OnceLock<String>>,
}

impl SidecarStream {
    /// Asks the sidecar to hold the lock or to enter the barrier, and opens the stream of its events.
    pub(super) async fn open(
        sidecar: &Sidecar,
        name: &HoldingName,
        wanted: HoldingSpec,
        patience: Patience,
    ) -> Result<Self, ClientError> {
        check_clock(sidecar).await?;
        let (root, query) = match wanted {
            HoldingSpec::Lock(Mode::Exclusive) => (api::LOCKS.path, "mode=exclusive".to_owned()),
            HoldingSpec::Lock(Mode::Shared) => (api::LOCKS.path, "mode=shared".to_owned()),
            HoldingSpec::Lock(Mode::Slots(slots)) => (api::LOCKS.path, format!("slots={slots}")),
            HoldingSpec::Barrier(size) => (api::BARRIERS.path, format!("size={size}")),
        };
        // This process enforces any other time limit itself, because that limit may be longer than a sidecar accepts.
        let wait = if patience == Patience::Try { "&wait=0s" } else { "" };
        let process = this_process();
        let path = format!("{root}/{name}?{query}&process={}{wait}", process.as_str());
        let events = sidecar.post(path).within(ANSWER_TIMEOUT).events().await?;
        Ok(Self { events, id: Arc::default() })
    }

    /// Returns a duplicate of the connection's descriptor. The sidecar keeps the lock or barrier while the connection is
    /// open, so a guard that has this descriptor keeps it even if this process is killed.
    pub(super) fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.events.descriptor
    }

    /// Publishes the progress from all events. Never returns, because a return would close the connection, and so release
    /// the lock or leave the barrier: the caller drops this future when that may happen.
    pub(super) async fn follow(mut self, publisher: &watch::Sender<HoldingProgress>) -> Infallible {
        let last = match self.publish_until_last(publisher).await {
            Ok(last) => last,
            Err(why) => HoldingProgress::Failed(format!("the sidecar is gone: {why}")),
        };
        publisher.send_replace(last);
        pending().await
    }

    /// Publishes the progress from all events except the last, and returns that of the last.
    async fn publish_until_last(
        &mut self,
        publisher: &watch::Sender<HoldingProgress>,
    ) -> Result<HoldingProgress, String> {
        loop {
            for event in self.events.next().await? {
                // Ignore events of later versions.
                let Some(progress) = progress(&event, &self.id)? else { continue };
                if progress.is_last() {
                    return Ok(progress);
                }
                publisher.send_replace(progress);
            }
        }
    }
}

/// Returns the progress that an event reports, or `None` for an unknown event. Notes the id of the participant, which
/// only the events of a barrier contain.
fn progress(
    event: &ReceivedEvent,
    id: &OnceLock<String>,
) -> Result<Option<HoldingProgress>, String> {
    let ReceivedEvent { name, data } = event;
    Ok(Some(match &**name {
        "waiting" => {
            // A barrier's event has other fields than a lock's.
            if let Ok(BarrierWaiting { id: sent, present, size }) = parsed(data) {
                note_id(id, sent)?;
                return Ok(Some(HoldingProgress::Waiting(describe_gathering(size, present))));
            }
            let LockWaiting { position, .. } = parsed(data)?;
            HoldingProgress::Waiting(format!("behind {position} at most"))
        }
        "left" => HoldingProgress::AllLeft,
        "held" | "entered" | "renewed" => {
            if let Ok(BarrierEntered { id: sent, .. }) = parsed(data) {
                note_id(id, sent)?;
            }
            let LockHeld { token, valid_until_boottime_ns, .. } = parsed(data)?;
            let until = valid_until_boottime_ns.ok_or("it has no valid_until_boottime_ns")?;
            let until = Moment(Duration::from_nanos(until));
            HoldingProgress::Held(CommandLease { token: FencingToken(token), until })
        }
        "timeout" => HoldingProgress::NotInTime,
        "lost" | "refused" => {
            let LockEnded { why } = parsed(data)?;
            HoldingProgress::Failed(why)
        }
        _ => return Ok(None),
    }))
}

/// Notes the id with which to leave. The id is checked, because it becomes a part of a URL's path.
fn note_id(id: &OnceLock<String>, sent: String) -> Result<(), String> {
    if sent.is_empty() || !sent.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(format!("{sent:?} is not an id"));
    }
    // Later events repeat the id, so it may be noted already.
    let _ = id.set(sent);
    Ok(())
}

fn parsed<T: DeserializeOwned>(data: &str) -> Result<T, String> {
    serde_json::from_str(data).map_err(|error| error.to_string())
}

/// Leaves the barrier with the id that the sidecar has sent.
pub(super) async fn leave(
    sidecar: &Sidecar,
    name: &HoldingName,
    id: Arc<OnceLock<String>>,
) -> Result<(), ClientError> {
    // The event `entered` has the id, so it is known when the command has ended.
    let id = id.get().map_or("", String::as_str);
    let path = format!("{}/{name}/leave/{id}", api::BARRIERS.path);
    sidecar.post(path).within(ANSWER_TIMEOUT).answer().await?.check_done()
}

/// Checks that the sidecar uses the same clock as this process, so that its lease deadlines are valid here.
async fn check_clock(sidecar: &Sidecar) -> Result<(), ClientError> {
    let answer = sidecar.get(api::STATUS.path).answer().await?;
    let api::Status { clock, .. } = answer.body()?;
    if clock.boot_id.is_some() && clock == api::LeaseClock::read() {
        return Ok(());
    }
    let why = format!(
        "{} uses another clock than this process, so this process cannot tell until when a lock is held: ask a sidecar on \
         this machine (--url), or none (--zookeeper)",
        sidecar.base_url()
    );
    Err(ClientError::new(NO, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_say_how_the_lock_stands() {
        let id = OnceLock::new();
        let read = |name: &str, data: &str| {
            progress(&ReceivedEvent { name: name.into(), data: data.into() }, &id)
        };
        let held = r#"{"token":4,"valid_for_ms":5,"valid_until_boottime_ns":7000,"valid_until_monotonic_ns":6}"#;
        let lease =
            CommandLease { token: FencingToken(4), until: Moment(Duration::from_micros(7)) };
        for name in ["held", "renewed"] {
            assert_eq!(read(name, held), Ok(Some(HoldingProgress::Held(lease))));
        }
        let waiting = read("waiting", r#"{"position":2,"holders":null}"#);
        assert_eq!(waiting, Ok(Some(HoldingProgress::Waiting("behind 2 at most".into()))));
        assert_eq!(id.get(), None, "a lock has none");
        let waiting = read("waiting", r#"{"id":"1f","present":1,"size":3}"#);
        let text = "a barrier of 3, 1 there";
        assert_eq!(waiting, Ok(Some(HoldingProgress::Waiting(text.into()))));
        assert_eq!(id.get().map(String::as_str), Some("1f"));
        let entered = held.replacen('{', r#"{"id":"1f","#, 1);
        for name in ["entered", "renewed"] {
            assert_eq!(read(name, &entered), Ok(Some(HoldingProgress::Held(lease))));
        }
        assert_eq!(read("left", r#"{"why":"w"}"#), Ok(Some(HoldingProgress::AllLeft)));
        let over = Ok(Some(HoldingProgress::Failed("w".into())));
        assert_eq!(read("lost", r#"{"why":"w"}"#), over);
        assert_eq!(read("refused", r#"{"why":"w"}"#), over);
        assert_eq!(read("timeout", r#"{"why":"w"}"#), Ok(Some(HoldingProgress::NotInTime)));
        assert_eq!(read("of-another-version", "{}"), Ok(None));
        let remote = r#"{"token":4,"valid_for_ms":5,"valid_until_boottime_ns":null,"valid_until_monotonic_ns":null}"#;
        assert!(read("held", remote).is_err() && read("held", "{").is_err());
        assert!(read("waiting", r#"{"id":"a b","present":1,"size":3}"#).is_err());
        assert!(read("entered", &held.replacen('{', r#"{"id":"","#, 1)).is_err());
    }
}
