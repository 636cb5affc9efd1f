//! What one member does about single events: rules that a scenario would take longer to show.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use bellwether_recipes::election::*;
use bellwether_recipes::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn at(ms: u64) -> Moment {
    Moment(Duration::from_millis(ms))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The lease lasts 6.89 s in a session of ten seconds, and 2.894 s in one of six.
fn member() -> Member {
    let margins = Margins { heartbeat: seconds(1), half_tick: seconds(1) };
    Member::new(profile("me"), Policy::new(margins))
}

fn profile(name: &str) -> Arc<Profile> {
    let id = MemberId::new(name).unwrap();
    Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision: 0 })
}

fn ticket(number: i32) -> Ticket {
    let token = FencingToken(number.unsigned_abs().into());
    Ticket { sequence: Sequence::new(number).unwrap(), token }
}

fn opened(timeout: Duration) -> Event {
    Event::Session(SessionEvent::Opened { session: SessionId(1), timeout, sent_at: at(0) })
}

fn queue(numbers: &[i32]) -> Event {
    Event::QueueRead(numbers.iter().map(|&n| ticket(n).sequence).collect())
}

fn renew(ahead: Option<i32>, sent_at: Moment) -> Action {
    Action::Renew { ahead: ahead.map(|number| ticket(number).sequence), sent_at }
}

fn read_head(number: i32, sent_at: Moment) -> Action {
    Action::ReadHead { head: ticket(number).sequence, sent_at }
}

fn refused(holder: ClaimOwner, sent_at: Moment) -> Event {
    Event::ClaimRefused { holder, sent_at }
}

fn gone(number: i32) -> Event {
    let Ticket { sequence, token } = ticket(number);
    Event::PredecessorGone { predecessor: sequence, token: Some(token) }
}

/// A member at the tail of a queue with these numbers.
fn in_queue(numbers: &[i32]) -> Member {
    let mut member = member();
    member.step(at(0), opened(seconds(10)));
    member.step(at(0), Event::Joined(ticket(*numbers.last().unwrap())));
    member.step(at(0), queue(numbers));
    member
}

fn leader() -> Member {
    let mut member = in_queue(&[1]);
    member.step(at(0), Event::Committed { sent_at: at(0) });
    member
}

/// A member at the tail, whose predecessor announces that the head leads.
fn follower(numbers: &[i32]) -> Member {
    let mut member = in_queue(numbers);
    let predecessor = ticket(numbers[numbers.len() - 2]);
    member.step(
        at(0),
        Event::PredecessorRead { predecessor, announcement: leads(numbers[0]), distance: None },
    );
    assert!(names(&member, numbers[0]));
    member
}

fn leads(number: i32) -> Option<Announcement> {
    Some(Announcement { leader: profile("first"), ticket: ticket(number) })
}

/// The own znode says who leads, and how many are ahead.
fn shows(leader: i32, ahead: usize) -> Action {
    let distance = Some(Distance::new(ahead));
    let data = ZnodeData::of(profile("me"));
    Action::Update(ZnodeData { announcement: leads(leader), distance, ..data })
}

fn names(member: &Member, number: i32) -> bool {
    member.standing().at(at(0)) == Role::Follower { leader: leads(number) }
}

fn names_none(member: &Member) -> bool {
    member.standing().at(at(0)) == Role::Follower { leader: None }
}

fn join() -> Action {
    Action::Join(ZnodeData::of(profile("me")))
}

/// When its lease ends.
fn leads_until(member: &Member, now: Moment) -> Moment {
    let Role::Leader { left, .. } = member.standing().at(now) else { panic!("no leader") };
    now.after(left)
}

#[test]
fn what_ends_a_term_is_judged_in_words_of_operations() {
    let ended = |member: &mut Member, now: Moment, event: Event| {
        let before = member.standing();
        member.step(now, event.clone());
        assert!(!matches!(member.standing().at(now), Role::Leader { .. }), "{event:?}");
        Cause::of(&event, &before, now).to_string()
    };
    let (resign, pause) = (Event::Command(Command::Resign), Event::Command(Command::Pause));
    let unhealthy = Event::Command(Command::ReportHealth { healthy: false });
    for (event, expected) in [
        (resign.clone(), "resigned"),
        (pause, "paused"),
        (unhealthy, "the application is not healthy"),
        (Event::Stop, "left"),
        (Event::Session(SessionEvent::Lost), "session expired"),
        (Event::TicketLost(ticket(1)), "the znode was deleted"),
        (refused(ClaimOwner::Gone, at(0)), "the claim was refused"),
    ] {
        assert_eq!(ended(&mut leader(), at(1000), event), expected);
    }
    for late in [
        Event::Woke,
        Event::Committed { sent_at: at(0) },
        Event::Session(SessionEvent::Lost),
        resign,
    ] {
        let why = ended(&mut leader(), at(7000), late);
        assert_eq!(why, "the lease ran out", "whatever comes after that");
    }
}

#[test]
fn a_resumption_with_a_shorter_timeout_cuts_this_lease_and_every_later_one() {
    let mut leader = leader();
    assert_eq!(leads_until(&leader, at(500)), at(6_890));
    let resumed = |timeout, sent_at| Event::Session(SessionEvent::Resumed { timeout, sent_at });
    leader.step(at(500), resumed(seconds(6), at(500)));
    assert_eq!(leads_until(&leader, at(500)), at(2_894));
    leader.step(at(600), resumed(seconds(10), at(600)));
    leader.step(at(1_000), Event::Committed { sent_at: at(1_000) });
    assert_eq!(leads_until(&leader, at(1_000)), at(3_894));
}

#[test]
fn a_resumption_makes_up_for_a_gap() {
    let late = |resumed: bool| {
        let mut leader = leader();
        if resumed {
            let timeout = seconds(10);
            leader.step(
                at(3_000),
                Event::Session(SessionEvent::Resumed { timeout, sent_at: at(3_000) }),
            );
        }
        leader.step(at(3_000), Event::Committed { sent_at: at(3_000) });
        leads_until(&leader, at(3_000))
    };
    assert_eq!(late(false), at(6_890));
    assert_eq!(late(true), at(9_890));
}

#[test]
fn a_leader_whose_answers_are_late_leads_on_by_a_shorter_lease() {
    let mut leader = leader();
    // The leases last 6.89 s and 4.89 s.
    for (sent_at, until) in [(900, 6_890), (1_800, 6_890), (2_700, 7_590)] {
        leader.step(at(sent_at + 600), Event::Committed { sent_at: at(sent_at) });
        assert_eq!(leads_until(&leader, at(sent_at + 600)), at(until));
    }
    // And by the longest lease again, once heartbeats have come close to each other for three seconds.
    for (sent_at, until) in [(3_600, 8_490), (4_500, 9_390), (5_400, 10_290), (6_300, 13_190)] {
        leader.step(at(sent_at), Event::Committed { sent_at: at(sent_at) });
        assert_eq!(leads_until(&leader, at(sent_at)), at(until));
    }
}

#[test]
fn a_lease_by_late_answers_is_cut_to_what_such_a_lease_would_have_been() {
    let mut leader = leader();
    leader.step(at(2_000), Event::Committed { sent_at: at(2_000) });
    leader.step(at(3_900), Event::Committed { sent_at: at(3_900) });
    assert_eq!(leads_until(&leader, at(3_900)), at(8_790));
    let resumed = |timeout| Event::Session(SessionEvent::Resumed { timeout, sent_at: at(4_000) });
    let mut cut = leader.clone();
    cut.step(at(4_000), resumed(seconds(8)));
    assert_eq!(leads_until(&cut, at(4_000)), at(6_792));
    // Six seconds allow for none.
    leader.step(at(4_000), resumed(seconds(6)));
    assert_eq!(leader.standing().at(at(4_000)), Role::Candidate);
}

