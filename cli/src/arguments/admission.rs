//! Arguments of `admission`, `allowance`, `hardware` and `reproduce`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::instance::Service;

/// Subcommands of `admission`.
#[derive(Debug, Subcommand)]
pub enum AdmissionAction {
    /// Show what may be promised of each component, and what is promised to whom.
    #[command(
        after_help = "Examples:\n  millrace admission show\n  millrace admission show --json\n  millrace admission show --html promises.html\n\nComponents: the processors of the machine; the time that core leaves at the workers, for principals that pay\nfor calls and for services; the other levels of services; the rate of each port's scheduler; and memory."
    )]
    Show {
        /// Write the result to FILE as an HTML page.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Show at which level a service would go, and what would be left.
    #[command(
        after_help = "Examples:\n  millrace admission place statistics --rate 100000 --size 300B --packet 120\n  millrace admission place statistics --instance s1 --rate 500000 --level worker\n\nTakes the load of `instance create`, and changes nothing."
    )]
    Place {
        /// Plugin of the service (see `plugin list`).
        plugin: String,
        /// Instance that would get the load (default: a new one).
        #[arg(long)]
        instance: Option<String>,
        /// Declared load and level.
        #[command(flatten)]
        service: Service,
    },
    /// Show what a request would change, and what would be left.
    #[command(after_help = "\
Examples:
  millrace admission explain principal add video cpu=10%
  millrace admission explain flow reserve 'proto udp' --cpu 20%
  millrace admission explain flow reserve 'proto udp' --deadline 10ms --rate 100 --cost 100us --port wan
  millrace admission explain instance create statistics s1 --rate 100000 --packet 120

Takes `principal add`, `principal set`, `flow reserve`, `bind`, `instance create`, `instance move`, `admission set`,
`allowance add`, `allowance set` and `router set`, and answers like their option --dry-run: nothing changes.
Exit status 1 if the request would be refused.")]
    Explain {
        /// Request, as a command with its arguments.
        #[arg(value_name = "REQUEST", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        request: Vec<String>,
    },
    /// Change how much may be promised.
    #[command(after_help = "\
Examples:
  millrace admission set cpu=90% link=90%   # keep a tenth of each for traffic without a reservation
  millrace admission set memory=4GiB        # largest sum of the principals' memory
  millrace admission set memory=            # restore the default
  millrace admission set link=80% --dry-run # check it, and show what would be left

A change is refused if more is promised already.")]
    Set {
        /// Settings of the table [admission]; an empty value restores the default.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
        /// Check it only, and show what would be promised and left.
        #[arg(long)]
        dry_run: bool,
    },
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

/// Subcommands of `hardware`.
#[derive(Debug, Subcommand)]
pub enum HardwareAction {
    /// Measure processors and switches, and write a hardware file.
    #[command(after_help = "\
Examples:
  millrace hardware measure                     # write hardware.toml to the state directory
  millrace hardware measure --out router.toml
  millrace hardware measure --workers 1 --json

Takes up to a minute, on an otherwise idle machine. Without root, or on a machine with one processor, the file
lacks the switches between the levels. `millrace admission simulate` takes the file as hardware.")]
    Measure {
        /// Write the hardware to FILE (default: hardware.toml in the state directory).
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Number of workers (default: two, or one on a machine with one processor).
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=16))]
        workers: Option<u8>,
    },
}

/// Subcommands of `allowance`.
#[derive(Debug, Subcommand)]
pub enum AllowanceAction {
    /// Add an allowance.
    #[command(after_help = "\
Examples:
  millrace allowance add students 'user=[\"alice\",\"token lab\"]' cpu=30% link.wan=10mbit memory=256MiB
  millrace allowance add operators 'role=[\"operator\"]' 'level=[\"worker\"]' principals=4

Settings:
  user        users, named as in the audit log: alice, token lab, instance nat
  role        roles: viewer, operator, admin
  level       levels at which instances and flows may run: offload, worker, host (default: all)
  processor   processors on which they may run, as in `show hardware` (default: all)
  cpu         largest sum of the `cpu` of a user's principals (default: unlimited)
  link.PORT   largest sum of reserved rates there; at other ports, nothing (default: unlimited)
  memory      largest sum of the `memory` of a user's principals (default: unlimited)
  principals  largest number of a user's principals (default: unlimited)")]
    Add {
        /// Name of the new allowance.
        name: String,
        /// Users, levels and amounts.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
        /// Check it only, and show what would be promised, left and held.
        #[arg(long)]
        dry_run: bool,
    },
    /// Change an allowance.
    #[command(after_help = "\
Examples:
  millrace allowance set students cpu=40%
  millrace allowance set students memory=   # restore the default
  millrace allowance set students 'level=[\"worker\"]' --dry-run   # show which services would move

What users hold already stays, also above a lower allowance.")]
    Set {
        /// Name of the allowance.
        name: String,
        /// Settings to change; an empty value restores a default.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
        /// Check it only, and show what would be promised, left and held.
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove an allowance.
    #[command(after_help = "Examples:\n  millrace allowance remove students\n\nWhat its users hold stays.")]
    Remove {
        /// Name of the allowance.
        name: String,
    },
    /// List allowances, with use and limit of each user.
    #[command(after_help = "Examples:\n  millrace allowance list\n  millrace allowance list --json")]
    List,
    /// Show an allowance, with use and limit of each user.
    #[command(after_help = "Examples:\n  millrace allowance show students")]
    Show {
        /// Name of the allowance.
        name: String,
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
