//! The description of this API for programs, made from the handlers themselves.

use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

#[derive(OpenApi)]
#[openapi(
    components(schemas(crate::api::Leadership)),
    info(
        title = "Bellwether",
        description = "Ask a sidecar who leads. Every reply has `X-Bellwether-Index`, which grows at each change of \
                   what this member tells, and `Cache-Control: no-store`. A member that listens on the \
                   loopback answers 421 to a request by a name that is none of the loopback.",
    )
)]
struct Head;

/// What there is to say besides the handlers.
pub(super) fn head() -> utoipa::openapi::OpenApi {
    let mut head = Head::openapi();
    let components = head.components.get_or_insert_default();
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme("token", token);
    head
}

/// The document, as it is sent.
pub(super) fn written(mut description: utoipa::openapi::OpenApi) -> Bytes {
    // A handler of several methods has one name, and each operation needs its own.
    for path in description.paths.paths.values_mut() {
        let named = [(&mut path.head, "head"), (&mut path.options, "options")];
        for (operation, method) in named {
            let name = operation.as_mut().and_then(|operation| operation.operation_id.as_mut());
            if let Some(name) = name {
                *name = format!("{name}_{method}");
            }
        }
    }
    description.to_json().expect("it has nothing that JSON lacks").into()
}

pub(super) fn told(document: Bytes) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document)
}
