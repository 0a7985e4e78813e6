//! Arguments of `admission` and `reproduce`, which need no running router.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Subcommands of `admission`.
#[derive(Debug, Subcommand)]
pub enum AdmissionAction {
    /// Place requests on described hardware.
    #[command(after_help = "\
Examples:
  millrace admission simulate examples/admission/ixp1200.toml
  millrace admission simulate examples/admission/ixp1200.toml --html placement.html

The file names the hardware, and has a table [[request]] for each service. Needs no running router.
Exit status 1 if a request is refused.")]
    Simulate {
        /// Scenario file (TOML).
        file: PathBuf,
        /// Write the result to FILE as an HTML page.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
}

/// Arguments of `reproduce`.
#[derive(Debug, Args)]
pub struct Reproduce {
    /// Experiment, or the beginning of names, such as `vera` (default: all).
    pub name: Option<String>,
    /// List the experiments.
    #[arg(long, conflicts_with = "html")]
    pub list: bool,
    /// Write the results to FILE as an HTML page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Run the experiments again, without results of earlier runs.
    #[arg(long)]
    pub fresh: bool,
}
