//! Arguments of the commands for instances.

use clap::{Args, Subcommand};

/// Arguments of `instance`.
#[derive(Debug, Args)]
pub struct Instance {
    /// Subcommand.
    #[command(subcommand)]
    pub action: InstanceAction,
}

/// Subcommands of `instance`.
#[derive(Debug, Subcommand)]
pub enum InstanceAction {
    /// Create an instance of a plugin.
    #[command(
        after_help = "Example:\n  millrace instance create port-filter pf1 ports=80,8000-8080 protocol=tcp"
    )]
    Create {
        /// The plugin.
        plugin: String,
        /// The instance's name.
        name: String,
        /// Settings.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Change settings of an instance; keeps its state if possible.
    #[command(after_help = "Example:\n  millrace instance set i1 longest=500 shortest=")]
    Set {
        /// The instance's name.
        name: String,
        /// Settings to change; an empty value removes one.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Rename an instance.
    #[command(after_help = "Example:\n  millrace instance rename i1 uplink")]
    Rename {
        /// The instance's name.
        name: String,
        /// New name.
        to: String,
    },
    /// Release an instance from quarantine and restart it.
    #[command(after_help = "Example:\n  millrace show quarantine\n  millrace instance release stats1")]
    Release {
        /// The instance's name.
        name: String,
    },
    /// Remove an instance and its bindings.
    #[command(alias = "remove", after_help = "Example:\n  millrace instance free stats1")]
    Free {
        /// The instance's name.
        name: String,
    },
    /// List instances.
    #[command(after_help = "Example:\n  millrace instance list")]
    List,
    /// List the shared maps of an instance, or show one.
    #[command(
        after_help = "Example:\n  millrace instance map guard\n  millrace instance map guard blocked --json"
    )]
    Map {
        /// The instance's name.
        name: String,
        /// Map name (default: list all).
        map: Option<String>,
    },
}

/// Arguments of `control`.
#[derive(Debug, Args)]
pub struct Control {
    /// The instance.
    pub instance: String,
    /// Message, as listed by `show plugins`.
    pub message: String,
    /// Send the message to the host companion.
    #[arg(long)]
    pub companion: bool,
    /// Arguments of the message.
    #[arg(value_name = "KEY=VALUE")]
    pub arguments: Vec<String>,
}
