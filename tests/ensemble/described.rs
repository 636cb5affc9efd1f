//! The paths of a member's API, taken from its own description, for tests that go through all of them.

use crate::member::Member;

/// One path of the API, with something for each of its parameters.
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) methods: Vec<String>,
    /// Whether the answer to GET has no end.
    is_stream: bool,
}

impl Route {
    /// Returns whether it answers GET with a body that ends.
    pub(crate) fn is_question(&self) -> bool {
        self.methods.iter().any(|method| method == "GET") && !self.is_stream
    }
}

pub(crate) fn routes(member: &Member) -> Vec<Route> {
    let document = member.get("/openapi.json").json();
    let mut routes = vec![Route {
        path: "/openapi.json".to_owned(),
        methods: vec!["GET".to_owned()],
        is_stream: false,
    }];
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let operations = operations.as_object().expect("operations by method");
        routes.push(Route {
            path: path.replace("{name}", "migrate").replace("{lock}", "1f"),
            methods: operations.keys().map(|method| method.to_uppercase()).collect(),
            is_stream: operations.get("get").is_some_and(|get| {
                get["responses"]["200"]["content"].get("text/event-stream").is_some()
            }),
        });
    }
    routes
}

/// Returns the paths that answer GET with a body that ends.
pub(crate) fn questions(member: &Member) -> Vec<String> {
    let questions = routes(member).into_iter().filter(Route::is_question);
    questions.map(|route| route.path).collect()
}