#[test]
fn a_member_that_does_not_lead_sends_half_as_many_heartbeats_where_a_lease_allows_it() {
    let due = |timeout_ms, numbers: &[i32]| {
        let mut member = member();
        member.step(at(0), opened(Duration::from_millis(timeout_ms)));
        member.step(at(0), Event::Joined(ticket(*numbers.last().unwrap())));
        member.step(at(0), queue(numbers));
        let head = ticket(numbers[0]);
        member.step(at(0), Event::HeadRead { head, announcement: None, sent_at: at(0) });
        member.step(at(0), Event::Committed { sent_at: at(0) });
        member.wake_at().unwrap().0.as_millis()
    };
    let (normal, double) = (375..=500, 875..=1000);
    assert!(double.contains(&due(10_000, &[1, 2, 3])), "it waits");
    assert!(normal.contains(&due(6_000, &[1, 2, 3])), "no lease by heartbeats so far apart");
    assert!(double.contains(&due(10_000, &[1, 2])), "the standby");
    // The leases by heartbeats far apart are 3.001 s and 2.999 s: a standby's must have a heartbeat left when the
    // answer to the next, sent within a heartbeat, takes another.
    assert!(double.contains(&due(8_110, &[1, 2])));
    assert!(normal.contains(&due(8_106, &[1, 2])));
    assert!(normal.contains(&due(10_000, &[1])), "it claims");
}

#[test]
fn a_session_too_short_to_lead_in_is_closed() {
    let mut member = member();
    assert_eq!(member.step(at(0), opened(seconds(1))), [Action::CloseSession]);
    assert!(member.standing().is_session_too_short());
    assert_eq!(member.step(at(10_000), Event::Woke), [Action::OpenSession]);
}

#[test]
fn a_session_too_short_to_end_what_is_done_in_it_is_closed() {
    let opened_by = |reserve_ms| {
        let mut member = member().with_time_to_end(Duration::from_millis(reserve_ms));
        member.step(at(0), opened(seconds(10)))
    };
    // The lease lasts 6.89 s, and heartbeats are at most 1 s apart.
    assert_eq!(opened_by(5_889), [join()]);
    assert_eq!(opened_by(5_890), [Action::CloseSession]);
}

#[test]
fn a_disconnected_leader_holds_to_the_end_of_its_lease() {
    let mut leader = leader();
    assert_eq!(leader.step(at(0), Event::Session(SessionEvent::Disconnected)), []);
    assert_eq!(leads_until(&leader, at(500)), at(6_890));
}

#[test]
fn a_leader_that_left_the_queue_is_announced_no_more() {
    let mut last = in_queue(&[1, 2, 3]);
    let predecessor = ticket(2);
    last.step(
        at(0),
        Event::PredecessorRead { predecessor, announcement: leads(2), distance: None },
    );
    assert!(names(&last, 2));
    last.step(at(0), gone(2));
    assert!(names_none(&last), "its predecessor is gone");

    let mut third = follower(&[1, 2, 3]);
    third.step(at(0), Event::HeadGone { head: ticket(1).sequence, sent_at: at(0) });
    assert!(names_none(&third), "the head is gone");

    let mut fourth = follower(&[1, 2, 3, 4]);
    fourth.step(at(0), gone(3));
    assert!(names(&fourth, 1), "another one is gone");
    fourth.step(at(0), queue(&[2, 4]));
    assert!(names_none(&fourth), "the queue begins behind the leader");
}

#[test]
fn only_the_disappearance_of_the_predecessor_counts() {
    assert_eq!(follower(&[1, 2, 3]).step(at(0), gone(1)), []);
    assert_eq!(follower(&[1, 2, 3]).step(at(0), gone(2)), [Action::ReadQueue]);
}

#[test]
fn only_the_member_right_behind_the_head_is_first_when_it_is_gone() {
    let mut second = follower(&[1, 2]);
    assert!(matches!(second.step(at(0), gone(1))[..], [Action::Claim { .. }]));
    let mut third = follower(&[1, 2, 3]);
    third.step(at(0), Event::HeadGone { head: ticket(1).sequence, sent_at: at(0) });
    assert_eq!(third.step(at(0), gone(2)), [Action::ReadQueue]);
}

#[test]
fn a_lease_that_ran_out_is_known_to_have_ended_then_however_late_that_is_seen() {
    let leader = leader();
    let end = leads_until(&leader, at(0));
    assert_eq!(leader.standing().lapsed_at(at(0)), None);
    assert_eq!(leader.standing().lapsed_at(end.after(seconds(15))), Some(end));
    assert_eq!(follower(&[1, 2]).standing().lapsed_at(end.after(seconds(15))), None);
}

#[test]
fn a_claim_that_is_answered_too_late_to_lead_is_followed_by_a_renewal() {
    let mut first = in_queue(&[1]);
    assert_eq!(first.step(at(7_000), Event::Committed { sent_at: at(0) }), []);
    assert_eq!(first.standing().at(at(7_000)), Role::Candidate);
    assert_eq!(first.step(at(7_000), Event::Woke), [renew(None, at(7_000))]);
}

#[test]
fn the_index_grows_with_what_is_published_and_with_nothing_else() {
    let mut second = follower(&[1, 2]);
    let index = second.standing().index_at(at(0)).expect("it has joined");
    second.step(at(500), Event::Woke);
    assert_eq!(second.standing().index_at(at(0)), Some(index));
    second.step(at(500), gone(1));
    assert_eq!(second.standing().index_at(at(0)), Some(index + 1));

    let leader = leader().standing();
    let index = |at_ms| leader.index_at(at(at_ms)).expect("it has joined");
    assert_eq!(index(6_889) + 1, index(6_890));
}

/// A client that has an index of the earlier life would else miss what changes in the later one.
#[test]
fn the_index_of_a_later_life_is_larger_whatever_the_clock_shows_and_that_of_another_member_differs()
{
    let mut first = leader();
    let changes = |member: &mut Member| {
        [1, 2, 3].map(|revision| {
            let labels = BTreeMap::from([("revision".into(), revision.to_string())]);
            let update = Command::UpdateProfile { address: None, labels };
            member.step(at(0), Event::Command(update));
            member.standing().index_at(at(0)).expect("it has joined")
        })
    };
    let earlier = changes(&mut first);
    assert_eq!(earlier, [18, 19, 20]);

    let mut later = in_queue(&[2]);
    assert_eq!(member().standing().index_at(at(0)), None, "it has not joined");
    let mut indexes = vec![later.standing().index_at(at(0)).expect("it has joined")];
    later.step(at(0), Event::Committed { sent_at: at(0) });
    indexes.extend(changes(&mut later));
    assert_eq!(indexes, [32, 34, 35, 36]);
    later.step(at(0), Event::Session(SessionEvent::Lost));
    assert_eq!(later.standing().index_at(at(0)), Some(37), "out of the queue it goes on");
    later.step(at(0), opened(seconds(10)));
    later.step(at(0), Event::Joined(ticket(3)));
    later.step(at(0), queue(&[3]));
    later.step(at(0), Event::Committed { sent_at: at(0) });
    assert_eq!(later.standing().index_at(at(0)), Some(48));
}

/// The process before may have told that its lease ran out, which it had no time to note.
#[test]
fn the_index_goes_on_in_a_session_taken_over_and_is_unknown_until_then() {
    let mut before = leader();
    let record = before.session_record().expect("it has a session");
    let told = before.standing().index_at(at(60_000)).expect("it has joined");
    let mut after = member();
    assert_eq!(after.session_record(), None);
    let taken_over = Event::Session(SessionEvent::TakenOver {
        record,
        timeout: seconds(10),
        sent_at: at(5_000),
    });
    after.step(at(5_000), taken_over);
    after.step(at(5_000), found(1, None));
    assert_eq!(after.standing().index_at(at(5_000)), Some(told + 1));
    before.step(at(5_000), Event::Session(SessionEvent::Lost));
    before.step(at(5_000), opened(seconds(10)));
    assert_eq!(before.session_record().and_then(|record| record.index), Some(told));
}

#[test]
fn no_token_breaks_the_index() {
    for (token, index) in [(1_u64 << 48, (1 << 52) + 1), (i64::MAX.unsigned_abs(), 2)] {
        let mut member = member();
        let ticket = Ticket { token: FencingToken(token), ..ticket(1) };
        member.step(at(0), opened(seconds(10)));
        member.step(at(0), Event::Joined(ticket));
        member.step(at(0), queue(&[1]));
        member.step(at(0), Event::Committed { sent_at: at(0) });
        assert_eq!(member.standing().index_at(at(0)), Some(index));
    }
}

