//! One field of an answer's JSON, or the same field of each element of an array, for scripts without a parser of JSON.

use super::ClientError;
use super::text::{harmless_json, visible};
use serde_json::Value;

/// Where the field is: `leader.address`, `members.0.id` or `members.*.id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// Parses a path. `.members[*].id` means the same as `members.*.id`.
    pub fn new(written: &str) -> Self {
        let path = written.replace('[', ".").replace(']', "");
        Self(path.trim_start_matches(['$', '.']).to_owned())
    }

    /// Returns the values at the path, one per line.
    pub(super) fn pick(&self, json: &str) -> Result<String, ClientError> {
        let value: Value = serde_json::from_str(json)
            .map_err(|error| ClientError::Unanswered(format!("the answer is no JSON: {error}")))?;
        let mut found = vec![];
        collect(&value, &self.0, &mut found).map_err(ClientError::No)?;
        let has_wildcard = self.0.split('.').any(|part| part == "*");
        let lines: Result<Vec<_>, _> = found
            .into_iter()
            .map(|value| match value {
                Value::Null if has_wildcard => Ok("-".to_owned()),
                Value::Null => Err(ClientError::No(format!("{} is null", visible(&self.0)))),
                Value::String(text) => Ok(visible(text)),
                other => Ok(harmless_json(&other.to_string())),
            })
            .collect();
        Ok(lines?.into_iter().map(|line| line + "\n").collect())
    }
}

/// Collects the values at the path. The error names what is missing, and what there is at that place.
fn collect<'a>(value: &'a Value, path: &str, found: &mut Vec<&'a Value>) -> Result<(), String> {
    if path.is_empty() {
        found.push(value);
        return Ok(());
    }
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match value {
        Value::Array(all) if first == "*" => {
            all.iter().try_for_each(|each| collect(each, rest, found))
        }
        Value::Array(all) => match first.parse::<usize>().ok().and_then(|n| all.get(n)) {
            Some(each) => collect(each, rest, found),
            None => Err(format!("there is no element {}, of {}", visible(first), all.len())),
        },
        Value::Object(fields) => {
            // A label's key may have dots itself, so the longest part that is a field is taken.
            let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
            let named = ends.rev().find_map(|end| Some((end, fields.get(&path[..end])?)));
            match named {
                Some((end, field)) => collect(field, path[end..].trim_start_matches('.'), found),
                None => {
                    let known: Vec<_> = fields.keys().map(String::as_str).collect();
                    let known = visible(&known.join(", "));
                    Err(format!("there is no field {}; there are {known}", visible(first)))
                }
            }
        }
        Value::Null => Err(format!("there is no field {} of what is null", visible(first))),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(format!("there is no field {} of a plain value", visible(first)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_picked_by_its_path_and_one_that_is_not_there_is_named() {
        let json = r#"{"leader": {"id": "a\u001b", "address": null, "labels": {"app.io/x": "y"}},
            "members": [{"id": "a", "address": null}, {"id": "b", "address": "h:1"}], "index": 7}"#;
        let pick = |path: &str| match FieldPath::new(path).pick(json) {
            Ok(text) => text,
            Err(trouble) => trouble.told().1.expect("why not"),
        };
        for (path, picked) in [
            ("index", "7\n"),
            ("leader.id", "a\\u{1b}\n"),
            ("leader.labels.app.io/x", "y\n"),
            ("members.1.id", "b\n"),
            ("$.members[1].id", "b\n"),
            ("members.*.id", "a\nb\n"),
            (".members[*].address", "-\nh:1\n"),
            ("leader.labels", "{\"app.io/x\":\"y\"}\n"),
            ("leader.address", "leader.address is null"),
            ("leader.address.x", "there is no field x of what is null"),
            ("leader.ids", "there is no field ids; there are address, id, labels"),
            ("members.2", "there is no element 2, of 2"),
            ("index.x", "there is no field x of a plain value"),
        ] {
            assert_eq!(pick(path), picked, "{path}");
        }
    }
}
