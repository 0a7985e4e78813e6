//! Arguments of the commands for instances.

use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

/// Subcommands of `instance`.
#[derive(Debug, Subcommand)]
pub enum InstanceAction {
    /// Create an instance of a plugin.
    #[command(after_help = "\
Examples:
  millrace instance create statistics stats1
  millrace instance create port-filter pf1 ports=80,8000-8080 protocol=tcp
  millrace instance create statistics s1 --rate 100000 --size 300B --packet 120

`millrace plugin inspect PLUGIN` lists the settings of a plugin.")]
    Create {
        /// Plugin of the instance (see `plugin list`).
        plugin: String,
        /// Name of the new instance.
        name: String,
        /// Settings of the plugin.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Declared load and level.
        #[command(flatten)]
        service: Service,
        /// Check it only, and show what would be promised and left.
        #[arg(long)]
        dry_run: bool,
    },
    /// Move an instance to another level, or change its load.
    #[command(after_help = "\
Examples:
  millrace instance move s1 --level worker
  millrace instance move s1 --level auto --rate 50000
  millrace instance move s1 --worker 1           # run it at worker 1 only
  millrace instance move s1 --level worker --dry-run   # check it, and show what would be left

No packet is lost. A move between worker and host hands the state of the instance over, and needs the role admin.")]
    Move {
        /// Name of the instance.
        name: String,
        /// Declared load and level.
        #[command(flatten)]
        service: Service,
        /// Check it only, and show what would be promised and left.
        #[arg(long)]
        dry_run: bool,
    },
    /// Change settings of an instance.
    #[command(after_help = "\
Examples:
  millrace instance set pf1 ports=80,443
  millrace instance set pf1 protocol=      # remove a setting

The instance keeps its state if its plugin can save and restore state.")]
    Set {
        /// Name of the instance.
        name: String,
        /// Settings to change; an empty value removes one.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Rename an instance.
    #[command(after_help = "Examples:\n  millrace instance rename i1 uplink")]
    Rename {
        /// Name of the instance.
        name: String,
        /// New name of the instance.
        to: String,
    },
    /// Release an instance from quarantine and restart it.
    #[command(after_help = "\
Examples:
  millrace instance list             # shows instances in quarantine
  millrace instance release stats1

By default, 8 faults within 60 s put an instance into quarantine. Then its code does not run, and bindings drop
its packets or bypass it, as --on-fault says.")]
    Release {
        /// Name of the instance.
        name: String,
    },
    /// Remove an instance and its bindings.
    #[command(alias = "remove", after_help = "Examples:\n  millrace instance free stats1")]
    Free {
        /// Name of the instance.
        name: String,
    },
    /// List instances with bindings and counters.
    #[command(after_help = "Examples:\n  millrace instance list\n  millrace instance list --json")]
    List,
    /// List the shared maps of an instance, or show one.
    #[command(after_help = "\
Examples:
  millrace instance map guard                  # list the maps that `guard` writes
  millrace instance map guard blocked --json   # show the entries of the map `blocked`

Keys and values are hexadecimal. At most 4,096 entries are shown.")]
    Map {
        /// Name of the instance.
        name: String,
        /// Map to show (default: list all maps).
        map: Option<String>,
    },
}

/// Declared load of an instance, and its level.
#[derive(Clone, Debug, Args)]
pub struct Service {
    /// Level of the instance; auto: the router chooses.
    #[arg(long)]
    pub level: Option<ServiceLevel>,
    /// Number of the only worker that runs it; auto: all workers.
    #[arg(long, value_name = "WORKER")]
    pub worker: Option<WorkerNumber>,
    /// Packets per second on average (default: no load).
    #[arg(long, value_name = "PACKETS")]
    pub rate: Option<u32>,
    /// Size of packets on average (default: 1538B).
    #[arg(long)]
    pub size: Option<String>,
    /// Cycles per packet, or default: as the plugin's manifest says.
    #[arg(long, value_name = "CYCLES", allow_negative_numbers = true)]
    pub packet: Option<Cycles>,
    /// Cycles per byte, or default: as the plugin's manifest says.
    #[arg(long, value_name = "CYCLES", allow_negative_numbers = true)]
    pub byte: Option<Cycles>,
}

/// Number of processor cycles of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cycles {
    /// As the plugin's manifest says.
    Default,
    /// Finite number of at least 0.
    Number(f64),
}

impl FromStr for Cycles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = || text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        match text {
            "default" => Ok(Self::Default),
            _ => number()
                .map(Self::Number)
                .ok_or_else(|| "give a finite number, 0 or more, or default".to_owned()),
        }
    }
}

/// Worker of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerNumber {
    /// All workers.
    Auto,
    /// Worker of this number.
    Number(u16),
}

impl FromStr for WorkerNumber {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => {
                text.parse().map(Self::Number).map_err(|_| "give the number of a worker, from 0 on, or auto")
            }
        }
    }
}

/// Level of an instance.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ServiceLevel {
    /// eBPF variant of the plugin.
    Offload,
    /// Workers.
    Worker,
    /// Processes beside the workers.
    Host,
    /// Chosen by the router.
    Auto,
}

/// Arguments of `control`.
#[derive(Debug, Args)]
pub struct Control {
    /// Instance that gets the message.
    pub instance: String,
    /// Message, such as read (see `plugin inspect PLUGIN`).
    pub message: String,
    /// Send the message to the host companion: the second module of a plugin, which runs outside the workers.
    #[arg(long)]
    pub companion: bool,
    /// Arguments of the message.
    #[arg(value_name = "KEY=VALUE")]
    pub arguments: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::arguments::Arguments;

    #[test]
    fn cycles_are_finite_and_at_least_0_or_the_default() {
        let parsed = |words: &[&str]| {
            Arguments::try_parse_from(["millrace", "instance", "move", "s1"].iter().chain(words))
        };
        for option in ["--packet", "--byte"] {
            for right in ["0", "120", "0.5", "default"] {
                assert!(parsed(&[option, right]).is_ok(), "{option} {right}");
            }
            let refused = |wrong: &str, error: String| {
                let text = format!(
                    "invalid value '{wrong}' for '{option} <CYCLES>': give a finite number, 0 or more, or default"
                );
                assert!(error.contains(&text), "{error}");
            };
            for wrong in ["nan", "inf", "-inf", "-0.5", "many"] {
                refused(wrong, parsed(&[&format!("{option}={wrong}")]).unwrap_err().to_string());
            }
            refused("-1", parsed(&[option, "-1"]).unwrap_err().to_string());
        }
    }
}
