//! Prints output again whenever it has changed.

use super::{ClientError, OutputFormat, check_reader, print, remark};
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::time::sleep;

/// The interval between two reads.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads periodically, and prints each changed text. Ends if the output is closed, or if there was no answer at first.
pub(super) async fn repeat(
    form: OutputFormat,
    mut read: impl AsyncFnMut() -> Result<String, ClientError>,
) -> Result<(), ClientError> {
    let mut screen = Screen::of(form);
    loop {
        match read().await {
            Ok(text) => screen.show(text)?,
            Err(trouble) => screen.fail(trouble)?,
        }
        sleep(PAUSE).await;
    }
}

/// Clears the screen of a terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
const EMPTY_LINE: &str = "\n";

/// The last output and the last remark.
struct Screen {
    /// What separates outputs: nothing, an empty line between two, or [`CLEAR`] before each.
    separator: &'static str,
    shown: Option<String>,
    remarked: Option<String>,
}

impl Screen {
    fn of(form: OutputFormat) -> Self {
        let separator = match form {
            OutputFormat::Json => "",
            _ if io::stdout().is_terminal() => CLEAR,
            _ => EMPTY_LINE,
        };
        Self { separator, shown: None, remarked: None }
    }

    /// Prints the text if it has changed.
    fn show(&mut self, text: String) -> Result<(), ClientError> {
        check_reader()?;
        self.remarked = None;
        match self.next(text) {
            Some(text) => print(&text),
            None => Ok(()),
        }
    }

    /// Prints the error once, as a remark. Returns it instead if there was no answer before the first output.
    fn fail(&mut self, trouble: ClientError) -> Result<(), ClientError> {
        check_reader()?;
        if self.shown.is_none() && matches!(trouble, ClientError::Unanswered(_)) {
            return Err(trouble);
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
        let is_first = self.shown.is_none() && self.separator == EMPTY_LINE;
        let printed = format!("{}{text}", if is_first { "" } else { self.separator });
        self.shown = Some(text);
        Some(printed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_changed_is_not_printed_again() {
        let printed = |separator| {
            let mut screen = Screen { separator, shown: None, remarked: None };
            ["a\n", "a\n", "b\n"].map(|text| screen.next(text.into()).unwrap_or_default())
        };
        assert_eq!(printed(""), ["a\n", "", "b\n"]);
        assert_eq!(printed(EMPTY_LINE), ["a\n", "", "\nb\n"]);
        assert_eq!(printed(CLEAR), ["\u{1b}[H\u{1b}[2Ja\n", "", "\u{1b}[H\u{1b}[2Jb\n"]);
    }

    #[test]
    fn without_an_answer_it_ends_only_where_there_has_been_none() {
        let none = || ClientError::Unanswered("none".into());
        let mut screen = Screen { separator: "", shown: None, remarked: None };
        assert!(screen.fail(none()).is_err());
        assert!(screen.fail(ClientError::No("no".into())).is_ok());
        assert!(screen.next("a".into()).is_some());
        assert!(screen.fail(none()).is_ok());
    }
}
