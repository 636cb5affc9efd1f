//! `GET /status`: everything that this member knows of itself.

use super::query::{NoQuery, Query};
use super::{AppState, problems};
use crate::api::{Restart, Session, Standby, Status, millis};
use crate::status::Snapshot;
use axum::Json;
use axum::extract::State;

/// Everything this member knows of itself.
pub(super) async fn status(State(app): State<AppState>, _: Query<NoQuery>) -> Json<Status> {
    let verdict = app.evaluate_and_claim();
    let Snapshot { standing, link, .. } = &*verdict.snapshot;
    let ticket = standing.ticket();
    let znodes = &app.names.znodes;
    // Copy the reports, and end this borrow before `problems::of_member` borrows the hooks: if a writer waits between
    // two borrows, and the first has not ended, neither the writer nor the second borrow can go on.
    let hooks =
        app.status.hooks.borrow().records.iter().map(|record| record.report.clone()).collect();
    Json(Status {
        id: standing.profile().id.to_string(),
        role: verdict.role_name(),
        election: app.names.election.clone(),
        path: app.names.path.clone(),
        znode: ticket.map(|ticket| znodes.name(ticket.sequence)),
        sequence: ticket.map(|ticket| ticket.sequence.number()),
        token: ticket.map(|ticket| ticket.token.0),
        predecessor: standing.predecessor().map(|predecessor| znodes.name(predecessor)),
        standby: standing.standby_readiness(verdict.now).map(|ready| Standby { ready }),
        leader: verdict.leader().map(|leader| app.leader(leader)),
        valid_for_ms: verdict.valid_for_ms(),
        priority: standing.priority().number(),
        paused: standing.is_paused(),
        session: Session {
            id: link.session.map(|(id, _)| id.to_string()),
            timeout_ms: link.session.map(|(_, timeout)| millis(timeout)),
            connected: link.connected,
            server: link.server.as_deref().filter(|_| link.connected).map(str::to_owned),
            problem: link.problem.clone(),
            restart: link.restart.map(|restart| Restart {
                down_for_ms: millis(restart.down_for),
                restarts: restart.restarts,
            }),
        },
        problems: problems::of_member(&app, &verdict),
        application: app.status.application.borrow().clone(),
        hooks,
        config: app.status.synced_files.borrow().clone(),
        locks: app.registry.locks(verdict.now),
        barriers: app.registry.barriers(verdict.now),
        index: verdict.index(),
        clock: app.lease_clock.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: millis(verdict.now.since(app.started.at)),
    })
}
