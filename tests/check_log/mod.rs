//! Replays the log of a daemon through the core, and reports the line at which the two disagree. `scripts/check-log`,
//! the soak test and an ensemble test use it.
//!
//! The lines have the target `bellwether::protocol`. They are JSON, with the core's values in `{:?}` notation.

mod debug_text;
mod promises;
mod values;

use debug_text::{DebugValue, FromDebug};
use promises::Promises;
use recipes::election::{Event, Member, Role};
use recipes::{FencingToken, Moment};
use serde_json::Value;
use std::fmt::{self, Debug, Display};
use std::time::Duration;

const TARGET: &str = "bellwether::protocol";

/// The result for a log with which the core agrees.
#[derive(Debug, Default)]
pub(crate) struct CheckedLog {
    /// The number of processes that started in this log.
    pub(crate) processes: usize,
    pub(crate) steps: usize,
    pub(crate) terms: Vec<Term>,
}

/// A time during which a member reported that it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) election: String,
    pub(crate) id: String,
    pub(crate) token: FencingToken,
    pub(crate) from: Moment,
    pub(crate) until: Moment,
}

/// The state of a process, as replayed up to the current line.
struct Replay {
    election: String,
    member: Member,
    promises: Promises,
    at: Moment,
    term: Option<Term>,
    /// The token of the process's last term.
    last_token: Option<FencingToken>,
    /// True if a claim has been refused since the last term began.
    is_claim_refused: bool,
}

/// Checks a log, which may contain several processes, one after another.
///
/// # Errors
/// The file, the line, and what is wrong in that line.
pub(crate) fn check(file: &str, log: &str) -> Result<CheckedLog, String> {
    let mut checked = CheckedLog::default();
    let mut replay: Option<Replay> = None;
    for (n, line) in log.lines().enumerate().filter(|(_, line)| line.contains(TARGET)) {
        take_line(line, &mut replay, &mut checked)
            .map_err(|why| format!("{file}:{}: {why}", n + 1))?;
    }
    checked.terms.extend(replay.and_then(|replay| replay.term));
    if checked.processes == 0 {
        return Err(format!(
            "{file}: nothing of {TARGET}: it takes log.format = \"json\" and RUST_LOG=info,{TARGET}=trace"
        ));
    }
    Ok(checked)
}

/// Returns two overlapping terms of one election, if there are any. The logs must be of one machine, so that the
/// moments come from one clock.
pub(crate) fn overlap(terms: &[Term]) -> Option<(&Term, &Term)> {
    let mut sorted: Vec<_> = terms.iter().collect();
    sorted.sort_by_key(|term| (&term.election, term.from));
    let mut last: Option<&Term> = None;
    for term in sorted {
        if let Some(before) = last.filter(|last| last.election == term.election) {
            // The next process of a member may continue its term, and may end it sooner than the log of the previous
            // process says.
            let is_same = (&before.id, before.token) == (&term.id, term.token);
            if !is_same && term.from < before.until {
                return Some((before, term));
            }
        }
        last = Some(term);
    }
    None
}

fn take_line(
    line: &str,
    replay: &mut Option<Replay>,
    checked: &mut CheckedLog,
) -> Result<(), String> {
    let line: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    if line["target"] != TARGET {
        return Ok(());
    }
    if line["message"] == "start" {
        checked.terms.extend(replay.take().and_then(|replay| replay.term));
        checked.processes += 1;
        *replay = Some(Replay::begin(&line)?);
        return Ok(());
    }
    let replay = replay.as_mut().ok_or("a step without the start of its process")?;
    checked.steps += 1;
    checked.terms.extend(replay.step(&line)?);
    Ok(())
}

impl Replay {
    fn begin(line: &Value) -> Result<Self, String> {
        let member = Member::new(read(line, "profile")?, read(line, "policy")?);
        let member = member.with_time_to_end(read(line, "reserve")?);
        let member = member.of_priority(read(line, "priority")?);
        let member = if read(line, "relays")? { member } else { member.among_others() };
        let member = if read(line, "unhealthy")? { member.unhealthy_at_first() } else { member };
        let actions = member.start();
        compare(line, "actions", &actions)?;
        let mut promises = Promises::default();
        promises.note(&actions);
        let election = text(line, "election")?.to_owned();
        let at = Moment(Duration::ZERO);
        Ok(Self {
            election,
            member,
            promises,
            at,
            term: None,
            last_token: None,
            is_claim_refused: false,
        })
    }

    /// Replays a step, and returns the term that it ends.
    fn step(&mut self, line: &Value) -> Result<Option<Term>, String> {
        let at: Moment = read(line, "at")?;
        let event: Event = read(line, "heard")?;
        if at < self.at {
            return Err(format!("the clock goes back, from {:?} to {:?}", self.at.0, at.0));
        }
        self.at = at;
        self.is_claim_refused |= matches!(event, Event::ClaimRefused { .. });
        let wake_at = self.member.wake_at();
        self.promises.check(&event, at, wake_at).map_err(|why| format!("{why}: {event}"))?;
        let actions = self.member.step(at, event);
        self.promises.note(&actions);
        compare(line, "actions", &actions)?;
        let standing = self.member.standing();
        let role = standing.at(at);
        compare(line, "standing", &role)?;
        compare(line, "index", &standing.index_at(at))?;
        self.note_term(&role, at)
    }