#[test]
fn a_lost_session_is_asked_for_anew() {
    assert_eq!(
        follower(&[1, 2]).step(at(0), Event::Session(SessionEvent::Lost)),
        [Action::OpenSession]
    );
    let lost = leader().step(at(0), Event::Session(SessionEvent::Lost));
    assert_eq!(lost, [Action::OpenSession]);
}

#[test]
fn only_the_ticket_that_is_held_can_be_lost() {
    let lose = |lost| follower(&[1, 2]).step(at(0), Event::TicketLost(lost));
    assert_eq!(lose(ticket(1)), []);
    assert_eq!(lose(Ticket { token: FencingToken(1), ..ticket(2) }), []);
    assert_eq!(lose(ticket(2)), [join()]);
}

#[test]
fn a_leader_whose_ticket_is_lost_ends_its_session_and_so_its_claim() {
    let lost = leader().step(at(0), Event::TicketLost(ticket(1)));
    assert_eq!(lost, [Action::CloseSession, Action::OpenSession]);
    let lost = in_queue(&[1]).step(at(0), Event::TicketLost(ticket(1)));
    assert_eq!(lost, [Action::CloseSession, Action::OpenSession], "its claim may be committed");
}

#[test]
fn a_member_that_is_not_in_the_queue_joins() {
    let actions = follower(&[1, 2]).step(at(0), queue(&[1, 3]));
    assert_eq!(actions, [join()]);
}

#[test]
fn a_member_behind_or_of_the_own_name_is_never_named_as_leader() {
    let after_announcement = |leader: &str, number, token| {
        let mut third = in_queue(&[1, 2, 3]);
        let predecessor = ticket(2);
        let ticket = Ticket { token: FencingToken(token), ..ticket(number) };
        let announcement = Some(Announcement { leader: profile(leader), ticket });
        third.step(at(0), Event::PredecessorRead { predecessor, announcement, distance: None });
        third
    };
    assert!(names(&after_announcement("first", 1, 1), 1));
    assert!(names_none(&after_announcement("first", 4, 4)));
    assert!(names_none(&after_announcement("first", 4, 1)), "whatever its token");
    assert!(names_none(&after_announcement("me", 1, 1)), "an earlier life of this member");
}

#[test]
fn a_leader_of_the_own_id_is_known_as_a_duplicate_id_until_none_is_ahead() {
    let after_announcement = |leader: &str| {
        let mut second = in_queue(&[1, 2]);
        let announcement = Some(Announcement { leader: profile(leader), ticket: ticket(1) });
        second.step(
            at(0),
            Event::PredecessorRead { predecessor: ticket(1), announcement, distance: None },
        );
        second
    };
    let duplicate_id = |member: &Member| member.standing().duplicate_id().map(|it| it.ticket);
    assert_eq!(duplicate_id(&after_announcement("first")), None);
    let mut second = after_announcement("me");
    assert_eq!(duplicate_id(&second), Some(ticket(1)));
    second.step(at(0), gone(1));
    assert_eq!(duplicate_id(&second), None, "it claims, or leads, itself");
}

/// Until the head is read, only the token shows that the announcement is a lie.
#[test]
fn a_token_larger_than_the_own_is_not_the_leaders() {
    let is_believed = |token| {
        let mut third = in_queue(&[1, 2, 3]);
        let ticket = Ticket { token: FencingToken(token), ..ticket(1) };
        let announcement = Some(Announcement { leader: profile("first"), ticket });
        third.step(
            at(0),
            Event::PredecessorRead { predecessor: self::ticket(2), announcement, distance: None },
        );
        !names_none(&third)
    };
    assert!(is_believed(2));
    assert!(!is_believed(3) && !is_believed(4));
}

/// Numbers begin anew when the path is created anew. Tokens never do.
#[test]
fn only_a_larger_token_than_that_of_the_leader_that_left_names_a_leader() {
    let after_announcement = |token| {
        let mut third = follower(&[1, 2, 3]);
        third.step(at(0), Event::HeadGone { head: ticket(1).sequence, sent_at: at(0) });
        let predecessor = ticket(2);
        let ticket = Ticket { token: FencingToken(token), ..ticket(2) };
        let announcement = Some(Announcement { leader: profile("first"), ticket });
        third.step(at(0), Event::PredecessorRead { predecessor, announcement, distance: None });
        third
    };
    assert!(names_none(&after_announcement(1)));
    assert!(names(&after_announcement(2), 2));
}

fn head_announces(member: &mut Member, sent_at: Moment, announcement: Option<Announcement>) {
    member.step(at(0), Event::HeadRead { head: ticket(1), announcement, sent_at });
}

#[test]
fn a_member_that_is_unhealthy_at_first_opens_no_session() {
    let mut member = member().unhealthy_at_first();
    assert_eq!(member.start(), []);
    assert_eq!(member.step(at(0), Event::Command(Command::ReportHealth { healthy: false })), []);
    assert_eq!(
        member.step(at(0), Event::Command(Command::ReportHealth { healthy: true })),
        [Action::OpenSession]
    );
}

/// The head's answer is the older one if the request was sent before the predecessor's announcement came.
#[test]
fn an_older_answer_of_the_head_contradicts_nothing() {
    let mut third = in_queue(&[1, 2, 3]);
    let predecessor = ticket(2);
    third.step(
        at(100),
        Event::PredecessorRead { predecessor, announcement: leads(1), distance: None },
    );
    head_announces(&mut third, at(0), None);
    assert!(names(&third, 1));
    head_announces(&mut third, at(101), None);
    assert!(names_none(&third));
}

/// A member that left the queue, and was announced as leader, may never have led.
#[test]
fn a_token_larger_than_the_heads_does_not_outlive_its_bearer() {
    let mut fourth = in_queue(&[1, 2, 3]);
    let predecessor = ticket(2);
    fourth.step(
        at(0),
        Event::PredecessorRead { predecessor, announcement: leads(2), distance: None },
    );
    fourth.step(at(0), gone(2));
    fourth.step(at(0), queue(&[1, 3]));
    assert!(names_none(&fourth));
    head_announces(&mut fourth, at(0), leads(1));
    assert!(names(&fourth, 1));
}

#[test]
fn numbers_and_tokens_grow_together_along_the_queue() {
    let is_believed = |number, token| {
        let mut fourth = in_queue(&[1, 2, 3, 9]);
        fourth.step(at(0), Event::HeadRead { head: ticket(1), announcement: None, sent_at: at(0) });
        let predecessor = ticket(3);
        let ticket = Ticket { token: FencingToken(token), ..ticket(number) };
        let leads = Announcement { leader: profile("first"), ticket };
        fourth.step(
            at(0),
            Event::PredecessorRead { predecessor, announcement: Some(leads), distance: None },
        );
        !names_none(&fourth)
    };
    assert!(is_believed(1, 1));
    assert!(is_believed(2, 5), "the head may be gone");
    for (number, token) in [(1, 2), (2, 1), (1, 0)] {
        assert!(!is_believed(number, token), "{number}, {token}");
    }
}

#[test]
fn behind_a_head_that_is_gone_the_next_is_asked_then_the_queue_is_read() {
    let head_gone = |n| Event::HeadGone { head: ticket(n).sequence, sent_at: at(0) };
    let mut fourth = follower(&[1, 2, 3, 4]);
    head_announces(&mut fourth, at(0), leads(1));
    let ask = read_head(2, at(0));
    assert_eq!(fourth.step(at(0), head_gone(1)), [ask]);
    assert_eq!(fourth.step(at(0), head_gone(2)), []);
    assert_eq!(fourth.step(at(1_000), Event::Woke), [Action::ReadQueue]);

    let mut second = follower(&[1, 2]);
    head_announces(&mut second, at(0), leads(1));
    let claims = second.step(at(0), head_gone(1));
    assert!(matches!(claims[..], [Action::Claim { .. }]), "no member is left ahead: {claims:?}");
}

#[test]
fn a_smaller_number_than_the_heads_is_passed_over() {
    let mut fourth = follower(&[3, 5, 6]);
    assert_eq!(fourth.step(at(0), gone(5)), [Action::ReadQueue]);
    fourth.step(at(0), queue(&[1, 3, 4, 6]));
    assert_eq!(fourth.standing().place(), Some(3), "behind the third and the fourth");
    assert_eq!(fourth.step(at(0), gone(4)), [Action::ReadQueue]);
    let ahead = fourth.step(at(0), queue(&[1, 3, 6]));
    assert_eq!(ahead, [Action::WatchPredecessor(ticket(3).sequence), shows(3, 1)]);
}

