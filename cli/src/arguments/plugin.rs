//! The command about plugins that are files, from an empty folder to the running router.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `plugin`.
#[derive(Debug, Args)]
pub struct PluginArguments {
    /// What to do.
    #[command(subcommand)]
    pub action: PluginAction,
}

/// What to do with plugins.
#[derive(Debug, Subcommand)]
pub enum PluginAction {
    /// Write the project of a new plugin into a folder of its name.
    #[command(after_help = "Example:\n  millrace plugin new hello --lang c")]
    New {
        /// The plugin's name.
        name: String,
        /// What it is written in: rust or c.
        #[arg(long, default_value = "rust")]
        lang: millrace_kit::Language,
        /// The folder, which must not exist. Default: the name.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Build the project in a folder to a WebAssembly module, or to a shared object.
    #[command(
        after_help = "Example:\n  millrace plugin build hello\n  millrace plugin build hello --home native"
    )]
    Build {
        /// The folder.
        #[arg(default_value = ".")]
        dir: PathBuf,
        /// Where the plugin will live: wasm, contained, NAME.wasm; or native, trusted with the whole router, NAME.so.
        #[arg(long, default_value = "wasm")]
        home: millrace_kit::Home,
    },
    /// Say what a plugin says of itself: settings, messages, capabilities, counters, features; of a file also size, imports,
    /// exports and signature.
    #[command(
        after_help = "What is no file, and is not written like one, is a plugin of the running router, also one that is built in.\n\nExample:\n  millrace plugin inspect statistics\n  millrace plugin inspect hello/hello.wasm --json"
    )]
    Inspect {
        /// The file, or the name of a plugin of the running router.
        #[arg(value_name = "FILE|NAME")]
        what: PathBuf,
        /// Public keys with which its signature is checked.
        #[arg(long, value_name = "RW...")]
        public_key: Vec<String>,
    },
    /// Print the manual page of a plugin that is part of the router: what it is for, its settings, messages and counters.
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
    /// Measure what a plugin costs on this machine, in a few seconds.
    #[command(after_help = "Example:\n  millrace plugin bench hello/hello.wasm --json")]
    Bench {
        /// The plugin.
        file: PathBuf,
        /// Settings of its instance.
        #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
        settings: Vec<String>,
    },
    /// Make a key to sign plugins with.
    #[command(
        after_help = "The secret key has no password: keep its file where nobody else reads. Keys are those of minisign.\n\nExample:\n  millrace plugin keygen --out ~/plugins.key"
    )]
    Keygen {
        /// The file of the secret key, which must not exist; that of the public key ends in .pub.
        #[arg(long, value_name = "FILE", default_value = "millrace.key")]
        out: PathBuf,
    },
    /// Sign a plugin: bytes, name, version and capabilities. The signature stands beside it, as FILE.minisig.
    #[command(after_help = "Example:\n  millrace plugin sign hello/hello.wasm --key ~/plugins.key")]
    Sign {
        /// The plugin.
        file: PathBuf,
        /// The file of the secret key.
        #[arg(long, value_name = "SECRET")]
        key: PathBuf,
    },
    /// Load a plugin into the running router: a WebAssembly module, or a shared object where the configuration allows these.
    #[command(after_help = "Example:\n  millrace plugin load hello/hello.wasm")]
    Load {
        /// The file, on the router's machine; its signature, if it has one, stands beside it.
        file: PathBuf,
        /// Load it also when it is signed and older than one that was loaded before.
        #[arg(long)]
        allow_downgrade: bool,
    },
    /// Put another version of a plugin in its place, while packets go through it.
    #[command(
        after_help = "The instances keep their settings and bindings, and what they know, if both versions can save and restore it.\nNo packet is lost. When anything fails, the old version goes on.\n\nExample:\n  millrace plugin upgrade hello hello/hello.wasm --shadow 1000"
    )]
    Upgrade(PluginUpgrade),
    /// Put the version of a plugin back that was there before.
    #[command(after_help = "Example:\n  millrace plugin rollback hello")]
    Rollback {
        /// The plugin's name.
        name: String,
    },
    /// Unload a plugin of which there are no instances.
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
    /// The plugin.
    pub file: PathBuf,
    /// The capture, pcap or pcapng.
    #[arg(long, value_name = "IN.pcap")]
    pub pcap: Option<PathBuf>,
    /// Settings of its instance.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub settings: Vec<String>,
    /// Packets in a call.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub batch: u8,
    /// Write the packets that went on to a pcapng file.
    #[arg(long, value_name = "OUT.pcap")]
    pub write: Option<PathBuf>,
    /// Send a control message behind the last packet: `NAME [KEY=VALUE]...`; may be given several times.
    #[arg(long, value_name = "MESSAGE")]
    pub control: Vec<String>,
    /// Compare verdicts and changed bytes with those of a file, and fail where they differ.
    #[arg(long, value_name = "EXPECT.json", conflicts_with = "save")]
    pub expect: Option<PathBuf>,
    /// Write verdicts and changed bytes to a file, to be expected from then on.
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
    /// Before that, run it on copies of so many packets, for 10 seconds at most, and compare what it does.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub shadow: Option<u64>,
    /// Upgrade even if it treats copies differently.
    #[arg(long, requires = "shadow")]
    pub accept_differences: bool,
    /// Begin without what the instances know.
    #[arg(long)]
    pub without_state: bool,
    /// Take a version that is lower than one that was loaded before, although it is signed.
    #[arg(long)]
    pub allow_downgrade: bool,
}