    fn note_term(&mut self, role: &Role, at: Moment) -> Result<Option<Term>, String> {
        let leads = match role {
            Role::Leader { announcement, left } => Some((announcement, at.after(*left))),
            _ => None,
        };
        if let Some(term) = &mut self.term
            && let Some((announcement, until)) = leads
            && announcement.ticket.token == term.token
        {
            term.until = until;
            return Ok(None);
        }
        let ended = self.term.take().map(|term| Term { until: term.until.min(at), ..term });
        if let Some((announcement, until)) = leads {
            let token = announcement.ticket.token;
            // A claim that was refused may succeed later, with the same znode and so with the same token.
            let is_in_order = self
                .last_token
                .is_none_or(|last| token > last || token == last && self.is_claim_refused);
            if !is_in_order {
                return Err(format!("a token that is not larger than the one before: {token}"));
            }
            self.last_token = Some(token);
            self.is_claim_refused = false;
            let id = announcement.leader.id.to_string();
            let election = self.election.clone();
            self.term = Some(Term { election, id, token, from: at, until });
        }
        Ok(ended)
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { election, id, token, from, until } = self;
        write!(f, "{id} of {election}, token {token}, from {:?} until {:?}", from.0, until.0)
    }
}

fn text<'a>(line: &'a Value, field: &str) -> Result<&'a str, String> {
    line[field].as_str().ok_or_else(|| format!("no field {field:?}"))
}

/// Reads a field, and checks that the parsed value is written in the same way.
fn read<T: FromDebug + Debug>(line: &Value, field: &str) -> Result<T, String> {
    let text = text(line, field)?;
    let wrong = |why: &dyn Display| format!("{field}: {why}: {text}");
    let value = DebugValue::parse(text).and_then(|value| T::from_debug(&value));
    let value = value.map_err(|why| wrong(&why))?;
    if format!("{value:?}") != text {
        return Err(wrong(&format!("it is read as {value:?}")));
    }
    Ok(value)
}