#[test]
fn after_a_lie_only_the_head_is_believed_until_it_is_another() {
    let mut fifth = in_queue(&[1, 2, 3, 4, 5]);
    let lie = |from: i32| Event::PredecessorRead {
        predecessor: ticket(from),
        announcement: leads(2),
        distance: None,
    };
    fifth.step(at(0), lie(4));
    assert!(names(&fifth, 2));
    head_announces(&mut fifth, at(1), leads(1));
    fifth.step(at(2), gone(4));
    fifth.step(at(2), queue(&[1, 2, 3, 5]));
    fifth.step(at(2), lie(3));
    assert!(names(&fifth, 1), "another false announcement, the same head");
    fifth.step(at(3), gone(3));
    fifth.step(at(3), queue(&[2, 5]));
    fifth.step(at(3), lie(2));
    assert!(names(&fifth, 2), "another head");
}

#[test]
fn a_member_whose_predecessor_leads_asks_whether_the_head_is_gone() {
    let asks_for_the_head = |numbers: &[i32], from, leader| {
        let predecessor = ticket(from);
        let mut last = in_queue(numbers);
        let read =
            Event::PredecessorRead { predecessor, announcement: leads(leader), distance: None };
        head_announces(&mut last, at(0), None);
        let actions = last.step(at(10), read);
        actions.contains(&read_head(1, at(10)))
    };
    assert!(asks_for_the_head(&[1, 2, 3], 2, 2));
    assert!(!asks_for_the_head(&[1, 2, 3], 2, 1), "the head leads");
    assert!(!asks_for_the_head(&[1, 2], 1, 1), "our predecessor is the head");
    assert!(!asks_for_the_head(&[1, 2, 3, 4], 3, 2), "another is next");
}

#[test]
fn where_the_next_head_is_not_known_the_queue_is_read() {
    let mut third = in_queue(&[1, 2, 3]);
    third.step(at(0), Event::HeadGone { head: ticket(1).sequence, sent_at: at(0) });
    assert_eq!(third.step(at(1_000), Event::Woke), [Action::ReadQueue]);
}

#[test]
fn a_standing_is_the_same_until_there_is_something_to_publish() {
    let mut third = in_queue(&[1, 2, 3]);
    head_announces(&mut third, at(0), leads(1));
    let before = third.standing();
    assert_eq!(third.step(at(1_000), Event::Woke).len(), 1);
    let sent_at = at(1_000);
    third.step(at(1_100), Event::HeadRead { head: ticket(1), announcement: leads(1), sent_at });
    assert_eq!(third.standing(), before);

    let mut leader = leader();
    let before = leader.standing();
    leader.step(at(500), Event::Woke);
    assert_eq!(leader.standing(), before);
    leader.step(at(600), Event::Committed { sent_at: at(500) });
    assert_ne!(leader.standing(), before, "its lease is longer");
}

#[test]
fn a_longer_lease_is_no_news_unless_the_one_before_has_ended() {
    let mut leader = leader();
    let before = leader.standing();
    let ends_at = leads_until(&leader, at(0));
    leader.step(at(500), Event::Woke);
    leader.step(at(600), Event::Committed { sent_at: at(500) });
    let longer = leader.standing();
    assert!(
        !longer.differs_for_readers(&before, at(600)),
        "its readers look again at the end of the other"
    );
    assert!(longer.differs_for_readers(&before, ends_at), "they have seen the end");
    assert!(before.differs_for_readers(&longer, at(600)), "they would look too late");
    let candidate = in_queue(&[1]).standing();
    assert!(
        before.differs_for_readers(&candidate, at(0))
            && candidate.differs_for_readers(&before, at(0))
    );
}

#[test]
fn what_changes_nothing_is_not_written() {
    let mut leader = leader();
    let mut write = |address: Option<&str>| {
        let (address, labels) = (address.map(str::to_owned), BTreeMap::new());
        leader.step(at(0), Event::Command(Command::UpdateProfile { address, labels })).len()
    };
    assert_eq!([write(None), write(Some("h:1")), write(Some("h:1")), write(None)], [0, 1, 0, 1]);
}

#[test]
fn an_older_write_proves_no_claim() {
    let mut second = follower(&[1, 2]);
    second.step(at(100), gone(1));
    second.step(at(100), queue(&[2]));
    second.step(at(200), Event::Committed { sent_at: at(0) });
    assert_eq!(second.standing().at(at(200)), Role::Candidate);
    second.step(at(200), Event::Committed { sent_at: at(100) });
    assert_eq!(leads_until(&second, at(200)), at(6_990));
}

#[test]
fn a_renewal_sent_at_the_moment_of_the_claim_does_not_count_as_the_claim() {
    let mut third = candidate();
    third.step(at(100), refused(ClaimOwner::Unknown, at(0)));
    let asked = third.step(at(1_000), Event::Woke);
    assert_eq!(asked, [renew(None, at(1_000)), Action::ReadQueue]);
    let actions = third.step(at(1_000), queue(&[3]));
    let [Action::Claim { sent_at, .. }] = &actions[..] else { panic!("{actions:?}") };
    third.step(at(1_010), Event::Committed { sent_at: at(1_000) });
    assert_eq!(third.standing().at(at(1_010)), Role::Candidate);
    third.step(at(1_020), Event::Committed { sent_at: *sent_at });
    assert!(matches!(third.standing().at(at(1_020)), Role::Leader { .. }));
}

#[test]
fn a_leader_without_an_answer_wakes_at_the_end_of_its_lease() {
    let mut leader = leader();
    leader.step(at(500), Event::Woke);
    assert_eq!(leader.wake_at(), Some(at(6_890)));
}

/// The second of two, with a lease by a write that was sent at the beginning.
fn standby() -> Member {
    let mut second = follower(&[1, 2]);
    second.step(at(0), Event::Committed { sent_at: at(0) });
    assert_eq!(second.standing().standby_readiness(at(0)), Some(true));
    second
}

fn leads_at(mut member: Member, now: Moment, event: Event) -> bool {
    let actions = member.step(now, event);
    assert!(matches!(actions[..], [Action::Claim { .. }]), "first, it claims: {actions:?}");
    matches!(member.standing().at(now), Role::Leader { .. })
}

#[test]
fn a_standby_leads_at_the_notification_if_enough_of_its_lease_is_left() {
    // The lease is 6.89 s, and a heartbeat of it is not enough.
    assert!(leads_at(standby(), at(5_889), gone(1)));
    assert!(!leads_at(standby(), at(5_890), gone(1)));
    assert!(!leads_at(standby(), at(6_890), gone(1)));
}

#[test]
fn a_standby_sends_a_write_for_its_heartbeat() {
    let sent_at = at(1_000);
    assert_eq!(
        standby().step(sent_at, Event::Woke),
        [renew(Some(1), sent_at)],
        "and asks for the head"
    );
}

#[test]
fn a_standby_needs_time_to_end_what_is_done_under_its_lease() {
    let mut second = member().with_time_to_end(seconds(2));
    second.step(at(0), opened(seconds(10)));
    second.step(at(0), Event::Joined(ticket(2)));
    second.step(at(0), queue(&[1, 2]));
    second.step(
        at(0),
        Event::PredecessorRead { predecessor: ticket(1), announcement: leads(1), distance: None },
    );
    second.step(at(0), Event::Committed { sent_at: at(0) });
    assert!(leads_at(second.clone(), at(3_889), gone(1)));
    assert!(!leads_at(second, at(3_890), gone(1)));
}

#[test]
fn a_predecessor_is_known_by_its_token() {
    let gone = |token| Event::PredecessorGone { predecessor: ticket(1).sequence, token };
    assert!(leads_at(standby(), at(100), gone(Some(FencingToken(1)))));
    assert!(!leads_at(standby(), at(100), gone(Some(FencingToken(0)))), "another znode");
    assert!(!leads_at(standby(), at(100), gone(None)), "none was watched there");

    let mut unread = in_queue(&[1, 2]);
    unread.step(at(0), Event::Committed { sent_at: at(0) });
    assert!(!leads_at(unread, at(100), gone(None)), "none was ever read there");
}

