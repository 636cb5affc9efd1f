//! Files that packagers install with the program: shell completions and manual pages.

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io;
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
            render_page(command, &mut text).expect("memory takes all");
        }
        PackagingCommand::Man(Manual { to: Some(directory) }) => {
            write_pages(command, &directory).map_err(|error| {
                format!("--to: cannot write pages into {}: {error}", directory.display())
            })?;
        }
    }
    Ok(text)
}

/// Writes a page for each command into the directory.
fn write_pages(mut command: Command, directory: &std::path::Path) -> io::Result<()> {
    // Sets the display name of each subcommand, which becomes the name of its page.
    command.build();
    for command in with_subcommands(&command) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let mut text = vec![];
        render_page(command, &mut text)?;
        std::fs::write(directory.join(format!("{name}.1")), text)?;
    }
    Ok(())
}

/// Returns a command and all of its subcommands, each with its full name.
fn with_subcommands(command: &Command) -> Vec<Command> {
    let below = command.get_subcommands().filter(|each| !each.is_hide_set());
    let below = below.filter(|each| each.get_name() != "help").flat_map(with_subcommands);
    std::iter::once(command.clone()).chain(below).collect()
}

/// Writes the manual page of a command.
fn render_page(command: Command, text: &mut Vec<u8>) -> io::Result<()> {
    // The help of a command ends with its exit codes. In a manual page, they have their own section.
    let codes = command.get_after_help().map(|codes| codes.to_string());
    let has_version = command.get_version().is_some();
    let has_commands = command.has_subcommands();
    let usage = command.clone().render_usage().to_string();
    let man = Man::new(command.after_help("").after_long_help(""));
    man.render_title(text)?;
    man.render_name_section(text)?;
    // The synopsis of `clap_mangen` omits the values of options, and the `--` before a program.
    text.extend(synopsis(&usage).bytes());
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    if has_commands {
        man.render_subcommands_section(text)?;
    }
    if let Some(codes) = codes {
        let lines: Vec<_> = codes.lines().skip(1).map(str::trim).collect();
        text.extend(b".SH \"EXIT STATUS\"\n");
        for line in lines {
            let (code, meaning) = line.split_once(' ').unwrap_or((line, ""));
            text.extend(format!(".TP\n{code}\n{}\n", meaning.trim()).bytes());
        }
    }
    if has_version { man.render_version_section(text) } else { Ok(()) }
}

/// Returns the SYNOPSIS section of a manual page.
fn synopsis(usage: &str) -> String {
    let usage = usage.strip_prefix("Usage: ").unwrap_or(usage);
    let lines: Vec<_> = usage.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!(".SH SYNOPSIS\n{}\n", lines.join("\n.br\n").replace('-', "\\-"))
}
