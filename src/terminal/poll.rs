//! Waits for changes of a sidecar's resource, even if the sidecar restarts meanwhile.

use super::sidecar::{ANSWER_TIMEOUT, Sidecar};
use super::{ClientError, NO, SidecarAnswer, UNANSWERED, remark};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long a request waits for a change at most. A short limit lets this client notice a frozen sidecar soon.
const WAIT_LIMIT: Duration = Duration::from_secs(20);
/// The pause before the next request after one that failed or was refused.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Requests the same path repeatedly, each time waiting until the resource there has changed.
pub(super) struct Poll<'a, T> {
    sidecar: &'a Sidecar,
    path: String,
    /// Reads the state from an answer.
    read: fn(&SidecarAnswer) -> Result<T, ClientError>,
    /// The index of the last answer. `None` before the first answer, and after an error in `until`: the next request
    /// then does not wait for a change.
    last_index: Option<u64>,
    /// Whether an error was printed since the last change.
    is_failure_printed: bool,
}

/// An answer, its index, and the state that was read from it.
pub(super) struct Polled<T> {
    pub(super) answer: SidecarAnswer,
    pub(super) index: u64,
    /// The state, or the reason why there is none at the moment.
    pub(super) state: Result<T, ClientError>,
}

impl<'a, T> Poll<'a, T> {
    pub(super) fn new(
        sidecar: &'a Sidecar,
        path: impl Into<String>,
        read: fn(&SidecarAnswer) -> Result<T, ClientError>,
    ) -> Self {
        Self { sidecar, path: path.into(), read, last_index: None, is_failure_printed: false }
    }

    /// Requests the state. After a first answer, the sidecar answers when the state changes, or else after
    /// [`WAIT_LIMIT`].
    pub(super) async fn ask(&mut self) -> Result<Polled<T>, ClientError> {
        let path = &self.path;
        let request = match self.last_index {
            Some(index) => {
                let path = format!("{path}?index={index}&wait={}s", WAIT_LIMIT.as_secs());
                self.sidecar.get(path).within(WAIT_LIMIT + ANSWER_TIMEOUT)
            }
            None => self.sidecar.get(path),
        };
        let answer = request.answer().await?;
        let index = answer.index();
        let state = match (self.read)(&answer) {
            // A refusal with an index is a state that may change. Any other refusal is an error, because the next
            // request could not wait for a change.
            Err(error) if error.exit_code != NO || index.is_none() => return Err(error),
            state => state,
        };
        let index = index.ok_or_else(|| answer.nonsense("it tells no index"))?;
        self.last_index = Some(index);
        Ok(Polled { answer, index, state })
    }

    /// Waits until `check` accepts the state, and returns the state with its answer. After the time limit, returns the
    /// reason why the last state was not accepted, or the last error.
    pub(super) async fn until(
        &mut self,
        limit: Option<Duration>,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<(SidecarAnswer, T), ClientError> {
        let mut last = ClientError::new(UNANSWERED, "the sidecar has not answered");
        let accepted = async {
            loop {
                last = match self.next().await {
                    Ok(Polled { answer, state: Ok(state), .. }) => match check(&state) {
                        Ok(()) => return (answer, state),
                        Err(why) => ClientError::new(NO, why),
                    },
                    Ok(Polled { state: Err(error), .. }) => error,
                    Err(error) => {
                        // The sidecar may have restarted, and its indexes with it, so request the state without waiting
                        // for a change.
                        self.last_index = None;
                        error
                    }
                };
            }
        };
        let Some(limit) = limit else { return Ok(accepted.await) };
        let accepted = timeout(limit, accepted).await;
        accepted.map_err(|_| {
            let why = last.message.unwrap_or_default();
            ClientError::new(last.exit_code, format!("not within {limit:?}: {why}"))
        })
    }

    /// Returns the next change. An error is returned after a pause, and printed if it is the first one since the last
    /// change.
    pub(super) async fn next(&mut self) -> Result<Polled<T>, ClientError> {
        loop {
            let last_index = self.last_index;
            match self.ask().await {
                Ok(polled) if Some(polled.index) != last_index => {
                    self.is_failure_printed = false;
                    return Ok(polled);
                }
                // This refusal is not a change. It may have come at once, because too many clients wait, so pause.
                Ok(Polled { state: Err(_), .. }) => sleep(RETRY_INTERVAL).await,
                // No change came while the request waited. Ask again.
                Ok(_) => {}
                Err(error) => {
                    if !self.is_failure_printed {
                        let why = error.message.as_deref().unwrap_or_default();
                        remark(&format!("{why}; waiting"));
                        self.is_failure_printed = true;
                    }
                    sleep(RETRY_INTERVAL).await;
                    return Err(error);
                }
            }
        }
    }
}
