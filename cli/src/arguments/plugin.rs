//! Arguments of the command `plugin`, from creating a project to unloading.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Subcommands of `plugin`.
#[derive(Debug, Subcommand)]
pub enum PluginAction {
    /// Create a plugin project.
    #[command(after_help = "\
Examples:
  millrace plugin new hello            # in Rust, in the new directory hello
  millrace plugin new hello --lang c   # in C

The project contains the SDK: the build needs no other sources.")]
    New {
        /// Name of the new plugin.
        name: String,
        /// Language: rust or c.
        #[arg(long, default_value = "rust")]
        lang: millrace_kit::Language,
        /// Directory to create (default: NAME).
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Build a plugin as a WebAssembly module, shared object or executable.
    #[command(after_help = "\
Examples:
  millrace plugin build hello                        # hello/hello.wasm, sandboxed
  millrace plugin build hello --runtime native       # hello/hello.so, confined or trusted
  millrace plugin build hello --runtime executable   # hello/hello.elf, confined

The router loads shared objects and executables only if its configuration allows them. An executable contains
its libraries, so the build needs a static C library.
If a compiler is missing, the error names its package.")]
    Build {
        /// Directory of the plugin project.
        #[arg(default_value = ".")]
        dir: PathBuf,
        /// Where the plugin runs: wasm (sandbox, NAME.wasm), native (process of its own, or trusted inside the
        /// router, NAME.so) or executable (process of its own, NAME.elf).
        #[arg(long, default_value = "wasm")]
        runtime: millrace_kit::Format,
    },
    /// Show settings, messages, capabilities and signature of a plugin.
    #[command(after_help = "\
Examples:
  millrace plugin inspect statistics                # plugin of the running router
  millrace plugin inspect hello/hello.wasm --json   # file; needs no running router

The argument is a file if it exists, contains / or ends in .wasm, .so or .elf; otherwise it is the name of a plugin.")]
    Inspect {
        /// Plugin file, or name of a plugin of the running router.
        #[arg(value_name = "FILE|NAME")]
        what: PathBuf,
        /// Public key as text (RW...), to verify the signature of the file; repeatable.
        #[arg(long, value_name = "RW...")]
        public_key: Vec<String>,
    },
    /// Print the manual of a built-in plugin.
    #[command(
        after_help = "Examples:\n  millrace plugin manual statistics\n  millrace plugin manual port-filter | less"
    )]
    Manual {
        /// Name of the built-in plugin.
        name: String,
    },
    /// Run a plugin on the packets of a capture, without a router.
    #[command(after_help = "\
Examples:
  millrace plugin test hello/hello.wasm --settings longest=300 --control read
  millrace plugin test hello/hello.wasm --pcap in.pcap --save expected.json
  millrace plugin test hello/hello.wasm --pcap in.pcap --expect expected.json

Without --pcap, the packets are TCP, UDP and ICMP over IPv4 and IPv6, fragments, and a packet with a
truncated header. `longest` is a setting of a new plugin project. Offsets of changed bytes, in the output and
in --save, count from the link header.
A shared object or executable runs in a confined process. With --runtime in-process, a shared object runs with all
rights of this command.
Exit status 1: a call failed, the plugin refused a message, or --expect found a difference.")]
    Test(PluginTest),
    /// Measure the cost of a plugin on this machine.
    #[command(after_help = "\
Examples:
  millrace plugin bench hello/hello.wasm
  millrace plugin bench hello/hello.wasm --settings longest=300 --json
  millrace plugin bench hello/hello.wasm --write
  millrace plugin bench hello/hello.so --write                        # in a process
  millrace plugin bench hello/hello.so --write --runtime in-process   # trusted

Measures calls with 1, 8, 32 and 64 packets of 128 bytes, and packets of 64 to 1,500 bytes, and computes cycles
per call, packet and byte. Takes about four seconds. Needs no running router.
A shared object or executable runs in a confined process: its cost is that of `process`. With --runtime in-process,
a shared object runs with all rights of this command, and its cost is that of `worker`.")]
    Bench(PluginBench),
    /// Generate a key pair for signing plugins.
    #[command(after_help = "\
Examples:
  millrace plugin keygen                       # millrace.key and millrace.pub
  millrace plugin keygen --out ~/plugins.key   # ~/plugins.key and ~/plugins.pub

The secret key has no password; only its owner can read the file. Existing files are not overwritten.
The keys have the format of minisign.")]
    Keygen {
        /// Secret key file to create; the public key file ends in .pub.
        #[arg(long, value_name = "FILE", default_value = "millrace.key")]
        out: PathBuf,
    },
    /// Sign a plugin file.
    #[command(after_help = "\
