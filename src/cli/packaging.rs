//! Files that packagers install with the program: shell completions and manual pages.

use clap::{Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::{Path, PathBuf};
use std::{fs, io};

#[derive(Subcommand)]
pub(super) enum PackagingCommand {
    /// Print the program's version.
    Version,
    /// Print the completions for a shell.
    ///
    /// For bash: `bellwether completions bash > /usr/share/bash-completion/completions/bellwether`.
    Completions { shell: Shell },
    /// Print the manual page, or write one for each command.
    Man {
        /// Write bellwether.1, bellwether-run.1 and the others into this directory instead
        #[arg(long, value_name = "DIRECTORY")]
        to: Option<PathBuf>,
    },
}

/// Returns the text to print. Manual pages may be written into a directory instead; then the text is empty.
pub(super) fn write(packaging: PackagingCommand, mut command: Command) -> Result<Vec<u8>, String> {
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
        PackagingCommand::Man { to: None } => text.extend(page(command).bytes()),
        PackagingCommand::Man { to: Some(directory) } => {
            write_pages(command, &directory).map_err(|error| {
                format!("--to: cannot write pages into {}: {error}", directory.display())
            })?;
        }
    }
    Ok(text)
}

/// Writes a page for each command into the directory.
fn write_pages(mut command: Command, directory: &Path) -> io::Result<()> {
    // `build` sets the display name of each subcommand, such as `bellwether-run`, by which its page is named.
    command.build();
    for command in with_subcommands(&command) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        fs::write(directory.join(format!("{name}.1")), page(command))?;
    }
    Ok(())
}

/// Returns a command and all of its subcommands, without hidden ones and without `help`.
fn with_subcommands(command: &Command) -> Vec<Command> {
    let children = command.get_subcommands().filter(|each| !each.is_hide_set());
    let children = children.filter(|each| each.get_name() != "help").flat_map(with_subcommands);
    std::iter::once(command.clone()).chain(children).collect()
}

/// Returns the manual page of a command.
fn page(command: Command) -> String {
    let mut page = vec![];
    Man::new(command).render(&mut page).expect("writing to a vector cannot fail");
    // clap_mangen puts the text after a command's help into a section EXTRA. In our commands, that text is the exit
    // codes.
    String::from_utf8_lossy(&page).replace(".SH EXTRA", ".SH \"EXIT STATUS\"")
}
