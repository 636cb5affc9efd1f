//! Formats the fields of log lines in the text format, for people. The JSON format, for programs, has every field.

use std::error::Error;
use std::fmt::{self, Debug};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};

/// Formats fields as `tracing` does, but omits `event` and the fields after it: the log line of a protocol event has a
/// text that contains their values already.
pub(super) struct InWords;

/// Writes the fields that come before the field `event`, and omits `event` and all later fields.
struct UntilEvent<'a> {
    visitor: DefaultVisitor<'a>,
    event_seen: bool,
}

impl<'a> FormatFields<'a> for InWords {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'a>, fields: R) -> fmt::Result {
        let visitor = DefaultVisitor::new(writer, true);
        let mut until_event = UntilEvent { visitor, event_seen: false };
        fields.record(&mut until_event);
        until_event.visitor.finish()
    }
}

impl UntilEvent<'_> {
    /// Returns whether to write the field. In a protocol event, the text (`message`) comes first, then `event`, then the
    /// fields whose values the text contains.
    fn is_shown(&mut self, field: &Field) -> bool {
        self.event_seen |= field.name() == "event";
        !self.event_seen
    }
}

impl Visit for UntilEvent<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.is_shown(field) {
            self.visitor.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        if self.is_shown(field) {
            self.visitor.record_error(field, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.is_shown(field) {
            self.visitor.record_debug(field, value);
        }
    }
}
