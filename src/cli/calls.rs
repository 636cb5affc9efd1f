//! A subcommand for each question and command of the terminal's lists.

use crate::terminal::{Call, ClientCommand};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

/// One call of a list, with its arguments.
pub(super) struct Listed<A> {
    call: &'static Call,
    arguments: A,
}

/// The arguments that every call of a list has.
pub(super) trait CallArguments: Args {
    const CALLS: &'static [Call];

    fn errand(self, call: &'static Call) -> Result<ClientCommand, String>;
}

impl<A: CallArguments> Listed<A> {
    pub(super) fn errand(self) -> Result<ClientCommand, String> {
        self.arguments.errand(self.call)
    }
}

impl<A: CallArguments> FromArgMatches for Listed<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let Some((name, given)) = matches.subcommand() else {
            return Err(Error::new(ErrorKind::MissingSubcommand));
        };
        let Some(call) = call_named::<A>(name) else {
            return Err(Error::new(ErrorKind::InvalidSubcommand));
        };
        Ok(Self { call, arguments: A::from_arg_matches(given)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: CallArguments> Subcommand for Listed<A> {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(A::CALLS.iter().map(|call| {
            let listed = A::augment_args(Command::new(call.name())).about(call.help);
            let listed = listed.visible_aliases(call.aliases);
            match call.more {
                Some(more) => listed.long_about(format!("{}.\n\n{more}", call.help)),
                None => listed,
            }
        }))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        call_named::<A>(name).is_some()
    }
}

/// Returns the call of this name, if the list has it.
fn call_named<A: CallArguments>(name: &str) -> Option<&'static Call> {
    A::CALLS.iter().find(|call| call.name() == name)
}

#[cfg(test)]
mod tests {
    use crate::terminal::{COMMANDS, QUESTIONS};
    use std::fs;

    #[test]
    fn the_documentation_has_each_question_and_command() {
        let text = fs::read_to_string("docs/reference/cli.md")
            .expect("tests run in the root of the crate");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
        let cells: Vec<_> = rows.filter_map(|row| row.split(" | ").next()).collect();
        for call in QUESTIONS.iter().chain(COMMANDS) {
            let name = format!("`{}`", call.name());
            assert!(cells.iter().any(|cell| cell.contains(&name)), "put {name} into the table");
        }
    }
}
