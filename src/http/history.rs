//! The last terms, as far as this member has heard of them.

use super::Sight;
use super::routes::ApiRouter;
use super::verdict::millis;
use crate::api::{self, History, Term};
use crate::desk::{Chronicle, Recorded};
use axum::Json;
use axum::extract::State;
use utoipa_axum::routes;

/// At most this many terms are told, the newest last.
const TERMS: usize = 100;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(history))
}

/// Who led when, as far as this member has heard: the last 100 terms, the newest last.
#[utoipa::path(get, path = api::HISTORY.path, responses(
    (status = 200, description = "The terms", body = History),
))]
async fn history(State(sight): State<Sight>) -> Json<History> {
    let terms = terms(&sight.judge().report.chronicle);
    let surplus = terms.len().saturating_sub(TERMS);
    Json(History { terms: terms.into_iter().skip(surplus).collect() })
}

fn terms(chronicle: &Chronicle) -> Vec<Term> {
    let mut terms: Vec<Term> = vec![];
    let mut led_before = None;
    for Recorded { at, change, cause, down_for, .. } in chronicle.iter() {
        let view = change.view();
        let token = view.leader().map(|leader| leader.ticket.token);
        if token == led_before {
            continue;
        }
        if let Some(last) = terms.last_mut().filter(|last| last.to.is_none()) {
            last.to = Some(api::date(*at));
            last.ended = Some(cause.clone());
        }
        if let Some(leader) = view.leader() {
            terms.push(Term {
                id: leader.leader.id.to_string(),
                token: leader.ticket.token.0,
                is_self: view.own_term().is_some(),
                from: api::date(*at),
                to: None,
                ended: None,
                down_for_ms: down_for.map(millis),
            });
        }
        led_before = token;
    }
    terms
}
