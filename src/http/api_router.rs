//! Routes that are written once, above their handlers.

use super::AppState;
use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use std::collections::BTreeSet;
use utoipa::Path;
use utoipa_axum::PathItemExt;

/// Handlers at the paths and for the methods that `#[utoipa::path]` above them says.
///
/// All else that it says is made into a document by tests alone, which compare that with the one that is served: to make
/// it in each process took a quarter of a sidecar's memory.
#[derive(Default)]
pub(super) struct ApiRouter {
    router: Router<AppState>,
    paths: BTreeSet<String>,
    #[cfg(test)]
    pub(super) described: utoipa_axum::router::OpenApiRouter<AppState>,
}

impl ApiRouter {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn routes(self, routes: Self) -> Self {
        self.merge(routes)
    }

    pub(super) fn merge(mut self, mut other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.paths.append(&mut other.paths);
        #[cfg(test)]
        {
            self.described = self.described.merge(other.described);
        }
        self
    }

    /// Adds a handler where its description, a type that `#[utoipa::path]` has made, says.
    pub(super) fn with<P: Path, H: Handler<T, AppState>, T: 'static>(
        mut self,
        handler: H,
        _: P,
    ) -> Self {
        let methods = P::methods();
        let filters = methods.iter().map(PathItemExt::to_method_filter);
        let filter = filters.reduce(MethodFilter::or).expect("each route has a method");
        self.router = self.router.route(&P::path(), on(filter, handler));
        self.paths.insert(P::path());
        self
    }

    pub(super) fn split(self) -> (Router<AppState>, Vec<String>) {
        (self.router, self.paths.into_iter().collect())
    }
}

/// Makes an [`ApiRouter`] of handlers.
macro_rules! routes {
    ($($handler:ident),+ $(,)?) => {{
        let routes = $crate::http::api_router::ApiRouter::new();
        $(let routes = utoipa_axum::paste! { routes.with($handler, [<__path_ $handler>]) };)+
        #[cfg(test)]
        let routes = {
            let mut routes = routes;
            routes.described = routes.described.routes(utoipa_axum::routes!($($handler),+));
            routes
        };
        routes
    }};
}
pub(super) use routes;