Examples:
  millrace plugin sign hello/hello.wasm --key ~/plugins.key

The signature is FILE.minisig. The router reads it beside the plugin file.")]
    Sign {
        /// Plugin file.
        file: PathBuf,
        /// Secret key file (see `plugin keygen`).
        #[arg(long, value_name = "SECRET")]
        key: PathBuf,
    },
    /// Load a plugin into the running router.
    #[command(after_help = "\
Examples:
  millrace plugin load hello/hello.wasm
  millrace instance create hello i1       # create an instance of the plugin

The plugin stays loaded until the router ends; [[plugin]] in the configuration loads it at every start.
Each instance of a shared object or executable runs in a process of its own. With --runtime in-process, a
shared object runs in the router, with access to the whole router. A signature is read from FILE.minisig. Needs the role admin.")]
    Load {
        /// Plugin file; with --server, an absolute path on the router's machine.
        file: PathBuf,
        /// Load a signed plugin although a newer version was loaded before.
        #[arg(long)]
        allow_downgrade: bool,
        /// Runtime of a shared object (default: process).
        #[arg(long, value_name = "RUNTIME", value_parser = ["process", "in-process"])]
        runtime: Option<String>,
    },
    /// Upgrade a plugin without packet loss.
    #[command(after_help = "\
Examples:
  millrace plugin upgrade hello hello/hello.wasm
  millrace plugin upgrade hello hello/hello.wasm --shadow 1000   # compare both versions first

Instances keep their settings and bindings. They keep their state if both versions can save and restore state.
If the upgrade fails, the old version continues. `millrace plugin rollback` restores the old version later.")]
    Upgrade(PluginUpgrade),
    /// Restore the previous version of a plugin.
    #[command(
        after_help = "Examples:\n  millrace plugin rollback hello\n\nA second rollback restores the newer version."
    )]
    Rollback {
        /// Name of the plugin.
        name: String,
    },
    /// Unload a plugin that has no instances.
    #[command(
        after_help = "Examples:\n  millrace plugin unload hello\n\nBuilt-in plugins can't be unloaded."
    )]
    Unload {
        /// Name of the plugin.
        name: String,
    },
    /// List built-in and loaded plugins.
    #[command(after_help = "Examples:\n  millrace plugin list\n  millrace plugin list --json")]
    List,
}

/// Arguments of `plugin test`.
#[derive(Debug, Args)]
pub struct PluginTest {
    /// Plugin file.
    pub file: PathBuf,
    /// Capture file with the packets, pcap or pcapng (default: built-in packets).
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Settings of the plugin, such as longest=300.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub settings: Vec<String>,
    /// Packets per call, 1 to 64.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub batch: u8,
    /// Write forwarded packets to FILE as pcapng.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Send a control message after the last packet, such as 'set ports=80'; repeatable.
    #[arg(long, value_name = "MESSAGE")]
    pub control: Vec<String>,
    /// Compare verdicts and changed bytes with FILE.
    #[arg(long, value_name = "FILE", conflicts_with = "save")]
    pub expect: Option<PathBuf>,
    /// Write verdicts and changed bytes to FILE.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Runtime of a shared object (default: process).
    #[arg(long, value_name = "RUNTIME", value_parser = ["process", "in-process"])]
    pub runtime: Option<String>,
}

/// Arguments of `plugin bench`.
#[derive(Debug, Args)]
pub struct PluginBench {
    /// Plugin file.
    pub file: PathBuf,
    /// Settings of the plugin, such as longest=300.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub settings: Vec<String>,
    /// Write the measured cost into the manifest of the file.
    #[arg(long)]
    pub write: bool,
    /// Runtime of a shared object (default: process).
    #[arg(long, value_name = "RUNTIME", value_parser = ["process", "in-process"])]
    pub runtime: Option<String>,
}

/// Arguments of `plugin upgrade`.
#[derive(Debug, Args)]
pub struct PluginUpgrade {
    /// Name of the plugin.
    pub name: String,
    /// Plugin file of the new version; with --server, an absolute path on the router's machine.
    pub file: PathBuf,
    /// First run both versions on PACKETS packets of each instance; fail if fewer arrive within 10 s.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub shadow: Option<u64>,
    /// Upgrade even if --shadow finds differences.
    #[arg(long, requires = "shadow")]
    pub accept_differences: bool,
    /// Discard the state of the instances.
    #[arg(long)]
    pub without_state: bool,
    /// Load a signed plugin although a newer version was loaded before.
    #[arg(long)]
    pub allow_downgrade: bool,
}
