//! Prints output again whenever it has changed.

use super::{ClientError, OutputFormat, check_reader, print, remark};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// The interval between two reads.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The last output and the last remark.
pub(super) struct Screen {
    before: Separator,
    shown: Option<String>,
    remarked: Option<String>,
}

/// The separator before the next output.
#[derive(Clone, Copy)]
enum Separator {
    /// Clear the screen.
    Clear,
    /// An empty line.
    EmptyLine,
    Nothing,
}

impl Screen {
    pub(super) fn of(form: OutputFormat) -> Self {
        let before = match form {
            OutputFormat::Json => Separator::Nothing,
            _ if io::stdout().is_terminal() => Separator::Clear,
            _ => Separator::EmptyLine,
        };
        Self { before, shown: None, remarked: None }
    }

    /// Prints the text if it has changed.
    pub(super) fn show(&mut self, text: String) -> Result<(), ClientError> {
        check_reader()?;
        self.remarked = None;
        match self.next(text) {
            Some(text) => print(&text),
            None => Ok(()),
        }
    }

    /// Prints the error once, as a remark. Returns it instead if the output cannot be written, or if there was no answer
    /// before the first output.
    pub(super) fn fail(&mut self, trouble: ClientError) -> Result<(), ClientError> {
        check_reader()?;
        match (&trouble, &self.shown) {
            (ClientError::Unprintable(_), _) | (ClientError::Unanswered(_), None) => {
                return Err(trouble);
            }
            _ => {}
        }
        let why = trouble.message().unwrap_or_default();
        if self.remarked.as_ref() != Some(&why) {
            remark(&format!("{why}; trying again"));
            self.remarked = Some(why);
        }
        Ok(())
    }

    fn next(&mut self, text: String) -> Option<String> {
        if self.shown.as_ref() == Some(&text) {
            return None;
        }
        let before = match (self.before, &self.shown) {
            (Separator::Clear, _) => "\u{1b}[H\u{1b}[2J",
            (Separator::EmptyLine, Some(_)) => "\n",
            (Separator::EmptyLine, None) | (Separator::Nothing, _) => "",
        };
        let printed = format!("{before}{text}");
        self.shown = Some(text);
        Some(printed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_changed_is_not_printed_again() {
        let printed = |before| {
            let mut screen = Screen { before, shown: None, remarked: None };
            ["a\n", "a\n", "b\n"].map(|text| screen.next(text.into()).unwrap_or_default())
        };
        assert_eq!(printed(Separator::Nothing), ["a\n", "", "b\n"]);
        assert_eq!(printed(Separator::EmptyLine), ["a\n", "", "\nb\n"]);
        assert_eq!(printed(Separator::Clear), ["\u{1b}[H\u{1b}[2Ja\n", "", "\u{1b}[H\u{1b}[2Jb\n"]);
    }

    #[test]
    fn without_an_answer_it_ends_only_where_there_has_been_none() {
        let none = || ClientError::Unanswered("none".into());
        let mut screen = Screen { before: Separator::Nothing, shown: None, remarked: None };
        assert!(screen.fail(none()).is_err());
        assert!(screen.fail(ClientError::No("no".into())).is_ok());
        assert!(screen.next("a".into()).is_some());
        assert!(screen.fail(none()).is_ok());
    }
}
