//! What may be asked of a member, by its own description: the lists of paths that tests go through.

use crate::member::Member;

/// What is at one path.
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) methods: Vec<String>,
    /// Whether the answer to GET has no end.
    is_stream: bool,
}

impl Route {
    /// Whether it answers GET, and comes to an end.
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
            path: path.clone(),
            methods: operations.keys().map(|method| method.to_uppercase()).collect(),
            is_stream: operations.get("get").is_some_and(|get| {
                get["responses"]["200"]["content"].get("text/event-stream").is_some()
            }),
        });
    }
    routes
}

/// The paths that answer GET, and come to an end.
pub(crate) fn questions(member: &Member) -> Vec<String> {
    let questions = routes(member).into_iter().filter(Route::is_question);
    questions.map(|route| route.path).collect()
}
