//! Waits for changes of what a sidecar serves, over as many lives of the sidecar as it takes.

use super::sidecar::{ANSWER_TIMEOUT, Sidecar};
use super::{ClientError, SidecarAnswer, remark};
use std::time::Duration;
use tokio::time::sleep;

/// A client that waits for a change asks again after this long, so that it does not wait long for a sidecar that is frozen.
const ROUND: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(250);

/// Asks for one path again and again.
pub(super) struct Poll<'a, T> {
    sidecar: &'a Sidecar,
    path: String,
    read: fn(&SidecarAnswer) -> Result<T, ClientError>,
    /// The index of the last answer.
    pub(super) seen: Option<u64>,
    is_remarked: bool,
}

/// An answer, and the state that was read from it.
pub(super) struct Polled<T> {
    pub(super) answer: SidecarAnswer,
    pub(super) index: u64,
    /// The state, or the reason why there is none at present.
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

    /// Asks for what comes after the last answer, or for what is now if there was none.
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
            // Without an index, nothing can be waited for.
            Err(ClientError::No(why)) if index.is_some() => Err(why),
            state => Ok(state?),
        };
        let index = index.ok_or_else(|| answer.nonsense("it tells no index"))?;
        self.seen = Some(index);
        Ok(Polled { answer, index, state })
    }

    /// Returns the next change. An error is printed once, until there is an answer again, and returned after a pause.
    pub(super) async fn next(&mut self) -> Result<Polled<T>, ClientError> {
        loop {
            let seen = self.seen;
            match self.ask().await {
                Ok(polled) if Some(polled.index) != seen => {
                    self.is_remarked = false;
                    return Ok(polled);
                }
                // The round is over, or the sidecar accepts no further waiting clients.
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