#[test]
fn a_predecessor_made_by_hand_is_followed_by_a_claim() {
    let predecessor = Ticket { token: FencingToken(3), ..ticket(1) };
    let mut second = in_queue(&[1, 2]);
    second.step(at(0), Event::PredecessorRead { predecessor, announcement: None, distance: None });
    second.step(at(0), Event::Committed { sent_at: at(0) });
    let Ticket { sequence, token } = predecessor;
    let gone = Event::PredecessorGone { predecessor: sequence, token: Some(token) };
    assert!(!leads_at(second, at(100), gone));
}

#[test]
fn an_answer_about_a_former_predecessor_says_nothing_of_the_present_one() {
    let mut third = in_queue(&[1, 2, 3]);
    third.step(at(0), gone(2));
    third.step(at(0), queue(&[1, 3]));
    third.step(
        at(0),
        Event::PredecessorRead { predecessor: ticket(1), announcement: leads(1), distance: None },
    );
    third.step(
        at(0),
        Event::PredecessorRead { predecessor: ticket(2), announcement: None, distance: None },
    );
    third.step(at(0), Event::Committed { sent_at: at(0) });
    assert!(leads_at(third, at(100), gone(1)));
}

#[test]
fn a_lease_ends_with_its_session() {
    let mut second = standby();
    second.step(at(100), Event::Session(SessionEvent::Lost));
    assert_eq!(second.standing().at(at(100)), Role::Absent);
    second.step(at(100), opened(seconds(10)));
    second.step(at(100), Event::Joined(ticket(3)));
    second.step(at(100), queue(&[1, 3]));
    second.step(
        at(100),
        Event::PredecessorRead { predecessor: ticket(1), announcement: leads(1), distance: None },
    );
    assert!(!leads_at(second, at(100), gone(1)));
}

#[test]
fn a_leader_tells_by_which_way_it_began_to_lead() {
    assert_eq!(leader().standing().acquired_by(), Some(AcquiredBy::Claim));
    let mut second = standby();
    assert_eq!(second.standing().acquired_by(), None);
    second.step(at(100), gone(1));
    assert_eq!(second.standing().acquired_by(), Some(AcquiredBy::Notification));
    second.step(at(200), Event::Committed { sent_at: at(100) });
    assert_eq!(second.standing().acquired_by(), Some(AcquiredBy::Notification));
}

/// With a timeout of 4.7 s the lease lasts 1.595 s: more than the heartbeat that must be left, but not for long.
#[test]
fn readiness_is_written_once_however_little_is_left_between_heartbeats() {
    let mut standby = member();
    standby.step(at(0), opened(Duration::from_millis(4_700)));
    standby.step(at(0), Event::Joined(ticket(2)));
    standby.step(at(0), queue(&[1, 2]));
    let is_update = |action: &Action| matches!(action, Action::Update(data) if data.ready);
    let committed =
        |member: &mut Member, ms| member.step(at(ms + 10), Event::Committed { sent_at: at(ms) });
    assert!(committed(&mut standby, 0).iter().all(is_update), "ready");
    for beat in 1..5 {
        let now = at(beat * 700);
        assert_eq!(standby.standing().standby_readiness(now), Some(false));
        assert_eq!(standby.step(now, Event::Woke), [renew(Some(1), now)]);
        assert_eq!(committed(&mut standby, beat * 700), []);
        assert_eq!(standby.standing().standby_readiness(now), Some(true));
    }
    let end = standby.step(at(4 * 700 + 1_600), Event::Woke);
    assert!(
        matches!(&end[..], [Action::Renew { .. }, Action::Update(data)] if !data.ready),
        "{end:?}"
    );
}

/// The third of a queue, first where its server lacks the others: it claims.
fn candidate() -> Member {
    let third = in_queue(&[3]);
    assert_eq!(third.standing().at(at(0)), Role::Candidate);
    assert_eq!(third.wake_at(), None, "its claim is under way");
    third
}

#[test]
fn a_member_whose_claim_is_refused_by_one_ahead_keeps_its_place_and_looks_for_it() {
    for holder in [ClaimOwner::Contender(ticket(1)), ClaimOwner::Unknown] {
        let mut third = candidate();
        let actions = third.step(at(100), refused(holder, at(0)));
        assert!(matches!(&actions[..], [Action::Update(data)] if data.announcement.is_none()));
        assert_eq!(third.standing().at(at(100)), Role::Follower { leader: None });
        assert!(third.wake_at().is_some_and(|at_| at_ <= at(1_000)));
        let asked = third.step(at(1_000), Event::Woke);
        assert_eq!(asked, [renew(None, at(1_000)), Action::ReadQueue]);
        let mut still_first = third.clone();
        let claims = still_first.step(at(1_001), queue(&[3]));
        assert!(matches!(claims[..], [Action::Claim { .. }]), "the other may have gone");
        let follows = third.step(at(1_001), queue(&[1, 3]));
        assert!(follows.contains(&Action::WatchPredecessor(ticket(1).sequence)));
    }
}

#[test]
fn a_member_whose_claim_is_refused_by_one_behind_or_is_gone_joins_anew() {
    let anew = [Action::CloseSession, Action::OpenSession];
    // Told apart by their tokens: a re-created path has the same numbers again.
    let behind = Ticket { token: FencingToken(4), ..ticket(1) };
    assert_eq!(candidate().step(at(0), refused(ClaimOwner::Contender(behind), at(0))), anew);
    assert_eq!(leader().step(at(0), refused(ClaimOwner::Gone, at(0))), anew);
}

#[test]
fn a_standby_that_leads_at_the_notification_stops_when_its_claim_is_refused() {
    let mut second = standby();
    assert!(matches!(second.step(at(500), gone(1))[..], [Action::Claim { .. }]));
    assert!(matches!(second.standing().at(at(500)), Role::Leader { .. }));
    second.step(at(510), refused(ClaimOwner::Contender(ticket(1)), at(500)));
    assert_eq!(second.standing().at(at(510)), Role::Follower { leader: None });
}

#[test]
fn a_leader_whose_claim_is_refused_offers_no_more() {
    let mut second = standby();
    second.step(at(500), gone(1));
    let target = ticket(3).sequence;
    let transfer = Event::Command(Command::Transfer { target, until: at(9000) });
    let offers = second.step(at(505), transfer);
    assert!(
        matches!(&offers[..], [Action::Update(data), Action::ReadTarget(_)] if data.offer.is_some())
    );
    let named = second.standing().target().map(|(offer, seen)| (offer.target, seen));
    assert_eq!(named, Some((target, TransferTarget::Awaited)));
    let refused = second.step(at(510), refused(ClaimOwner::Contender(ticket(1)), at(500)));
    assert!(matches!(&refused[..], [Action::Update(data)] if data.offer.is_none()));
    assert_eq!(second.standing().target(), None);
}

/// A leader that transfers leadership to a member of higher priority that it has seen for two seconds.
fn preemptible_leader() -> Member {
    let margins = Margins { heartbeat: seconds(1), half_tick: seconds(1) };
    let policy = Policy { preempt_after: Some(seconds(2)), ..Policy::new(margins) };
    let mut leader = Member::new(profile("me"), policy);
    for event in [opened(seconds(10)), Event::Joined(ticket(2)), queue(&[2, 3, 4])] {
        leader.step(at(0), event);
    }
    leader.step(at(0), Event::Committed { sent_at: at(0) });
    leader
}

fn priorities(members: &[(i32, u8)]) -> Event {
    let members = members.iter().map(|&(number, priority)| MemberPriority {
        member: ticket(number).sequence,
        id: MemberId::new(&format!("m{number}")).unwrap(),
        priority: Priority::new(priority).unwrap(),
    });
    Event::PrioritiesRead(members.collect())
}

/// Returns the number of the member that is to lead when these priorities have been read at these moments.
fn due(leader: &mut Member, members: &[(i32, u8)], moments: &[u64]) -> Option<i32> {
    for moment in moments {
        assert_eq!(leader.step(at(*moment), priorities(members)), []);
    }
    leader.standing().due_preemption().map(|member| member.number())
}

