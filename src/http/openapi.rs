//! The description of this API for programs.

use axum::http::header;
use axum::response::IntoResponse;

/// The description of the handlers; a test compares it with them.
const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use super::super::routes::{described, of_api};
    use super::super::{DESCRIPTION, tests};
    use super::DOCUMENT;
    use http_body_util::BodyExt;
    use serde_json::{Map, Value, json};
    use std::collections::BTreeMap;
    use std::fs;
    use std::time::Duration;
    use utoipa::openapi::content::Content;
    use utoipa::openapi::header::Header;
    use utoipa::openapi::path::{Operation, Parameter};
    use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
    use utoipa::openapi::{Object, OpenApi, Ref, RefOr, Schema, SchemaFormat, Type};
    use utoipa::{IntoParams, IntoResponses, OpenApi as _};
    use utoipa_axum::router::OpenApiRouter;

    const INDEX_NAME: &str = "Index";

    #[test]
    fn the_document_that_is_served_says_what_the_handlers_say() {
        let current = written(of_handlers());
        if current != DOCUMENT {
            fs::create_dir_all("target").expect("the repository can be written to");
            fs::write("target/openapi.json", current).expect("the directory exists");
            panic!("it is outdated: cp target/openapi.json src/http/openapi.json");
        }
    }

    #[tokio::test]
    async fn a_generator_of_clients_finds_what_it_needs() {
        let (service, _back) = tests::api(Duration::ZERO);
        let document = tests::ask(&service, DESCRIPTION).await.into_body().collect().await.unwrap();
        let document: Value = serde_json::from_slice(&document.to_bytes()).unwrap();
        assert_eq!(document["servers"][0]["variables"]["address"]["default"], "127.0.0.1:4040");
        assert_eq!(of_api().paths.len(), document["paths"].as_object().unwrap().len() + 1);
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                for (status, answer) in operation["responses"].as_object().unwrap() {
                    let index = &referred(&document, answer)["headers"]["X-Bellwether-Index"];
                    let format = &referred(&document, index)["schema"]["format"];
                    assert_eq!(format, "uint64", "{method} {path}: {status}");
                }
            }
        }
        assert!(!document.to_string().contains("u-int"), "{document}");
        let stream = &document["paths"]["/events"]["get"]["responses"]["200"]["content"];
        let event = referred(&document, &stream["text/event-stream"]["schema"]).to_string();
        assert!(event.contains("cause") && event.contains("role"), "{event}");
    }

    /// Returns what this value refers to, or itself.
    fn referred<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
        let place = value["$ref"].as_str().map(|place| place.trim_start_matches('#'));
        place.map_or(value, |place| document.pointer(place).expect("it is there"))
    }

    #[derive(utoipa::OpenApi)]
    #[openapi(
        components(schemas(
            crate::api::ConfigAbsent,
            crate::api::ConfigValue,
            crate::api::Leadership,
            crate::api::Problem
        )),
        info(
            title = "Bellwether",
            description = "Ask a sidecar who leads. Every reply has `X-Bellwether-Index`, which grows at each change of \
                       what this member tells, and `Cache-Control: no-store`. A member that listens on the \
                       loopback answers 421 to a request by a name that is none of the loopback, and 403 to one \
                       from a page of another site: these two are without the index. At `/config/{name}` it is \
                       a value's; `GET /config` and what is refused there and below have none, but for the 404 of an \
                       absent value.",
        ),
        servers((
            url = "http://{address}",
            variables(("address" = (
                default = "127.0.0.1:4040",
                description = "As `http.listen` says",
            ))),
        ), (
            url = "http://{address}/v1",
            description = "The same with the version of this API in each path",
            variables(("address" = (default = "127.0.0.1:4040"))),
        ))
    )]
    struct ApiDescription;

    /// The header that a command needs if no token is configured.
    #[derive(IntoParams)]
    #[into_params(parameter_in = Header)]
    #[expect(dead_code, reason = "it is a schema")]
    struct CommandHeaders {
        /// Any value. Needed if no token is configured.
        #[param(rename = "X-Bellwether")]
        header: Option<String>,
    }

    /// The refusals that all commands have in common.
    #[derive(IntoResponses)]
    #[expect(dead_code, reason = "they are schemas")]
    enum CommandRefusal {
        /// The request is not valid.
        #[response(status = 400)]
        BadRequest,
        /// A token is configured, and the command does not have it.
        #[response(status = 401)]
        Unauthorized,
        /// The header is missing, or the command comes from a web page.
        #[response(status = 403)]
        Forbidden,
        /// Not available now: `Retry-After` says when to try again.
        #[response(status = 503)]
        Unavailable,
    }

    /// The name of a lock, a barrier or a value.
    #[derive(IntoParams)]
    #[into_params(parameter_in = Path)]
    #[expect(dead_code, reason = "it is a schema")]
    struct RecipeName {
        /// 1 to 64 of `A-Z a-z 0-9 . _ -`
        name: String,
    }

    /// Adds parameters before those that the handler declares.
    fn add_parameters(operation: &mut Operation, parameters: Vec<Parameter>) {
        let declared = operation.parameters.get_or_insert_default();
        declared.splice(0..0, parameters.into_iter().map(RefOr::T));
    }

    /// Adds what all commands have in common. Every request that may change something is a command.
    fn describe_command(operation: &mut Operation) {
        add_parameters(operation, CommandHeaders::into_params(|| None));
        operation.responses.responses.extend(CommandRefusal::responses());
        let token = SecurityRequirement::new("token", [""; 0]);
        operation.security = Some(vec![SecurityRequirement::default(), token]);
    }

    fn of_handlers() -> OpenApi {
        let mut head = ApiDescription::openapi();
        let components = head.components.get_or_insert_default();
        let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("token", token);
        let mut description =
            OpenApiRouter::with_openapi(head).merge(described().described).into_openapi();
        // A handler of several methods has one name, and each operation needs its own.
        for (route, path) in &mut description.paths.paths {
            if route.contains("{name}") {
                let operations = [&mut path.get, &mut path.post, &mut path.put, &mut path.delete];
                for operation in operations.into_iter().flatten() {
                    add_parameters(operation, RecipeName::into_params(|| None));
                }
            }
            let commands = [&mut path.post, &mut path.put, &mut path.patch, &mut path.delete];
            commands.into_iter().flatten().for_each(describe_command);
            let operations =
                [&mut path.get, &mut path.head, &mut path.options, &mut path.post, &mut path.put];
            let operations = operations.into_iter().chain([&mut path.patch, &mut path.delete]);
            for operation in operations.flatten() {
                for (status, response) in &mut operation.responses.responses {
                    if let RefOr::T(response) = response {
                        response.headers.insert("X-Bellwether-Index".into(), index());
                        // An error is a problem document, unless it is declared to be something else.
                        if status.starts_with(['4', '5']) && response.content.is_empty() {
                            let problem = RefOr::<Schema>::Ref(Ref::from_schema_name("Problem"));
                            let content = Content::new(Some(problem)).into();
                            response.content.insert("application/problem+json".into(), content);
                        }
                    }
                }
            }
            let named = [(&mut path.head, "head"), (&mut path.options, "options")];
            for (operation, method) in named {
                let name = operation.as_mut().and_then(|operation| operation.operation_id.as_mut());
                if let Some(name) = name {
                    *name = format!("{name}_{method}");
                }
            }
        }
        description
    }

    /// Returns it as it is served: few lines enough to be small, and enough to show what has changed.
    fn written(description: OpenApi) -> String {
        let mut description =
            serde_json::to_value(description).expect("it has nothing that JSON lacks");
        share_repeated(&mut description);
        // The registry of OpenAPI's formats writes them without the hyphen.
        in_lines(&description, 3).replace(r#""format":"u-int"#, r#""format":"uint"#) + "\n"
    }

    /// Names the header of all responses, and each response that is there more than once, and has operations refer to them: the
    /// document is in the binary.
    fn share_repeated(description: &mut Value) {
        let mut counts = BTreeMap::<_, usize>::new();
        for response in responses(description) {
            let header = json!({"$ref": format!("#/components/headers/{INDEX_NAME}")});
            let index = response.pointer_mut("/headers/X-Bellwether-Index");
            *index.expect("every response has it") = header;
            *counts.entry(response.to_string()).or_default() += 1;
        }
        let mut shared = Map::new();
        for response in responses(description) {
            if counts[&response.to_string()] > 1 {
                let what = response["description"].as_str().expect("it has one");
                // Some of one description have another body.
                let mut name: String = what.split_whitespace().map(pascal).collect();
                while shared.get(&name).is_some_and(|other| other != response) {
                    name.push('_');
                }
                let reference = json!({"$ref": format!("#/components/responses/{name}")});
                shared.insert(name, std::mem::replace(response, reference));
            }
        }
        description["components"]["responses"] = shared.into();
        description["components"]["headers"] = json!({ INDEX_NAME: index() });
    }

    fn pascal(word: &str) -> String {
        let mut letters = word.chars().filter(char::is_ascii_alphanumeric);
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
    }

    fn responses(description: &mut Value) -> impl Iterator<Item = &mut Value> {
        let paths = description["paths"].as_object_mut().expect("it is an object").values_mut();
        let operations =
            paths.flat_map(|path| path.as_object_mut().into_iter().flat_map(Map::values_mut));
        operations
            .flat_map(|it| it["responses"].as_object_mut().into_iter().flat_map(Map::values_mut))
    }

    /// Returns JSON with a line for each value, so many levels deep.
    fn in_lines(value: &Value, levels: u32) -> String {
        match value {
            Value::Object(fields) if levels > 0 => {
                let field =
                    |(name, value)| format!("{}:{}", json!(name), in_lines(value, levels - 1));
                let fields: Vec<_> = fields.iter().map(field).collect();
                format!("{{\n{}\n}}", fields.join(",\n"))
            }
            value => value.to_string(),
        }
    }

    fn index() -> RefOr<Header> {
        let index = Object::builder().schema_type(Type::Integer);
        let index = index.format(Some(SchemaFormat::Custom("uint64".into()))).minimum(Some(0));
        let what = "The index of what is told: pass it on as `?index=` to wait for a change. At `/config/{name}` it is that of the name";
        Header::builder().description(Some(what)).schema(Some(index)).build().into()
    }
}
