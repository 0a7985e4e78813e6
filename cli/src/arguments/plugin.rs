//! Arguments of the command `plugin`, from creating a project to unloading.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `plugin`.
#[derive(Debug, Args)]
pub struct PluginArguments {
    /// Subcommand.
    #[command(subcommand)]
    pub action: PluginAction,
}

/// Subcommands of `plugin`.
#[derive(Debug, Subcommand)]
pub enum PluginAction {
    /// Create a plugin project.
    #[command(after_help = "Example:\n  millrace plugin new hello --lang c")]
    New {
        /// The plugin's name.
        name: String,
        /// Language: rust or c.
        #[arg(long, default_value = "rust")]
        lang: millrace_kit::Language,
        /// Directory to create (default: the name).
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Build a plugin as WebAssembly module or shared object.
    #[command(
        after_help = "Example:\n  millrace plugin build hello\n  millrace plugin build hello --home native"
    )]
    Build {
        /// Folder of the plugin project.
        #[arg(default_value = ".")]
        dir: PathBuf,
        /// Runtime: wasm (sandboxed, NAME.wasm) or native (trusted, NAME.so).
        #[arg(long, default_value = "wasm")]
        home: millrace_kit::Home,
    },
    /// Show settings, messages, capabilities and signature of a plugin.
    #[command(
        after_help = "A name that is no file, nor written like one, is a plugin of the running router, built in or loaded.\n\nExample:\n  millrace plugin inspect statistics\n  millrace plugin inspect hello/hello.wasm --json"
    )]
    Inspect {
        /// The file, or the name of a plugin of the running router.
        #[arg(value_name = "FILE|NAME")]
        what: PathBuf,
        /// Public keys that verify the signature.
        #[arg(long, value_name = "RW...")]
        public_key: Vec<String>,
    },
    /// Print the manual of a built-in plugin.
    #[command(
        after_help = "Example:\n  millrace plugin manual statistics\n  millrace plugin manual port-filter | less"
    )]
    Manual {
        /// The plugin's name.
        name: String,
    },
    /// Run a plugin on the packets of a capture, without a router.
    #[command(
        after_help = "Without --pcap it gets a small set: TCP, UDP and ICMP over IPv4 and IPv6, fragments, a short one. Bytes are\ncounted from the link header on.\n\nExample:\n  millrace plugin test hello/hello.wasm --settings longest=300 --control read\n  millrace plugin test hello/hello.wasm --pcap in.pcap --save expected.json\n  millrace plugin test hello/hello.wasm --pcap in.pcap --expect expected.json"
    )]
    Test(PluginTest),
    /// Measure the cost of a plugin on this machine.
    #[command(after_help = "Example:\n  millrace plugin bench hello/hello.wasm --json")]
    Bench {
        /// Plugin file.
        file: PathBuf,
        /// Settings of the instance.
        #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
        settings: Vec<String>,
    },
    /// Generate a signing key.
    #[command(
        after_help = "The secret key has no password: keep its file where nobody else reads. Keys are those of minisign.\n\nExample:\n  millrace plugin keygen --out ~/plugins.key"
    )]
    Keygen {
        /// Secret key file to create; .pub gets the public key.
        #[arg(long, value_name = "FILE", default_value = "millrace.key")]
        out: PathBuf,
    },
    /// Sign a plugin; writes FILE.minisig.
    #[command(after_help = "Example:\n  millrace plugin sign hello/hello.wasm --key ~/plugins.key")]
    Sign {
        /// Plugin file.
        file: PathBuf,
        /// The file of the secret key.
        #[arg(long, value_name = "SECRET")]
        key: PathBuf,
    },
    /// Load a plugin into the running router.
    #[command(after_help = "Example:\n  millrace plugin load hello/hello.wasm")]
    Load {
        /// Plugin file on the router's machine, its signature beside it.
        file: PathBuf,
        /// Allow a version lower than one loaded before.
        #[arg(long)]
        allow_downgrade: bool,
    },
    /// Upgrade a plugin without packet loss.
    #[command(
        after_help = "The instances keep their settings and bindings, and what they know, if both versions can save and restore it.\nNo packet is lost. When anything fails, the old version goes on.\n\nExample:\n  millrace plugin upgrade hello hello/hello.wasm --shadow 1000"
    )]
    Upgrade(PluginUpgrade),
    /// Restore the previous version of a plugin.
    #[command(after_help = "Example:\n  millrace plugin rollback hello")]
    Rollback {
        /// The plugin's name.
        name: String,
    },
    /// Unload a plugin without instances.
    #[command(after_help = "Example:\n  millrace plugin unload hello")]
    Unload {
        /// The plugin's name.
        name: String,
    },
    /// List plugins.
    #[command(after_help = "Example:\n  millrace plugin list")]
    List,
}

/// Arguments of `plugin test`.
#[derive(Debug, Args)]
pub struct PluginTest {
    /// Plugin file.
    pub file: PathBuf,
    /// The capture, pcap or pcapng.
    #[arg(long, value_name = "IN.pcap")]
    pub pcap: Option<PathBuf>,
    /// Settings of the instance.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub settings: Vec<String>,
    /// Packets per call.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub batch: u8,
    /// Write forwarded packets to a pcapng file.
    #[arg(long, value_name = "OUT.pcap")]
    pub write: Option<PathBuf>,
    /// Send a control message after the last packet; repeatable.
    #[arg(long, value_name = "MESSAGE")]
    pub control: Vec<String>,
    /// Compare verdicts and changed bytes with FILE.
    #[arg(long, value_name = "EXPECT.json", conflicts_with = "save")]
    pub expect: Option<PathBuf>,
    /// Write verdicts and changed bytes to FILE.
    #[arg(long, value_name = "EXPECT.json")]
    pub save: Option<PathBuf>,
}

/// Arguments of `plugin upgrade`.
#[derive(Debug, Args)]
pub struct PluginUpgrade {
    /// The plugin's name.
    pub name: String,
    /// The file of the new version, on the router's machine.
    pub file: PathBuf,
    /// Run on N copied packets first (at most 10 s) and compare.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub shadow: Option<u64>,
    /// Upgrade even if results differ.
    #[arg(long, requires = "shadow")]
    pub accept_differences: bool,
    /// Discard the state of the instances.
    #[arg(long)]
    pub without_state: bool,
    /// Allow a version lower than one loaded before.
    #[arg(long)]
    pub allow_downgrade: bool,
}
