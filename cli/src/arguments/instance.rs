//! The commands of instances.

use clap::{Args, Subcommand};

/// Arguments of `instance`.
#[derive(Debug, Args)]
pub struct Instance {
    /// What to do.
    #[command(subcommand)]
    pub action: InstanceAction,
}

/// What to do with instances.
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
    /// Change settings of an instance while packets go through it. It keeps what it knows, where its plugin can.
    #[command(after_help = "Example:\n  millrace instance set i1 longest=500 shortest=")]
    Set {
        /// The instance's name.
        name: String,
        /// Settings that change; one without a value is taken away.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Give an instance another name.
    #[command(after_help = "Example:\n  millrace instance rename i1 uplink")]
    Rename {
        /// The instance's name.
        name: String,
        /// Its name from now on.
        to: String,
    },
    /// Let an instance out of quarantine: it begins anew, with its settings.
    #[command(after_help = "Example:\n  millrace show quarantine\n  millrace instance release stats1")]
    Release {
        /// The instance's name.
        name: String,
    },
    /// Free an instance; its bindings are removed first.
    #[command(alias = "remove", after_help = "Example:\n  millrace instance free stats1")]
    Free {
        /// The instance's name.
        name: String,
    },
    /// List instances.
    #[command(after_help = "Example:\n  millrace instance list")]
    List,
    /// List the maps that an instance writes for others to read, or show what stands in one.
    #[command(
        after_help = "Example:\n  millrace instance map guard\n  millrace instance map guard blocked --json"
    )]
    Map {
        /// The instance's name.
        name: String,
        /// The map's name; without it, all are listed.
        map: Option<String>,
    },
}

/// Arguments of `control`.
#[derive(Debug, Args)]
pub struct Control {
    /// The instance.
    pub instance: String,
    /// The message; `show plugins` lists those that a plugin understands.
    pub message: String,
    /// Send it to the slow half of the instance.
    #[arg(long)]
    pub slow: bool,
    /// Arguments of the message.
    #[arg(value_name = "KEY=VALUE")]
    pub arguments: Vec<String>,
}
