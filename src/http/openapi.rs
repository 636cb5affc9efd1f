//! The description of this API for programs, made from the handlers themselves.

use axum::http::header;
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};

/// Ask a Bellwether sidecar who leads. Every reply carries `X-Bellwether-Index`, which grows at
/// each change of what this member tells, and `Cache-Control: no-store`.
#[derive(OpenApi)]
#[openapi(info(title = "Bellwether"))]
struct Head;

/// What there is to say besides the handlers.
pub(super) fn head() -> utoipa::openapi::OpenApi {
    let mut head = Head::openapi();
    let components = head.components.get_or_insert_default();
    let header = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(
        "X-Bellwether",
        "Whatever it says; enough where no token is configured",
    )));
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme("header", header);
    components.add_security_scheme("token", token);
    head
}

/// The handler of `/openapi.json`.
pub(super) fn told<S: Send + 'static>(
    description: &utoipa::openapi::OpenApi,
) -> impl axum::handler::Handler<((),), S> {
    let json = description.to_json().expect("it has nothing that JSON lacks");
    let json = axum::body::Bytes::from(json);
    async move || ([(header::CONTENT_TYPE, "application/json")], json)
}
