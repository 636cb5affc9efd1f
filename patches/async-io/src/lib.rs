//! The timer of async-io, as far as zookeeper-client uses it, on the timers of tokio.
//!
//! async-io waits for timers and sockets on a thread of its own, which wakes with each of them only to wake the
//! thread that it concerns, and once more for each timer that is set. An idle member would wake twice as
//! often.

#![forbid(unsafe_code)]

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// After so many periods an interval wakes its task.
const SLACK: u32 = 2;

/// Ready at a moment, or again and again.
#[derive(Debug)]
pub struct Timer(Kind);

#[derive(Debug)]
enum Kind {
    Never,
    Once(Pin<Box<Sleep>>),
    Every(Ticks),
}

/// An interval is what zookeeper-client looks after its connection with: whether it has been silent for too long, in
/// either direction. Whoever has just read or written something is awake and looks then, as soon as a period is over;
/// only where nothing happens at all is there something to wake for.
#[derive(Debug)]
struct Ticks {
    period: Duration,
    next: Instant,
    latest: Pin<Box<Sleep>>,
}

impl Timer {
    pub fn never() -> Self {
        Self(Kind::Never)
    }

    pub fn after(span: Duration) -> Self {
        Self(Kind::Once(Box::pin(sleep(span))))
    }

    pub fn at(moment: std::time::Instant) -> Self {
        Self(Kind::Once(Box::pin(sleep_until(moment.into()))))
    }

    /// Ready when it is polled after a period, again after another, and so on; and it has itself polled after two.
    pub fn interval(period: Duration) -> Self {
        let latest = Box::pin(sleep(SLACK * period));
        Self(Kind::Every(Ticks { period, next: Instant::now() + period, latest }))
    }
}

impl Ticks {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Instant> {
        // Polled also when it is due, for whoever is to be woken by it.
        let has_waited = self.latest.as_mut().poll(context).is_ready();
        let now = Instant::now();
        if now < self.next && !has_waited {
            return Poll::Pending;
        }
        let due = if has_waited { self.latest.deadline() } else { self.next };
        self.next = now + self.period;
        // Not `reset`: tokio leaves a timer that is put off where it stands, and wakes there once to move it.
        self.latest.set(sleep_until(now + SLACK * self.period));
        Poll::Ready(due)
    }
}

/// Resolves to the moment that was waited for, which may be over for long.
impl Future for Timer {
    type Output = std::time::Instant;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Kind::Never => Poll::Pending,
            Kind::Once(sleep) => {
                ready!(sleep.as_mut().poll(context));
                Poll::Ready(sleep.deadline().into())
            }
            Kind::Every(ticks) => ticks.poll(context).map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_ready_when_its_moment_has_come() {
        let begun = Instant::now();
        assert_eq!(Timer::after(SECOND).await, (begun + SECOND).into());
        assert_eq!(Timer::at((begun + 2 * SECOND).into()).await, (begun + 2 * SECOND).into());
        assert_eq!(Timer::at(begun.into()).await, begun.into(), "at once, if it is over");
        assert_eq!(Instant::now(), begun + 2 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interval_is_ready_for_whoever_looks_once_a_period() {
        let begun = Instant::now();
        let mut ticks = Timer::interval(SECOND);
        assert_eq!(look(&mut ticks).await, Poll::Pending);
        tokio::time::advance(SECOND * 3 / 2).await;
        assert_eq!(look(&mut ticks).await, Poll::Ready((begun + SECOND).into()));
        assert_eq!(look(&mut ticks).await, Poll::Pending);
        tokio::time::advance(SECOND).await;
        assert_eq!(look(&mut ticks).await, Poll::Ready((begun + SECOND * 5 / 2).into()));
        // Nobody wants all those that were missed while the process was frozen.
        tokio::time::advance(10 * SECOND).await;
        assert_eq!(
            look(&mut ticks).await,
            Poll::Ready((begun + SECOND * 5 / 2 + SLACK * SECOND).into())
        );
        assert_eq!(look(&mut ticks).await, Poll::Pending);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interval_wakes_where_nobody_looks() {
        let begun = Instant::now();
        let mut ticks = Timer::interval(SECOND);
        for n in 1..=3 {
            assert_eq!((&mut ticks).await, (begun + n * SLACK * SECOND).into());
        }
        assert_eq!(Instant::now(), begun + 3 * SLACK * SECOND);
    }

    async fn look(ticks: &mut Timer) -> Poll<std::time::Instant> {
        poll_fn(|context| Poll::Ready(Pin::new(&mut *ticks).poll(context))).await
    }
}
