//! Formats log lines for people. Programs read the JSON format, which has every field.

use std::error::Error;
use std::fmt::{self, Debug};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};

/// Omits the fields of a protocol event, because its text contains them already.
pub(super) struct InWords;

/// Writes the fields before `event`, and omits that field and all later ones.
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
    /// Returns whether to write the field. The text comes first, then `event`, then the fields that the text contains
    /// already.
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
