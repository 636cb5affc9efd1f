//! Formats a line of the log for people. Programs use the JSON format, which has every field.

use std::error::Error;
use std::fmt::{self, Debug};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};

/// Leaves out the fields of a protocol event: its text has them already.
pub(super) struct InWords;

struct Line<'a> {
    line: DefaultVisitor<'a>,
    of_an_event: bool,
}

impl<'a> FormatFields<'a> for InWords {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'a>, fields: R) -> fmt::Result {
        let line = DefaultVisitor::new(writer, true);
        let mut line = Line { line, of_an_event: false };
        fields.record(&mut line);
        line.line.finish()
    }
}

impl Line<'_> {
    /// The words come first, and then the name of the event.
    fn says(&mut self, field: &Field) -> bool {
        self.of_an_event |= field.name() == "event";
        !self.of_an_event
    }
}

impl Visit for Line<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.says(field) {
            self.line.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        if self.says(field) {
            self.line.record_error(field, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.says(field) {
            self.line.record_debug(field, value);
        }
    }
}
