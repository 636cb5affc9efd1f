//! Waits until there is a leader, over as many lives of the sidecar as it takes.

use super::sidecar::{Answer, Sidecar, TO_ANSWER};
use super::told::Told;
use super::{Form, Trouble, print, print_json, remark, views};
use hyper::Method;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// After this long one asks again, so that nobody waits long for a sidecar that is frozen.
const ROUND: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(250);

/// Who has to lead.
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
    let (answer, told) =
        answered.map_err(|limit| Trouble::No(format!("not within {limit:?}: {last}")))?;
    match (form, &told.leader) {
        (Form::People, Some(leader)) => {
            print(&format!("{}\n", views::sentence(leader, told.is_self)))
        }
        (Form::Scripts | Form::People, _) => print_json(answer.text()),
    }
}

/// Whoever drops it has waited long enough. `last` is why it has not ended.
async fn until_leads(sidecar: &Sidecar, whom: Whom, last: &mut String) -> (Answer, Told) {
    let mut seen = None;
    let mut troubled = false;
    loop {
        let (path, patience) = match seen {
            Some(index) => {
                let path = format!("/leader?index={index}&wait={}s", ROUND.as_secs());
                (path, ROUND + TO_ANSWER)
            }
            None => ("/leader".to_owned(), TO_ANSWER),
        };
        let answer = sidecar.ask(Method::GET, &path, patience).await;
        let told = answer.and_then(|answer| match answer.body::<Told>() {
            Err(Trouble::No(why)) => Ok(Err((why, answer.index()))),
            told => told.map(|told| Ok((answer, told))),
        });
        (*last, seen) = match told {
            Ok(Ok((answer, told))) => match &told.leader {
                Some(_) if whom == Whom::Anybody || told.is_self => return (answer, told),
                Some(leader) => (views::sentence(leader, false), Some(told.index)),
                None => ("nobody leads".to_owned(), Some(told.index)),
            },
            // Another index than before is news; the same one means that no more may wait there.
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
