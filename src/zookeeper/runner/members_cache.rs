//! The members as they were last read for operators, and the callers that wait for the next reading.

use crate::status::QueueReading;
use crate::znode_names::ZnodeNames;
use crate::zookeeper::client::in_words;
use crate::zookeeper::election::{Reading, entries};
use recipes::Moment;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a reading is returned to further callers.
const TTL: Duration = Duration::from_secs(1);

type MembersCaller = oneshot::Sender<Result<QueueReading, String>>;

pub(super) struct MembersCache {
    znodes: ZnodeNames,
    /// The last reading, and when it ended.
    read: Option<(Moment, QueueReading)>,
    /// The running reading.
    under_way: Option<Reading>,
    /// True if the running reading began before a change that further callers may know of.
    is_outdated: bool,
    /// Callers that the running reading will answer.
    waiting: Vec<MembersCaller>,
    /// Callers that need a newer reading than the running one.
    later: Vec<MembersCaller>,
}

impl MembersCache {
    pub(super) fn new(znodes: &ZnodeNames) -> Self {
        Self {
            znodes: znodes.clone(),
            read: None,
            under_way: None,
            is_outdated: false,
            waiting: vec![],
            later: vec![],
        }
    }

    /// Answers from the last reading, or starts another with `read`, which is `None` without a session.
    pub(super) fn ask(
        &mut self,
        answer: MembersCaller,
        read: Option<impl FnOnce() -> Reading>,
        now: Moment,
    ) {
        if let Some((at, reading)) = &self.read
            && now.since(*at) < TTL
        {
            let _receiver_gone = answer.send(Ok(reading.clone()));
            return;
        }
        let Some(read) = read else {
            let _receiver_gone = answer.send(Err("no session with ZooKeeper".into()));
            return;
        };
        for waiting in [&mut self.waiting, &mut self.later] {
            waiting.retain(|waiting| !waiting.is_closed());
        }
        if self.is_outdated {
            self.later.push(answer);
            return;
        }
        self.waiting.push(answer);
        if self.under_way.is_none() {
            self.under_way = Some(read());
        }
    }

    /// From now on, callers are no longer answered with a reading that began before this call.
    pub(super) fn outdate(&mut self) {
        self.read = None;
        self.is_outdated = self.under_way.is_some();
    }

    /// Waits for the running reading.
    pub(super) async fn read(&mut self) -> Result<QueueReading, String> {
        let Some(reading) = &mut self.under_way else { return std::future::pending().await };
        match reading.await {
            Ok(Ok(read)) => {
                let members = entries(read.members, &self.znodes).into();
                Ok(QueueReading { index: read.index, members })
            }
            Ok(Err(error)) => Err(in_words(&error)),
            Err(_) => Err(SESSION_ENDED.into()),
        }
    }

    /// Handles the end of the session. With `read`, which belongs to the next session, all callers are answered there;
    /// without it, they get an error.
    pub(super) fn end_session(&mut self, read: Option<impl FnOnce() -> Reading>) {
        (self.read, self.under_way, self.is_outdated) = (None, None, false);
        self.waiting.append(&mut self.later);
        match read {
            Some(read) => self.under_way = (!self.waiting.is_empty()).then(read),
            None => self.waiting.drain(..).for_each(|waiting| {
                let _receiver_gone = waiting.send(Err(SESSION_ENDED.into()));
            }),
        }
    }

    /// Answers the callers with the finished reading, and starts another for callers that need a newer one.
    pub(super) fn answer(
        &mut self,
        read: &Result<QueueReading, String>,
        again: Option<impl FnOnce() -> Reading>,
        now: Moment,
    ) {
        self.under_way = None;
        for waiting in self.waiting.drain(..) {
            let _receiver_gone = waiting.send(read.clone());
        }
        if std::mem::take(&mut self.is_outdated) {
            std::mem::swap(&mut self.waiting, &mut self.later);
            self.under_way = again.filter(|_| !self.waiting.is_empty()).map(|read| read());
        } else {
            self.read = read.as_ref().ok().map(|reading| (now, reading.clone()));
        }
    }
}

const SESSION_ENDED: &str = "the session with ZooKeeper ended";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zookeeper::queue::QueueZnodes;
    use std::cell::Cell;
    use tokio::sync::oneshot::Receiver;

    #[tokio::test]
    async fn no_caller_is_answered_by_a_reading_from_before_a_change_that_it_may_know_of() {
        let mut cache = MembersCache::new(&"leader_".into());
        let begun = Cell::new(0);
        let read = || {
            begun.set(begun.get() + 1);
            let (answered, reading) = oneshot::channel();
            answered.send(Ok(QueueZnodes::default())).unwrap();
            reading
        };
        let now = Moment(Duration::from_secs(1));
        let ask = |cache: &mut MembersCache| {
            let (answer, answered) = oneshot::channel();
            cache.ask(answer, Some(read), now);
            answered
        };
        let is_answered = |answered: &mut Receiver<_>| answered.try_recv().is_ok();
        let mut first = ask(&mut cache);
        let read_members = cache.read().await;
        cache.answer(&read_members, Some(read), now);
        assert!(is_answered(&mut first));
        assert!(is_answered(&mut ask(&mut cache)), "within a second, by the same reading");
        assert_eq!(begun.get(), 1);

        cache.outdate();
        let mut before = ask(&mut cache);
        assert!(!is_answered(&mut before));
        assert_eq!(begun.get(), 2);
        cache.outdate();
        let mut after = ask(&mut cache);
        let read_members = cache.read().await;
        cache.answer(&read_members, Some(read), now);
        assert!(is_answered(&mut before));
        assert!(!is_answered(&mut after), "this reading began before the change");
        assert_eq!(begun.get(), 3);
        let read_members = cache.read().await;
        cache.answer(&read_members, Some(read), now);
        assert!(is_answered(&mut after));

        cache.outdate();
        let [mut before, mut after] = [ask(&mut cache), {
            cache.outdate();
            ask(&mut cache)
        }];
        cache.end_session(Some(read));
        assert!(before.try_recv().is_err() && after.try_recv().is_err(), "the next session reads");
        let read_members = cache.read().await;
        cache.answer(&read_members, Some(read), now);
        assert!(is_answered(&mut before) && is_answered(&mut after));
        assert_eq!(begun.get(), 5);

        cache.outdate();
        let mut left = ask(&mut cache);
        cache.end_session(None::<fn() -> Reading>);
        assert!(left.try_recv().unwrap().is_err(), "there is no other session");
        let (answer, mut answered) = oneshot::channel();
        cache.ask(answer, None::<fn() -> Reading>, now);
        assert!(
            answered.try_recv().unwrap().is_err(),
            "an old reading is not given as the present"
        );
    }
}
