//! The members as they were last read for operators, and the callers that wait for the next reading.

use crate::desk::Entry;
use crate::zookeeper::election::{ElectionSession, Reading, entry};
use recipes::Moment;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// For so long a reading answers further callers, however many.
const TTL: Duration = Duration::from_secs(1);

type Answer = oneshot::Sender<Result<Arc<[Entry]>, String>>;

#[derive(Default)]
pub(super) struct MembersCache {
    prefix: String,
    read: Option<(Moment, Arc<[Entry]>)>,
    under_way: Option<Reading>,
    waiting: Vec<Answer>,
}

impl MembersCache {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..Self::default() }
    }

    /// Answers from the last reading, or begins another.
    pub(super) fn ask(
        &mut self,
        answer: Answer,
        session: Option<&mut ElectionSession>,
        now: Moment,
    ) {
        if let Some((at, entries)) = &self.read
            && now.since(*at) < TTL
        {
            let _receiver_gone = answer.send(Ok(entries.clone()));
            return;
        }
        let Some(session) = session else {
            let _receiver_gone = answer.send(Err("there is no session with ZooKeeper".into()));
            return;
        };
        self.waiting.retain(|waiting| !waiting.is_closed());
        self.waiting.push(answer);
        if self.under_way.is_none() {
            self.under_way = Some(session.read_members());
        }
    }

    /// Forgets what was read before a change of who leads, so that no answer to a later question shows the queue
    /// as it was before it.
    pub(super) fn outdate(&mut self, session: Option<&mut ElectionSession>) {
        self.read = None;
        if self.under_way.is_some() {
            self.under_way = session.map(ElectionSession::read_members);
        }
    }

    /// Waits for the reading under way.
    pub(super) async fn read(&mut self) -> Result<Arc<[Entry]>, String> {
        let Some(reading) = &mut self.under_way else { return std::future::pending().await };
        match reading.await {
            Ok(Ok(members)) => {
                Ok(members.into_iter().map(|member| entry(member, &self.prefix)).collect())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(SESSION_ENDED.into()),
        }
    }

    /// Answers all callers, as the session ends.
    pub(super) fn end_session(&mut self) {
        self.under_way = None;
        for waiting in self.waiting.drain(..) {
            let _receiver_gone = waiting.send(Err(SESSION_ENDED.into()));
        }
    }

    /// Answers all callers with what was read.
    pub(super) fn answer(&mut self, read: &Result<Arc<[Entry]>, String>, now: Moment) {
        self.under_way = None;
        self.read = read.as_ref().ok().map(|entries| (now, entries.clone()));
        for waiting in self.waiting.drain(..) {
            let _receiver_gone = waiting.send(read.clone());
        }
    }
}

const SESSION_ENDED: &str = "the session with ZooKeeper ended";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_of_who_leads_answers_nobody_after_it() {
        let now = Moment(Duration::from_secs(1));
        let mut cache = MembersCache::new("leader_");
        let ask = |cache: &mut MembersCache| {
            let (answer, mut answered) = oneshot::channel();
            cache.ask(answer, None, now);
            answered.try_recv().expect("an answer at once").map(|entries| entries.len())
        };
        cache.answer(&Ok([].into()), now);
        assert_eq!(ask(&mut cache), Ok(0));
        cache.outdate(None);
        assert_eq!(ask(&mut cache), Err("there is no session with ZooKeeper".to_owned()));

        // A reading that was under way began before the change too.
        let (read, reading) = oneshot::channel();
        cache.under_way = Some(reading);
        cache.outdate(None);
        assert!(read.is_closed());
    }
}