#[test]
fn a_leader_prefers_the_first_of_the_highest_priority_behind_it() {
    let times = [100, 1_100, 2_100];
    for (members, preferred) in [
        (&[(2, 50), (3, 51)][..], Some(3)),
        (&[(2, 50), (3, 50), (4, 49)], None),
        (&[(2, 90)], None),
        (&[(1, 90), (2, 50)], None),
        (&[(2, 50), (3, 60), (4, 90), (5, 90), (6, 70)], Some(4)),
    ] {
        let mut leader = preemptible_leader();
        assert_eq!(due(&mut leader, members, &times), preferred);
        let offers = leader.step(at(2_200), Event::Command(Command::Preempt { until: at(9_000) }));
        assert_eq!(!offers.is_empty(), preferred.is_some(), "{members:?}");
        assert_eq!(leader.standing().due_preemption(), None, "it is offered, if anything is");
    }
}

#[test]
fn a_member_that_was_seen_too_short_or_has_gone_is_not_preferred() {
    let preempt = || Event::Command(Command::Preempt { until: at(9_000) });
    let mut leader = preemptible_leader();
    assert_eq!(due(&mut leader, &[(3, 90)], &[100, 2_000]), None);
    assert_eq!(leader.step(at(2_500), preempt()), [], "it was too early when it was read");
    let both = [(3, 90), (4, 95)];
    assert_eq!(due(&mut leader, &both, &[2_600, 3_600]), None, "another's time is its own");
    leader.step(at(4_000), priorities(&[]));
    assert_eq!(due(&mut leader, &both, &[4_100, 6_000]), None, "it was gone meanwhile");
    assert_eq!(due(&mut leader, &both, &[6_100]), Some(4));
    let higher = Command::SetPriority(Priority::new(95).unwrap());
    leader.step(at(6_200), Event::Command(higher));
    assert_eq!(leader.step(at(6_300), preempt()), [], "it is no higher than its own by now");
}

#[test]
fn a_preferred_member_does_not_displace_the_target_that_an_operator_named() {
    let mut leader = preemptible_leader();
    assert_eq!(due(&mut leader, &[(4, 90)], &[100, 2_100]), Some(4));
    let target = ticket(3).sequence;
    leader.step(at(2_200), Event::Command(Command::Transfer { target, until: at(9_000) }));
    assert_eq!(leader.standing().due_preemption(), None);
    let preempt = Event::Command(Command::Preempt { until: at(9_000) });
    assert_eq!(leader.step(at(2_300), preempt), []);
    assert_eq!(leader.standing().target().map(|(offer, _)| offer.target), Some(target));
}

#[test]
fn a_leader_whose_claim_is_refused_prefers_none() {
    let mut second = standby();
    second.step(at(500), Event::Command(Command::SetPriority(Priority::LOWEST)));
    second.step(at(500), gone(1));
    assert_eq!(due(&mut second, &[(3, 50)], &[505, 3_000]), Some(3));
    second.step(at(3_010), refused(ClaimOwner::Contender(ticket(1)), at(500)));
    assert_eq!(second.standing().due_preemption(), None);
}

#[test]
fn a_member_that_does_not_lead_prefers_none() {
    let mut follower = follower(&[1, 2]);
    follower.step(at(0), Event::Command(Command::SetPriority(Priority::LOWEST)));
    assert_eq!(due(&mut follower, &[(3, 90)], &[100, 9_000]), None);
}

#[test]
fn a_leader_reads_the_priorities_behind_a_renewal_and_no_sooner_than_after_a_third_of_the_timeout()
{
    let mut leader = preemptible_leader();
    let mut read_at = vec![];
    for step in 0..100 {
        let now = at(step * 100);
        let actions = leader.step(now, Event::Woke);
        if let Some(place) = actions.iter().position(|it| *it == Action::ReadPriorities) {
            assert!(matches!(&actions[..place], [Action::Renew { .. }]), "{actions:?}");
            read_at.push(now);
        }
        if !actions.is_empty() {
            leader.step(now, Event::Committed { sent_at: now });
        }
    }
    assert!(read_at.len() > 1, "{read_at:?}");
    assert!(read_at.windows(2).all(|two| two[1].since(two[0]) >= seconds(10) / 3), "{read_at:?}");
}

#[test]
fn a_leader_hands_over_by_its_last_offer_alone() {
    let mut member = leader();
    let target = ticket(3).sequence;
    let [first, second] = [at(100), at(200)].map(|now| {
        member.step(now, Event::Command(Command::Transfer { target, until: at(9000) }));
        member.standing().target().expect("it leads").0
    });
    member.step(at(300), Event::TargetRead { target, accepted: Some(second) });
    for late in [Command::HandOver(first), Command::CancelTransfer(first)] {
        assert_eq!(member.step(at(300), Event::Command(late)), []);
        assert_eq!(member.standing().target(), Some((second, TransferTarget::Ready)));
    }
    let leaves = member.step(at(300), Event::Command(Command::HandOver(second)));
    assert_eq!(leaves, [Action::CloseSession, Action::OpenSession]);
}

#[test]
fn a_refusal_is_worth_no_lease_and_one_of_a_claim_given_up_means_nothing() {
    let mut third = candidate();
    third.step(at(0), refused(ClaimOwner::Contender(ticket(1)), at(0)));
    third.step(at(0), queue(&[1, 3]));
    assert_eq!(third.standing().standby_readiness(at(0)), Some(false));
    assert_eq!(third.step(at(1), refused(ClaimOwner::Contender(ticket(1)), at(0))), []);
    let anew = [Action::CloseSession, Action::OpenSession];
    assert_eq!(candidate().step(at(2), refused(ClaimOwner::Gone, at(1))), anew, "by a renewal");
    let mut again = candidate();
    again.step(at(0), refused(ClaimOwner::Unknown, at(0)));
    again.step(at(5), queue(&[3]));
    assert_eq!(again.step(at(6), refused(ClaimOwner::Unknown, at(0))), [], "of a claim before");
}

#[test]
fn a_head_that_belies_what_was_heard_is_proven_once() {
    // The turn of number 5 to ask a quorum in any case comes later.
    let mut third = follower(&[1, 2, 5]);
    head_announces(&mut third, at(0), leads(1));
    head_announces(&mut third, at(1), None);
    assert_eq!(third.step(at(3_000), Event::Woke), [renew(Some(1), at(3_000))]);
    third.step(at(3_000), Event::Committed { sent_at: at(3_000) });
    head_announces(&mut third, at(3_001), None);
    assert_eq!(third.step(at(6_000), Event::Woke), [read_head(1, at(6_000))]);
}

/// The last of this queue, as its server shows it; its predecessor announces that the first member leads, which is not in it.
fn behind_an_unlisted_leader() -> Member {
    let mut last = in_queue(&[2, 3, 4]);
    let predecessor = ticket(3);
    last.step(
        at(0),
        Event::PredecessorRead { predecessor, announcement: leads(1), distance: None },
    );
    last.step(at(0), Event::HeadRead { head: ticket(2), announcement: leads(1), sent_at: at(0) });
    assert!(names_none(&last));
    last
}

#[test]
fn a_leader_that_the_queue_does_not_show_is_proven_and_the_queue_read_again() {
    let mut last = behind_an_unlisted_leader();
    assert_eq!(last.step(at(3_000), Event::Woke), [read_head(1, at(3_000))]);
    let sent_at = at(3_000);
    let read = Event::HeadRead { head: ticket(1), announcement: leads(1), sent_at };
    assert_eq!(last.step(at(3_000), read), [Action::ReadQueue]);
    let queue = [1, 2, 3, 4].map(|number| ticket(number).sequence);
    last.step(at(3_000), Event::QueueRead(queue.into_iter().collect()));
    let read = Event::HeadRead { head: ticket(1), announcement: leads(1), sent_at };
    last.step(at(3_000), read);
    assert!(names(&last, 1));
}

