//! The profile of this member, and changes to it by its application.

use super::authorize::Authorized;
use super::problem::ProblemResponse;
use super::query::{NoQuery, Query};
use super::{AppState, body};
use crate::api::{OwnProfile, Patch};
use crate::config;
use axum::Json;
use axum::extract::{Request, State};
use recipes::election::{Command, Priority, Profile};

const EXAMPLE: &str =
    r#"{"address": "host:port", "labels": {"changed": "value", "gone": null}, "priority": 70}"#;

/// The profile of this member.
pub(super) async fn own(State(app): State<AppState>, _: Query<NoQuery>) -> Json<OwnProfile> {
    Json(app.own_profile())
}

/// Changes address, labels and priority, without losing the place in the queue.
///
/// If this member leads, the change is relayed down the queue like a new leader's announcement. A restart discards it.
pub(super) async fn amend(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
    request: Request,
) -> Result<Json<OwnProfile>, ProblemResponse> {
    let patch: Patch = body::object(request, EXAMPLE).await?;
    // Apply patches one after another, because each is based on the result of the previous one.
    let _guard = app.amending.lock().await;
    let priority = patch.priority()?;
    if priority.is_some() && app.names.znodes.family().is_some() {
        let why =
            "priority has no effect among other clients' contenders (election.compatible_with)";
        return Err(ProblemResponse::unprocessable(why.to_owned()));
    }
    let profile = patch.applied_to(app.evaluate().snapshot.standing.profile());
    config::check_profile(&profile, &app.names.znodes)
        .map_err(|error| ProblemResponse::unprocessable(error.to_string()))?;
    let Profile { address, labels, .. } = profile;
    app.command(Command::UpdateProfile { address, labels }).await?;
    if let Some(priority) = priority {
        app.command(Command::SetPriority(priority)).await?;
    }
    Ok(Json(app.own_profile()))
}

impl Patch {
    /// Returns the new priority; `None` if the patch leaves the priority as it is. Fails if it is out of range.
    fn priority(&self) -> Result<Option<Priority>, ProblemResponse> {
        let priority = match self.priority {
            None => return Ok(None),
            Some(None) => Some(Priority::default()),
            Some(Some(number)) => u8::try_from(number).ok().and_then(Priority::new),
        };
        let why = "priority must be a number from 0 to 100, or null for 50";
        priority.map(Some).ok_or_else(|| ProblemResponse::unprocessable(why))
    }

    /// Returns the profile with this patch applied.
    fn applied_to(self, profile: &Profile) -> Profile {
        let mut profile = profile.clone();
        if let Some(address) = self.address {
            profile.address = address.filter(|address| !address.is_empty());
        }
        // `"labels": null` removes all labels.
        if self.labels == Some(None) {
            profile.labels.clear();
        }
        for (key, value) in self.labels.flatten().unwrap_or_default() {
            match value {
                Some(value) => profile.labels.insert(key, value),
                None => profile.labels.remove(&key),
            };
        }
        profile
    }
}

impl AppState {
    fn own_profile(&self) -> OwnProfile {
        let standing = &self.evaluate().snapshot.standing;
        let Profile { id, address, labels, revision } = (**standing.profile()).clone();
        let priority = standing.priority().number();
        OwnProfile { id: id.to_string(), address, labels, priority, revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::MemberId;
    use std::collections::BTreeMap;

    #[test]
    fn null_removes_a_value_and_what_is_left_out_stays() {
        let labels =
            BTreeMap::from([("zone", "a"), ("disk", "ssd")].map(|(k, v)| (k.into(), v.into())));
        let id = MemberId::new("a").unwrap();
        let before = Profile { id, address: Some("h:1".into()), labels, revision: 3 };
        let after = |patch: &str| {
            let patch: Patch = serde_json::from_str(patch).unwrap();
            let Profile { address, labels, .. } = patch.applied_to(&before);
            let labels: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            (address.unwrap_or_default(), labels.join(","))
        };
        let want = |address: &str, labels: &str| (address.to_owned(), labels.to_owned());
        assert_eq!(after("{}"), want("h:1", "disk=ssd,zone=a"));
        assert_eq!(after(r#"{"address":"h:2"}"#), want("h:2", "disk=ssd,zone=a"));
        assert_eq!(after(r#"{"address":null,"labels":null}"#), want("", ""));
        assert_eq!(after(r#"{"labels":{"zone":"b","disk":null}}"#), want("h:1", "zone=b"));
        assert!(serde_json::from_str::<Patch>(r#"{"id":"b"}"#).is_err(), "an id cannot be changed");
    }
}
