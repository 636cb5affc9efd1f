//! Formats the fields of log lines in the text format, for people. The JSON format, for programs, has every field.

use std::error::Error;
use std::fmt::{self, Debug};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};

/// Formats fields as `tracing` does, but omits `event` and the fields after it: the log line of a protocol event has a
/// text that contains their values already.
pub(super) struct TextFields;

/// Writes the fields that come before the field `event`, and omits `event` and all later fields.
struct UntilEvent<'a> {
    visitor: DefaultVisitor<'a>,
    event_seen: bool,
}

impl<'a> FormatFields<'a> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'a>, fields: R) -> fmt::Result {
        let visitor = DefaultVisitor::new(writer, true);
        let mut until_event = UntilEvent { visitor, event_seen: false };
        fields.record(&mut until_event);
        until_event.visitor.finish()
    }
}

impl UntilEvent<'_> {
    /// Goes on to this field, and returns whether to write it. In a protocol event, the text (`message`) comes first,
    /// then `event`, then the fields whose values the text contains.
    fn advance_to(&mut self, field: &Field) -> bool {
        self.event_seen |= field.name() == "event";
        !self.event_seen
    }
}

impl Visit for UntilEvent<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.advance_to(field) {
            self.visitor.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        if self.advance_to(field) {
            self.visitor.record_error(field, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.advance_to(field) {
            self.visitor.record_debug(field, value);
        }
    }
}
