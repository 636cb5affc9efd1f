//! Waits until there is a leader, over as many lives of the sidecar as it takes.

use super::sidecar::{Answer, Sidecar, TO_ANSWER};
use super::{Form, Trouble, print, print_json, remark, views};
use crate::api::{LEADER, LeaderState};
use hyper::Method;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The client asks again after this long, so that it does not wait long for a sidecar that is frozen.
const ROUND: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(250);

/// Which member has to lead for the wait to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    Anybody,
    /// The member that is asked.
    Itself,
}

pub(super) async fn wait(
    sidecar: &Sidecar,
    whom: Whom,
    at_most: Option<Duration>,
    form: Form,
) -> Result<(), Trouble> {
    let mut last = "it has not been asked yet".to_owned();
    let until = until_leads(sidecar, whom, &mut last);
    let answered = match at_most {
        Some(limit) => timeout(limit, until).await.ok().ok_or(limit),
        None => Ok(until.await),
    };
    let (answer, state) =
        answered.map_err(|limit| Trouble::No(format!("not within {limit:?}: {last}")))?;
    match (form, &state.leader) {
        (Form::People, Some(leader)) => {
            print(&format!("{}\n", views::sentence(leader, state.is_self)))
        }
        (Form::Scripts | Form::People, _) => print_json(answer.text()),
    }
}

/// The caller drops this future when it has waited long enough. `last` is why it has not ended.
async fn until_leads(sidecar: &Sidecar, whom: Whom, last: &mut String) -> (Answer, LeaderState) {
    let mut seen = None;
    let mut troubled = false;
    loop {
        let (path, patience) = match seen {
            Some(index) => {
                let path = format!("{}?index={index}&wait={}s", LEADER.path, ROUND.as_secs());
                (path, ROUND + TO_ANSWER)
            }
            None => (LEADER.path.to_owned(), TO_ANSWER),
        };
        let answer = sidecar.ask(Method::GET, &path, patience).await;
        let read = answer.and_then(|answer| match answer.body::<LeaderState>() {
            Err(Trouble::No(why)) => Ok(Err((why, answer.index()))),
            state => state.map(|state| Ok((answer, state))),
        });
        (*last, seen) = match read {
            Ok(Ok((answer, state))) => match &state.leader {
                Some(_) if whom == Whom::Anybody || state.is_self => return (answer, state),
                Some(leader) => (views::sentence(leader, false), Some(state.index)),
                None => ("nobody leads".to_owned(), Some(state.index)),
            },
            // A new index is a change; the same one means that no more clients may wait at that sidecar.
            Ok(Err((why, index))) => (why, index.filter(|index| seen != Some(*index))),
            Err(trouble) => {
                let why = trouble.told().1.unwrap_or_default();
                if !troubled {
                    remark(&format!("{why}; waiting"));
                    troubled = true;
                }
                (why, None)
            }
        };
        if seen.is_none() {
            sleep(PAUSE).await;
        }
    }
}
