//! Whether this member leads or follows: the answer is the status.

use super::api_router::{ApiRouter, routes};
use super::problem::{BadRequest, Problem};
use super::{AppState, Verdict, claim, query};
use crate::api::{self, Leadership};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use utoipa::{IntoParams, IntoResponses};

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(is_leader)).routes(routes!(is_follower))
}

/// Whether this member leads at this very moment.
#[utoipa::path(get, path = api::IS_LEADER.path, params(ActivityQuery), responses(YesOrNo, BadRequest))]
pub(super) async fn is_leader(
    State(app): State<AppState>,
    asked: Uri,
) -> Result<Response, Problem> {
    let wants = ActivityQuery::wanted(&asked)?;
    Ok(app.answer(wants))
}

/// Whether this member is in the queue behind another.
#[utoipa::path(get, path = "/is-follower", responses(YesOrNo))]
async fn is_follower(State(app): State<AppState>) -> Response {
    app.answer(Verdict::follows)
}

/// `?active=1` asks for a leader whose application has taken up its work.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a schema")]
pub(super) struct ActivityQuery {
    /// `1`: no is the answer also until the leader's application has acknowledged.
    #[param(pattern = "^[01]$")]
    active: Option<String>,
}

impl ActivityQuery {
    /// # Errors
    /// The query makes no sense.
    fn wanted(asked: &Uri) -> Result<fn(&Verdict) -> bool, Problem> {
        const WRITE: &str = "?active=1";
        let [active] = query::values(asked, ["active"], WRITE)?;
        match active.as_deref() {
            None | Some("0") => Ok(Verdict::leads),
            Some("1") => Ok(|verdict| verdict.leads() && verdict.is_active()),
            Some(other) => {
                let wrong = format!("active={other:?} must be 1 or 0: write {WRITE}");
                Err(Problem::bad_request(wrong))
            }
        }
    }
}

/// The answer is the status; the body says why.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "they are schemas")]
pub(super) enum YesOrNo {
    /// Yes.
    #[response(status = 200)]
    Yes(Leadership),
    /// No.
    #[response(status = 503)]
    No(Leadership),
}

impl AppState {
    pub(super) fn answer(&self, is_so: impl Fn(&Verdict) -> bool) -> Response {
        let verdict = self.judge();
        claim::follow(&verdict);
        let status = if is_so(&verdict) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let (leader, until) = (verdict.leader(), self.valid_until(&verdict));
        let leadership = Leadership {
            is_leader: verdict.leads(),
            role: verdict.role_name(),
            active: verdict.leads() && verdict.is_active(),
            leader: leader.map(|leader| leader.leader.id.to_string()),
            token: leader.map(|leader| leader.ticket.token.0),
            valid_until_boottime_ns: until.map(|until| until.boottime_ns),
            valid_until_monotonic_ns: until.map(|until| until.monotonic_ns),
            reason: verdict.reason(),
        };
        (status, Json(leadership)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Scene;
    use super::super::tests::ask;
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn only_a_leader_is_active() {
        for path in ["/is-leader", "/is-follower"] {
            let mut scene = Scene::new();
            let active = async |scene: &Scene| {
                let body = ask(&scene.service, path).await.into_body().collect().await.unwrap();
                serde_json::from_slice::<Leadership>(&body.to_bytes()).unwrap().active
            };
            assert!(!active(&scene).await, "{path}: absent");
            scene.follows(4);
            assert!(!active(&scene).await, "{path}: another is, and not this one");
            scene.loses(5);
            scene.leads(6);
            assert!(active(&scene).await, "{path}");
        }
    }
}