/// Compares a value of the core with the logged one.
fn compare(line: &Value, field: &str, core: &impl Debug) -> Result<(), String> {
    let logged = text(line, field)?;
    let core = format!("{core:?}");
    if core == logged {
        return Ok(());
    }
    Err(format!("{field} are not the core's\n  logged: {logged}\n  core:   {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::election::{Policy, Profile};
    use recipes::{ClaimOwner, Margins, MemberId, Sequence, SessionEvent, SessionId, Ticket};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// A log in the format of a daemon's log.
    struct Log {
        member: Member,
        lines: Vec<String>,
    }

    impl Log {
        fn begun() -> Self {
            let id = MemberId::new("a").unwrap();
            let labels = BTreeMap::from([("la\"bel".to_owned(), "zür\n{ich}, \u{7f}".to_owned())]);
            let profile = Profile { id, address: Some("10.0.0.1:80".into()), labels, revision: 0 };
            let heartbeat = Duration::from_millis(1000);
            let margins = Margins { heartbeat, half_tick: Duration::from_micros(999_999) };
            let member = Member::new(Arc::new(profile), Policy::new(margins));
            let begin = serde_json::json!({
                "message": "start", "target": TARGET, "election": "/election",
                "profile": format!("{:?}", member.standing().profile()),
                "priority": format!("{:?}", member.standing().priority()),
                "policy": format!("{:?}", member.policy()),
                "reserve": format!("{:?}", member.reserve()), "relays": "true", "unhealthy": "false",
                "actions": format!("{:?}", member.start()),
            });
            Self { member, lines: vec!["bellwether 0.3.0".into(), begin.to_string()] }
        }

        fn step(&mut self, at_ms: u64, event: Event) {
            let at = Moment(Duration::from_millis(at_ms));
            let actions = self.member.step(at, event.clone());
            let standing = self.member.standing();
            let line = serde_json::json!({
                "message": "step", "target": TARGET, "at": format!("{at:?}"),
                "heard": format!("{event:?}"), "actions": format!("{actions:?}"),
                "standing": format!("{:?}", standing.at(at)),
                "index": format!("{:?}", standing.index_at(at)),
            });
            self.lines.push(line.to_string());
        }

        fn check(&self) -> Result<CheckedLog, String> {
            check("a.log", &self.lines.join("\n"))
        }
    }

    /// Returns the log of a member that joins alone, claims at 3 ms, and leads.
    fn leader() -> Log {
        let mut log = Log::begun();
        let sent_at = Moment(Duration::from_millis(1));
        let timeout = Duration::from_millis(10_000);
        log.step(
            2,
            Event::Session(SessionEvent::Opened { session: SessionId(-5), timeout, sent_at }),
        );
        let sequence = Sequence::new(0).unwrap();
        log.step(2, Event::Joined(Ticket { sequence, token: FencingToken(4) }));
        log.step(3, Event::QueueRead([sequence].into_iter().collect()));
        log.step(5, Event::Committed { sent_at: Moment(Duration::from_millis(3)) });
        log
    }

    #[test]
    fn the_core_agrees_with_what_it_did() {
        let checked = leader().check().unwrap();
        assert_eq!((checked.processes, checked.steps), (1, 4));
        let [term] = &checked.terms[..] else { panic!("{checked:?}") };
        assert_eq!((&*term.id, term.token, term.from.0.as_millis()), ("a", FencingToken(4), 5));
    }

    #[test]
    fn each_broken_promise_is_found_at_its_line() {
        let sequence = Sequence::new(0).unwrap();
        let ticket = Ticket { sequence, token: FencingToken(4) };
        let sent_at = Moment(Duration::from_millis(3));
        for (at_ms, event, why) in [
            (4, Event::Session(SessionEvent::Lost), "the clock goes back"),
            (5, Event::Woke, "it woke before"),
            (5, Event::Joined(ticket), "not asked in this session"),
            (5, Event::NoTicketFound, "not asked in this session"),
            (
                5,
                Event::PredecessorRead { predecessor: ticket, announcement: None, distance: None },
                "not asked",
            ),
            (5, Event::Committed { sent_at }, "not asked in this session"),
            (5, Event::HeadGone { head: sequence, sent_at }, "not asked in this session"),
            (
                5,
                Event::Session(SessionEvent::Resumed {
                    timeout: Duration::from_secs(9),
                    sent_at: Moment(Duration::from_millis(6)),
                }),
                "sent later",
            ),
        ] {
            let mut log = leader();
            log.step(at_ms, event.clone());
            let error = log.check().unwrap_err();
            assert!(error.starts_with("a.log:7: ") && error.contains(why), "{event:?}: {error}");
        }
        let mut log = leader();
        log.step(6, Event::Stop);
        log.step(7, Event::Session(SessionEvent::Lost));
        assert!(log.check().unwrap_err().contains("told to stop"));
    }

    #[test]
    fn each_altered_line_is_found() {
        for (at, (before, after)) in [
            (1, ("half_tick: 999.999ms", "half_tick: 5s")),
            (2, ("timeout: 10s", "timeout: 4s")),
            (3, ("Joined(Ticket", "TicketLost(Ticket")),
            (4, ("Claim {", "Relay {")),
            (5, ("left: ", "left: 1")),
            (5, ("Some(65)", "Some(66)")),
            (5, ("\"message\"", "\"massage")),
        ] {
            let mut log = leader();
            let altered = log.lines[at].replacen(before, after, 1);
            assert_ne!(log.lines[at], altered, "{before}");
            log.lines[at] = altered;
            let error = log.check().unwrap_err();
            // The error may only be noticed at a later line.
            let line: usize = error.split(':').nth(1).unwrap().parse().unwrap();
            assert!(line > at, "{before} in line {}: {error}", at + 1);
        }
    }

    #[test]
    fn a_term_may_have_the_token_of_the_one_before_only_after_a_refused_claim() {
        let mut log = leader();
        log.step(1005, Event::Woke);
        let sequence = Sequence::new(0).unwrap();
        let holder = ClaimOwner::Contender(Ticket { sequence, token: FencingToken(3) });
        let sent_at = Moment(Duration::from_millis(1005));
        log.step(1006, Event::ClaimRefused { holder, sent_at });
        log.step(3000, Event::Woke);
        log.step(3001, Event::QueueRead([sequence].into_iter().collect()));
        let claimed_at = Moment(Duration::from_millis(3001));
        log.step(3002, Event::Committed { sent_at: claimed_at });
        let checked = log.check().unwrap();
        let tokens: Vec<_> = checked.terms.iter().map(|term| term.token).collect();
        assert_eq!(tokens, [FencingToken(4); 2]);

        let mut replay = Replay::begin(&serde_json::from_str(&log.lines[1]).unwrap()).unwrap();
        replay.last_token = Some(FencingToken(4));
        let role = log.member.standing().at(claimed_at);
        assert!(replay.note_term(&role, claimed_at).unwrap_err().contains("not larger"));
    }

    #[test]
    fn two_terms_of_one_election_overlap_only_if_one_begins_before_the_other_ends() {
        let term = |election: &str, from, until| Term {
            election: election.to_owned(),
            id: "a".to_owned(),
            token: FencingToken(1),
            from: Moment(Duration::from_millis(from)),
            until: Moment(Duration::from_millis(until)),
        };
        assert_eq!(overlap(&[term("/e", 5, 9), term("/e", 0, 5), term("/f", 0, 9)]), None);
        assert_eq!(overlap(&[term("/e", 4, 9), term("/e", 0, 5)]), None, "one after a restart");
        let another = Term { id: "b".to_owned(), ..term("/e", 4, 9) };
        assert!(overlap(&[another, term("/e", 0, 5)]).is_some());
    }
}