/// The head that was is gone, and the one in its place, as its server shows the queue, does not lead.
#[test]
fn a_leader_that_the_queue_does_not_show_is_proven_also_if_it_was_believed_before() {
    let mut last = follower(&[1, 3, 4]);
    head_announces(&mut last, at(0), leads(1));
    let predecessor = ticket(3);
    last.step(
        at(0),
        Event::PredecessorRead { predecessor, announcement: leads(2), distance: None },
    );
    assert!(names(&last, 2));
    let sent_at = at(1_000);
    let head_gone = Event::HeadGone { head: ticket(1).sequence, sent_at };
    assert_eq!(last.step(sent_at, head_gone), [read_head(3, sent_at), shows(2, 1)]);
    last.step(sent_at, Event::HeadRead { head: predecessor, announcement: leads(2), sent_at });
    assert!(names_none(&last));
    last.step(sent_at, Event::Committed { sent_at });
    assert_eq!(last.step(at(3_000), Event::Woke), [read_head(2, at(3_000))]);
}

#[test]
fn a_leader_that_is_gone_is_asked_for_once_each_time_that_it_is_announced() {
    for other in [None, Some(FencingToken(77))] {
        let mut last = behind_an_unlisted_leader();
        assert_eq!(last.step(at(3_000), Event::Woke), [read_head(1, at(3_000))]);
        let sequence = ticket(1).sequence;
        let answer = match other {
            None => Event::HeadGone { head: sequence, sent_at: at(3_000) },
            // Another's znode stands there.
            Some(token) => {
                let head = Ticket { sequence, token };
                Event::HeadRead { head, announcement: None, sent_at: at(3_000) }
            }
        };
        assert_eq!(last.step(at(3_000), answer), []);
        assert!(names_none(&last));
        let next = last.wake_at().expect("a heartbeat is to come");
        assert_eq!(last.step(next, Event::Woke), [read_head(2, next)]);
        last.step(next, Event::HeadRead { head: ticket(2), announcement: None, sent_at: next });
        let predecessor = ticket(3);
        last.step(
            next,
            Event::PredecessorRead { predecessor, announcement: leads(1), distance: None },
        );
        let next = last.wake_at().expect("a heartbeat is to come");
        assert_eq!(last.step(next, Event::Woke), [read_head(1, next)]);
    }
}

/// How many of 256 heartbeats ask a quorum for the predecessor; all others read the head, which announces this.
fn checks(follower: &mut Member, announcement: &Option<Announcement>) -> usize {
    head_announces(follower, at(0), announcement.clone());
    let asks = |_: &i32| {
        let now = follower.wake_at().expect("a heartbeat is to come");
        let actions = follower.step(now, Event::Woke);
        let announcement = announcement.clone();
        match actions[..] {
            [Action::Renew { ahead, sent_at }] => {
                follower.step(now, Event::Committed { sent_at });
                ahead == Some(ticket(2).sequence)
            }
            [Action::ReadHead { head, sent_at }] => {
                assert_eq!(head, ticket(1).sequence);
                follower.step(now, Event::HeadRead { head: ticket(1), announcement, sent_at });
                false
            }
            _ => panic!("not a heartbeat: {actions:?}"),
        }
    };
    (0..256).filter(asks).count()
}

#[test]
fn a_quorum_is_asked_for_the_predecessor_once_in_six_session_timeouts() {
    for announcement in [leads(1), None] {
        let mut follower = follower(&[1, 2, 3]);
        let asked = checks(&mut follower, &announcement);
        let now = follower.wake_at().expect("a heartbeat is to come");
        let turns = now.0.as_secs() / 60;
        assert!((turns - 1..=turns + 1).contains(&(asked as u64)), "{asked} in {now:?}");
    }
}

/// The first heartbeat of the turn reads the next head, because the head is gone.
#[test]
fn a_heartbeat_of_another_kind_does_not_replace_the_check_of_a_turn() {
    let mut fourth = follower(&[1, 2, 3, 4]);
    head_announces(&mut fourth, at(0), leads(1));
    let first = fourth.wake_at().expect("a heartbeat is to come");
    assert_eq!(fourth.step(first, Event::Woke), [read_head(1, first)]);
    let later = at(61_000);
    let head = ticket(1).sequence;
    let actions = fourth.step(later, Event::HeadGone { head, sent_at: first });
    assert_eq!(actions, [read_head(2, later)]);
    let announcement = None;
    fourth.step(later, Event::HeadRead { head: ticket(2), announcement, sent_at: later });
    let next = fourth.wake_at().expect("a heartbeat is to come");
    assert_eq!(fourth.step(next, Event::Woke), [renew(Some(3), next)]);
}

/// The server at hand shows it still, and there is no other.
#[test]
fn a_predecessor_that_a_quorum_denies_is_gone() {
    let mut standby = standby();
    let head = ticket(1).sequence;
    let claims = standby.step(at(900), Event::HeadGone { head, sent_at: at(900) });
    assert!(matches!(claims[..], [Action::Claim { .. }]), "{claims:?}");
    assert_eq!(standby.standing().at(at(900)), Role::Candidate, "a quorum has to agree first");
    let mut third = follower(&[1, 2, 3]);
    let head = ticket(2).sequence;
    let reads = third.step(at(900), Event::HeadGone { head, sent_at: at(900) });
    assert_eq!(reads, [Action::ReadQueue]);
    // The server at hand lists it still, and the one ahead of it, which is gone as well.
    let watches = third.step(at(900), queue(&[1, 2, 3]));
    assert!(watches.contains(&Action::WatchPredecessor(ticket(1).sequence)), "{watches:?}");
    let head = ticket(1).sequence;
    let claims = third.step(at(1_800), Event::HeadGone { head, sent_at: at(900) });
    assert!(matches!(claims[..], [Action::Claim { .. }]), "{claims:?}");
}

/// That no server shows the head does not prove that it is gone: another server may list it.
#[test]
fn a_head_that_no_server_shows_is_listed_again() {
    let mut standby = standby();
    let head = ticket(1).sequence;
    standby.step(at(900), Event::HeadGone { head, sent_at: at(900) });
    let owner = ClaimOwner::NotShown;
    standby.step(at(900), Event::ClaimRefused { holder: owner, sent_at: at(900) });
    let watches = standby.step(at(900), queue(&[1, 2]));
    assert!(watches.contains(&Action::WatchPredecessor(head)), "{watches:?}");
}

/// Its znode is gone while its heartbeat is under way, which then is never answered.
#[test]
fn a_member_that_a_listing_does_not_show_forgets_its_heartbeat() {
    let mut third = follower(&[1, 2, 3]);
    assert_eq!(third.wake_at(), None, "its heartbeat reads the head");
    third.step(at(100), gone(2));
    assert!(matches!(third.step(at(100), queue(&[1]))[..], [Action::Join(_)]));
    third.step(at(100), Event::Joined(ticket(4)));
    let renews = third.step(at(100), queue(&[1, 4]));
    assert!(renews.contains(&renew(Some(1), at(100))), "{renews:?}");
}

/// The predecessor announced the leader that has left, and is gone as well.
#[test]
fn the_announcement_of_another_predecessor_is_not_asked_for() {
    let mut last = follower(&[1, 2, 3, 4]);
    head_announces(&mut last, at(0), leads(1));
    last.step(at(100), gone(3));
    assert!(last.step(at(100), queue(&[2, 4])).contains(&renew(Some(2), at(100))));
    last.step(at(100), Event::Committed { sent_at: at(100) });
    let next = last.wake_at().expect("a heartbeat is to come");
    let actions = last.step(next, Event::Woke);
    assert!(!actions.contains(&read_head(1, next)), "{actions:?}");
}

/// What the process before noted, in a session of ten seconds.
fn taken_over(known_until: Option<Moment>, timeout: Duration, sent_at: Moment) -> Event {
    let index = None;
    let record = SessionRecord { session: SessionId(1), timeout: seconds(10), known_until, index };
    Event::Session(SessionEvent::TakenOver { record, timeout, sent_at })
}

fn found(number: i32, announcement: Option<Announcement>) -> Event {
    let data = ZnodeData { announcement, ..ZnodeData::of(profile("me")) };
    Event::TicketFound { ticket: ticket(number), data: Some(data) }
}

/// A member that took its session over, asked for at five seconds and had at this moment, and that is first.
fn restarted(known_until: Option<Moment>, timeout: Duration, now: Moment) -> Member {
    let mut member = member();
    assert_eq!(member.step(now, taken_over(known_until, timeout, at(5_000))), [Action::FindTicket]);
    assert_eq!(member.step(now, found(1, None)), [Action::ReadQueue]);
    member.step(now, queue(&[1]));
    member.step(now, Event::Committed { sent_at: now });
    member
}

