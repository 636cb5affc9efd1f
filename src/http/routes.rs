//! Which paths each listener serves, and what it says of a path that it does not.
//!
//! A route is written once, above its handler: methods, path, parameters, answers, and whether it is a command, which
//! has to show a [`Permit`](super::gate::Permit). All that is said of routes elsewhere is made of that, or held
//! against it.

use super::{
    DESCRIPTION, Sight, events, health, history, leader, members, metrics, openapi, orders, page,
    patroni, profile, status, yes_or_no,
};
use axum::Router;
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;

/// Handlers with their descriptions.
pub(super) type ApiRouter = OpenApiRouter<Sight>;

/// What one listener serves.
pub(super) struct Served {
    pub(super) router: Router<Sight>,
    pub(super) paths: Vec<String>,
    /// What to ask instead of a path that is not there.
    pub(super) hint: String,
}

/// All of it, for the application.
pub(super) fn of_api() -> Served {
    let routes = ApiRouter::with_openapi(openapi::head())
        .merge(harmless())
        .merge(leader::routes())
        .merge(page::routes())
        .merge(events::routes())
        .merge(history::routes())
        .merge(status::routes())
        .merge(members::routes())
        .merge(profile::routes())
        .merge(patroni::routes())
        .merge(orders::routes());
    let (router, description) = routes.split_for_parts();
    let mut paths: Vec<_> = description.paths.paths.keys().cloned().collect();
    let hint = format!("there are {}; {DESCRIPTION} describes them", paths.join(", "));
    let document = openapi::written(description);
    let router = router.route(DESCRIPTION, get(async move || openapi::told(document.clone())));
    paths.push(DESCRIPTION.to_owned());
    Served { router, paths, hint }
}

/// What can do no harm, for callers from elsewhere.
pub(super) fn of_probes() -> Served {
    // Nobody may wait at this listener: the next ones would be kept out.
    let (router, description) = harmless().merge(leader::probes()).split_for_parts();
    let paths: Vec<_> = description.paths.paths.into_keys().collect();
    let hint = format!("the probes are {}; the rest is at http.listen", paths.join(", "));
    Served { router, paths, hint }
}

fn harmless() -> ApiRouter {
    ApiRouter::new()
        .merge(yes_or_no::routes())
        .merge(patroni::probes())
        .merge(health::routes())
        .merge(metrics::routes())
}
