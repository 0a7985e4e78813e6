//! The commands `completions` and `manual`: what shells and `man` know of the command line, made from its definition.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::output::Failure;

/// Prints the completions for a shell.
pub fn completions(shell: Shell) {
    clap_complete::generate(shell, &mut Arguments::command(), "millrace", &mut std::io::stdout());
}

/// Writes a page for each command to a directory.
pub fn manual(directory: &Path) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(directory).and_then(|()| {
        clap_mangen::generate_to(Arguments::command().disable_help_subcommand(true), directory)
    });
    written.map_err(|error| Failure::new(format!("can't write to {}: {error}", directory.display())))
}