#[test]
fn a_session_taken_over_in_time_carries_a_lease_at_once_and_no_other_does() {
    let leads = |known_until, timeout, now| {
        let member = restarted(known_until, timeout, now);
        matches!(member.standing().at(now), Role::Leader { .. })
    };
    assert!(leads(Some(at(5_101)), seconds(10), at(5_100)));
    assert!(!leads(Some(at(5_100)), seconds(10), at(5_100)), "that is the end of what was known");
    assert!(!leads(None, seconds(10), at(5_100)));
    assert!(!leads(Some(at(5_101)), seconds(9), at(5_100)), "the servers grant less than before");
    assert!(leads(Some(at(5_101)), seconds(11), at(5_100)));
}

#[test]
fn a_session_taken_over_is_worth_no_more_than_its_smallest_timeout() {
    let member = restarted(Some(at(9_000)), seconds(60), at(5_100));
    assert_eq!(leads_until(&member, at(5_100)), at(5_100 + 6_890));
    let mut short = self::member();
    let actions = short.step(at(5_000), taken_over(None, seconds(3), at(5_000)));
    assert_eq!(actions, [Action::CloseSession]);
}

/// Sent at five seconds, and known to be regular from then on, as after a reconnect.
#[test]
fn what_a_process_notes_is_until_when_its_heartbeats_vouch_for_the_session() {
    let mut member = leader();
    let known_until = |member: &Member| member.session_record().expect("it has one").known_until;
    assert_eq!(known_until(&member), Some(at(6_890)));
    member.step(at(1_000), Event::Committed { sent_at: at(900) });
    assert_eq!(known_until(&member), Some(at(900 + 6_890)));
    // Too far apart for the longest lease, and not for the shorter one.
    member.step(at(2_500), Event::Committed { sent_at: at(2_400) });
    assert_eq!(known_until(&member), Some(at(2_400 + 4_890)));
    member.step(at(5_500), Event::Committed { sent_at: at(5_400) });
    assert_eq!(known_until(&member), None, "too far apart for either");
    member.step(at(6_000), Event::Command(Command::Resign));
    assert_eq!(member.session_record(), None);
}

#[test]
fn a_member_that_is_back_under_another_address_is_believed() {
    let mut member = member();
    member.step(at(5_000), taken_over(Some(at(9_000)), seconds(10), at(5_000)));
    let older =
        Profile { address: Some("old".into()), revision: 4, ..Profile::clone(&profile("me")) };
    let own = Announcement { leader: Arc::new(older.clone()), ticket: ticket(1) };
    let data = ZnodeData { announcement: Some(own.clone()), ..ZnodeData::of(Arc::new(older)) };
    let actions =
        member.step(at(5_000), Event::TicketFound { ticket: ticket(1), data: Some(data) });
    let [Action::ReadQueue, Action::Update(data)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((data.profile.revision, &data.profile.address), (5, &None));
    assert_eq!(
        data.announcement.as_ref(),
        Some(&own),
        "until it leads, the others read what they read"
    );
    let actions = member.step(at(5_000), queue(&[1]));
    let [Action::Claim { data, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(data.announcement.as_ref().map(|it| it.leader.revision), Some(5));
}

#[test]
fn a_session_without_a_znode_is_closed() {
    let mut member = member();
    member.step(at(5_000), taken_over(Some(at(9_000)), seconds(10), at(5_000)));
    let actions = member.step(at(5_000), Event::NoTicketFound);
    assert_eq!(actions, [Action::CloseSession, Action::OpenSession]);
}

/// The claim of the process before goes only with the session.
#[test]
fn a_session_that_was_taken_over_is_closed_when_its_znode_is_gone_from_the_queue() {
    let mut member = member();
    member.step(at(5_000), taken_over(Some(at(9_000)), seconds(10), at(5_000)));
    member.step(at(5_000), found(1, None));
    let actions = member.step(at(5_000), queue(&[2, 3]));
    assert_eq!(actions, [Action::CloseSession, Action::OpenSession]);
}

#[test]
fn a_member_that_is_back_is_no_duplicate_id_of_itself() {
    let mut member = member();
    member.step(at(5_000), taken_over(Some(at(9_000)), seconds(10), at(5_000)));
    let announcement = Announcement { leader: profile("me"), ticket: ticket(3) };
    member.step(at(5_000), found(3, Some(announcement)));
    assert_eq!(member.standing().duplicate_id(), None);
    member.step(at(5_000), queue(&[2, 3]));
    assert_eq!(member.standing().duplicate_id(), None, "also where another has come before");
}

#[test]
fn only_the_own_announcement_of_a_znode_that_is_found_resumes_a_term() {
    let announced = |number| Some(Announcement { leader: profile("me"), ticket: ticket(number) });
    assert_eq!(found(3, announced(3)).resumed_term(), Some(FencingToken(3)));
    assert_eq!(found(3, announced(2)).resumed_term(), None, "it followed another");
    assert_eq!(found(3, None).resumed_term(), None);
    assert_eq!(Event::NoTicketFound.resumed_term(), None);
}

/// They know nothing of priority, and nothing of transfers.
#[test]
fn a_member_among_others_reads_no_priorities() {
    let lowest = |member: Member| member.of_priority(Priority::LOWEST);
    let wakes = |mut member: Member| {
        member.step(at(0), opened(seconds(10)));
        member.step(at(0), Event::Joined(ticket(1)));
        member.step(at(0), queue(&[1]));
        member.step(at(0), Event::Committed { sent_at: at(0) });
        member.step(at(1_000), Event::Woke)
    };
    assert!(wakes(lowest(member())).contains(&Action::ReadPriorities));
    let among = lowest(member()).among_others();
    assert!(!wakes(among).contains(&Action::ReadPriorities));
}

#[test]
fn a_leader_among_others_makes_no_offer() {
    let mut member = member().among_others();
    member.start();
    member.step(at(0), opened(seconds(10)));
    member.step(at(0), Event::Joined(ticket(1)));
    member.step(at(0), queue(&[1, 2]));
    member.step(at(0), Event::Committed { sent_at: at(0) });
    assert!(member.standing().acquired_by().is_some());
    let transfer = Command::Transfer { target: ticket(2).sequence, until: at(9_000) };
    assert_eq!(member.step(at(0), Event::Command(transfer)), []);
    assert_eq!(member.standing().target(), None);
}

/// A session that sent no heartbeats for long has no lease to lead by.
#[test]
fn a_member_that_is_kept_out_reads_again_and_joins_in_a_new_session() {
    let mut member = member();
    member.step(at(0), Event::Foreign { keep_out: true });
    assert_eq!(member.step(at(0), opened(seconds(10))), [Action::ReadQueue]);
    assert_eq!(member.step(at(0), queue(&[1])), []);
    let recheck_at = member.wake_at().unwrap();
    assert!((at(1_000)..at(2_000)).contains(&recheck_at));
    assert_eq!(member.step(recheck_at, Event::Woke), [Action::ReadQueue]);
    assert_eq!(member.step(recheck_at, queue(&[1])), []);
    let let_in = member.step(at(60_000), Event::Foreign { keep_out: false });
    assert_eq!(let_in, [Action::CloseSession, Action::OpenSession]);
}

#[test]
fn a_member_that_is_kept_out_joins_when_it_is_let_in_and_no_sooner() {
    let anew = [Action::CloseSession, Action::OpenSession];
    let mut member = member();
    member.start();
    member.step(at(0), opened(seconds(10)));
    assert_eq!(member.step(at(0), Event::Foreign { keep_out: true }), anew);
    assert_eq!(member.step(at(0), opened(seconds(10))), [Action::ReadQueue]);
    assert_eq!(member.step(at(0), queue(&[])), []);
    let healthy = |healthy| Event::Command(Command::ReportHealth { healthy });
    assert_eq!(member.step(at(0), healthy(true)), []);
    let joins = |actions: &[Action]| matches!(actions, [Action::Join(_)]);
    assert!(joins(&member.step(at(0), Event::Foreign { keep_out: false })));
    assert_eq!(member.step(at(0), Event::Foreign { keep_out: true }), anew);
    let actions = member.step(at(0), taken_over(Some(at(9_000)), seconds(10), at(0)));
    assert_eq!(actions, anew, "what it had in the queue goes with the session");
}
