//! Files that packagers install with the program: shell completions and manual pages.

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::PathBuf;

#[derive(Subcommand)]
pub(super) enum PackagingCommand {
    /// Print the program's version.
    Version,
    /// Print the completions for a shell.
    ///
    /// For bash: `bellwether completions bash > /usr/share/bash-completion/completions/bellwether`.
    Completions { shell: Shell },
    /// Print the manual page, or write one for each command.
    Man(Manual),
}

#[derive(Args)]
pub(super) struct Manual {
    /// Write bellwether.1, bellwether-run.1 and the others into this directory instead
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

/// Returns the text to print, which is empty if the pages were written into a directory.
pub(super) fn written(
    packaging: PackagingCommand,
    mut command: Command,
) -> Result<Vec<u8>, String> {
    let mut text = vec![];
    match packaging {
        PackagingCommand::Version => {
            let kerberos = if cfg!(feature = "kerberos") { "with" } else { "without" };
            text.extend(command.render_version().trim_end().bytes());
            text.extend(format!(" ({kerberos} Kerberos)\n").bytes());
        }
        PackagingCommand::Completions { shell } => {
            clap_complete::generate(shell, &mut command, "bellwether", &mut text);
        }
        PackagingCommand::Man(Manual { to: None }) => {
            // The same page as in a directory.
            let mut command = command.disable_help_subcommand(true);
            command.build();
            Man::new(command).render(&mut text).expect("memory takes all");
        }
        PackagingCommand::Man(Manual { to: Some(directory) }) => {
            clap_mangen::generate_to(command, &directory).map_err(|error| {
                format!("--to: cannot write pages into {}: {error}", directory.display())
            })?;
        }
    }
    Ok(text)
}
