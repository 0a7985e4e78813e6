//! The commands `completions` and `manual`: output for shells and for `man`, generated from the command-line
//! definition.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::arguments::Arguments;
use crate::output::Failure;

/// Prints the completions for a shell.
pub fn completions(shell: Shell, names: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    if !names {
        clap_complete::generate(shell, &mut Arguments::command(), "millrace", &mut out);
        return Ok(());
    }
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&name).ok_or_else(|| {
        Failure::usage(format!("{name} does not support completion of names: omit --names"))
    })?;
    completer
        .write_registration("COMPLETE", "millrace", "millrace", "millrace", &mut out)
        .map_err(Failure::new)
}

/// Writes a manual page for each command to a directory.
pub fn manual(directory: &Path) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(directory).and_then(|()| {
        clap_mangen::generate_to(Arguments::command().disable_help_subcommand(true), directory)
    });
    written.map_err(|error| Failure::new(format!("can't write to {}: {error}", directory.display())))
}
