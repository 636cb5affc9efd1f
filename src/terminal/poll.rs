//! Waits for changes of a sidecar's resource, even if the sidecar restarts meanwhile.

use super::sidecar::{ANSWER_TIMEOUT, Sidecar};
use super::{ClientError, SidecarAnswer, remark};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The time limit of each waiting request. It is short, so that a frozen sidecar is noticed soon.
const ROUND: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(250);

/// Requests the same path repeatedly.
pub(super) struct Poll<'a, T> {
    sidecar: &'a Sidecar,
    path: String,
    read: fn(&SidecarAnswer) -> Result<T, ClientError>,
    /// The index of the last answer.
    seen: Option<u64>,
    /// Whether the current failure was printed already.
    is_remarked: bool,
}

/// An answer, its index, and the state that was read from it.
pub(super) struct Polled<T> {
    pub(super) answer: SidecarAnswer,
    pub(super) index: u64,
    /// The state, or the reason why there is none at the moment.
    pub(super) state: Result<T, String>,
}

impl<'a, T> Poll<'a, T> {
    pub(super) fn new(
        sidecar: &'a Sidecar,
        path: impl Into<String>,
        read: fn(&SidecarAnswer) -> Result<T, ClientError>,
    ) -> Self {
        Self { sidecar, path: path.into(), read, seen: None, is_remarked: false }
    }

    /// Waits for the next answer after the last one. If there was no answer yet, requests the current state.
    pub(super) async fn ask(&mut self) -> Result<Polled<T>, ClientError> {
        let path = &self.path;
        let request = match self.seen {
            Some(index) => {
                let path = format!("{path}?index={index}&wait={}s", ROUND.as_secs());
                self.sidecar.get(path).within(ROUND + ANSWER_TIMEOUT)
            }
            None => self.sidecar.get(path),
        };
        let answer = request.answer().await?;
        let index = answer.index();
        let state = match (self.read)(&answer) {
            // A refusal without an index cannot be followed by a waiting request, so treat it as an error.
            Err(ClientError::No(why)) if index.is_some() => Err(why),
            state => Ok(state?),
        };
        let index = index.ok_or_else(|| answer.nonsense("it tells no index"))?;
        self.seen = Some(index);
        Ok(Polled { answer, index, state })
    }

    /// Waits until `check` accepts the state, and returns it with its answer. After the time limit, returns why it has not
    /// been accepted.
    pub(super) async fn until(
        &mut self,
        limit: Option<Duration>,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<(SidecarAnswer, T), ClientError> {
        let mut last = ClientError::Unanswered("it has not answered".into());
        let accepted = async {
            loop {
                last = match self.next().await {
                    Ok(Polled { answer, state: Ok(state), .. }) => match check(&state) {
                        Ok(()) => return (answer, state),
                        Err(why) => ClientError::No(why),
                    },
                    Ok(Polled { state: Err(why), .. }) => ClientError::No(why),
                    Err(trouble) => {
                        // The sidecar may have restarted, so that the next answer counts whatever its index is.
                        self.seen = None;
                        trouble
                    }
                };
            }
        };
        let Some(limit) = limit else { return Ok(accepted.await) };
        let accepted = timeout(limit, accepted).await;
        accepted.map_err(|_| {
            let why = format!("not within {limit:?}: {}", last.message().unwrap_or_default());
            match last {
                ClientError::No(_) => ClientError::No(why),
                _ => ClientError::Unanswered(why),
            }
        })
    }

    /// Returns the next change. An error is returned after a pause. It is printed only once, until the sidecar answers
    /// again.
    pub(super) async fn next(&mut self) -> Result<Polled<T>, ClientError> {
        loop {
            let seen = self.seen;
            match self.ask().await {
                Ok(polled) if Some(polled.index) != seen => {
                    self.is_remarked = false;
                    return Ok(polled);
                }
                // The waiting request ended without a change, or the sidecar accepts no further waiting clients.
                Ok(Polled { state: Err(_), .. }) => sleep(PAUSE).await,
                Ok(_) => {}
                Err(trouble) => {
                    if !self.is_remarked {
                        remark(&format!("{}; waiting", trouble.message().unwrap_or_default()));
                        self.is_remarked = true;
                    }
                    sleep(PAUSE).await;
                    return Err(trouble);
                }
            }
        }
    }
}
