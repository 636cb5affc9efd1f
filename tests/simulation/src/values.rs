//! A shared value that is written and read through all daemons.

use crate::clients::Question;
use crate::daemon::HttpAnswer;
use crate::history::History;
use crate::world::World;
use axum::http::Method;

/// A history of this length is judged, and another name is used.
const OPERATIONS_MAX: usize = 24;

#[derive(Debug, Default)]
pub struct Values {
    history: History,
    name: usize,
    written: u64,
}

/// Has a client read or write.
pub fn act(world: &mut World, machine: usize) {
    if world.clients.values.history.len() >= OPERATIONS_MAX {
        judge(world);
        let values = &mut world.clients.values;
        values.history = History::default();
        values.name += 1;
    }
    let values = &mut world.clients.values;
    let name = values.name;
    if world.random.bool() {
        values.written += 1;
        let text = values.written.to_string();
        let operation = values.history.begin_write(values.written);
        let uri = format!("/config/v{name}");
        let question = Question::PutValue { name, operation };
        world.ask(machine, Method::PUT, &uri, &text, question);
    } else {
        let operation = values.history.begin_read();
        let is_proved = if world.random.bool() { "?proved=1" } else { "" };
        let uri = format!("/config/v{name}{is_proved}");
        world.ask(machine, Method::GET, &uri, "", Question::GetValue { name, operation });
    }
}

/// Takes the answer to a write.
pub fn on_written(world: &mut World, name: usize, operation: usize, answer: &HttpAnswer) {
    let values = &mut world.clients.values;
    if name != values.name {
        return;
    }
    match answer.status {
        200 | 201 => values.history.wrote(operation),
        503 if answer.body.contains("unconfirmed") => {}
        _ => values.history.undone(operation),
    }
}

/// Takes the answer to a read.
pub fn on_read(world: &mut World, name: usize, operation: usize, answer: &HttpAnswer) {
    let values = &mut world.clients.values;
    if name != values.name {
        return;
    }
    match answer.status {
        200 => {
            let value = answer.body.parse().expect("a value is a number");
            values.history.read(operation, value);
        }
        404 => values.history.read(operation, 0),
        _ => values.history.undone(operation),
    }
}

/// Judges the history of the name that is in use.
pub fn judge(world: &mut World) {
    if let Err(violation) = world.clients.values.history.judge("a value") {
        world.fail(violation);
    }
}
