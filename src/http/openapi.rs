//! The description of this API for programs, made from the handlers themselves.

use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::OpenApi;
use utoipa::openapi::header::Header;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Object, RefOr, SchemaFormat, Type};

#[derive(OpenApi)]
#[openapi(
    components(schemas(crate::api::Leadership)),
    info(
        title = "Bellwether",
        description = "Ask a sidecar who leads. Every reply has `X-Bellwether-Index`, which grows at each change of \
                   what this member tells, and `Cache-Control: no-store`. A member that listens on the \
                   loopback answers 421 to a request by a name that is none of the loopback, and 403 to one \
                   from a page of another site: these two are without the index.",
    ),
    servers((
        url = "http://{address}",
        variables(("address" = (
            default = "127.0.0.1:4040",
            description = "As `http.listen` says",
        ))),
    ))
)]
struct ApiDescription;

/// What there is to say besides the handlers.
pub(super) fn head() -> utoipa::openapi::OpenApi {
    let mut head = ApiDescription::openapi();
    let components = head.components.get_or_insert_default();
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme("token", token);
    head
}

/// The document, as it is sent.
pub(super) fn written(mut description: utoipa::openapi::OpenApi) -> Bytes {
    // A handler of several methods has one name, and each operation needs its own.
    for path in description.paths.paths.values_mut() {
        let operations =
            [&mut path.get, &mut path.head, &mut path.options, &mut path.post, &mut path.put];
        let operations = operations.into_iter().chain([&mut path.patch, &mut path.delete]);
        for operation in operations.flatten() {
            for response in operation.responses.responses.values_mut() {
                if let RefOr::T(response) = response {
                    response.headers.insert("X-Bellwether-Index".into(), index());
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
    let written = description.to_json().expect("it has nothing that JSON lacks");
    // The registry of OpenAPI's formats writes them without the hyphen.
    written.replace(r#""format":"u-int"#, r#""format":"uint"#).into()
}

fn index() -> RefOr<Header> {
    let index = Object::builder().schema_type(Type::Integer);
    let index = index.format(Some(SchemaFormat::Custom("uint64".into()))).minimum(Some(0));
    let what = "The index of what is told: pass it to `GET /leader?index=` to wait for a change";
    Header::builder().description(Some(what)).schema(Some(index)).build().into()
}

pub(super) fn told(document: Bytes) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document)
}

#[cfg(test)]
mod tests {
    use super::super::routes::of_api;
    use super::super::{DESCRIPTION, tests};
    use http_body_util::BodyExt;
    use serde_json::Value;
    use std::time::Duration;

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
                    let format = &answer["headers"]["X-Bellwether-Index"]["schema"]["format"];
                    assert_eq!(format, "uint64", "{method} {path}: {status}");
                }
            }
        }
        assert!(!document.to_string().contains("u-int"), "{document}");
        let stream = &document["paths"]["/events"]["get"]["responses"]["200"]["content"];
        let event = stream["text/event-stream"]["schema"]["$ref"].as_str().unwrap();
        let event = &document.pointer(event.trim_start_matches('#')).unwrap().to_string();
        assert!(event.contains("cause") && event.contains("role"), "{event}");
    }
}
