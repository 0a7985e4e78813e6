//! Command line: all commands with arguments, help and examples.

mod bench;
mod configuration;
mod connection;
mod gate;
mod instance;
#[cfg(test)]
mod names;
mod place;
mod plugin;
mod run;
mod scheduler;
mod seeing;
mod show;
mod token;
mod traffic;
#[cfg(test)]
mod words;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub use bench::{Bench, BenchWorkload, Lab, LabAction, Replay};
pub use configuration::{
    Apply, Confirm, ControlPlane, ControlPlaneAction, Diff, History, HistoryAction, Rollback, Router,
    RouterAction, Save,
};
pub use connection::Connection;
pub use gate::{Bind, Gate, GateAction, Unbind};
pub use instance::{Control, Instance, InstanceAction};
pub use place::{Place, PlaceAction};
pub use plugin::{PluginAction, PluginArguments, PluginTest, PluginUpgrade};
pub use run::{Check, Doctor, Driver, Init, Mode, OnDeath, Run};
pub use scheduler::{Port, PortAction, Queue, QueueAction, Scheduler, SchedulerAction};
pub use seeing::{Capture, Drops, Lookup, Trace};
pub use show::{Audit, Events, Noun, Rates, Show, Top};
pub use token::{Token, TokenAction};
pub use traffic::{
    Filter, FilterAction, Flow, FlowAction, FlowOrder, Neighbour, NeighbourAction, Route, RouteAction, Watch,
};

/// Default socket of the daemon.
pub const DEFAULT_SOCKET: &str = "/run/millrace/millrace.sock";

/// Heading of the common options in help.
const COMMON: &str = "Common options";

/// Software router, programmable while it forwards.
#[derive(Debug, Parser)]
#[command(name = "millrace", version, max_term_width = 110, propagate_version = true)]
pub struct Arguments {
    /// Connection to the router.
    #[command(flatten)]
    pub connection: Connection,
    /// Print JSON.
    #[arg(long, global = true, help_heading = COMMON)]
    pub json: bool,
    /// Subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Parses the arguments of this process.
///
/// # Errors
/// The arguments are invalid.
pub fn parse() -> Result<Arguments, clap::Error> {
    let matches = Arguments::command().try_get_matches()?;
    let mut arguments =
        Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut Arguments::command()))?;
    arguments.connection.prefer_said(&matches)?;
    Ok(arguments)
}

/// Parses a command from its words.
///
/// # Errors
/// The words are no valid command.
pub fn command<'a>(words: impl Iterator<Item = &'a str>) -> Result<Command, crate::output::Failure> {
    let read = Arguments::try_parse_from(std::iter::once("millrace").chain(words));
    read.map(|arguments| arguments.command).map_err(|error| crate::output::Failure::usage(one_line(&error)))
}

/// Formats an error of the arguments as one line: its text before the usage.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let words: Vec<_> = said.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// Subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a router until SIGTERM or SIGINT.
    #[command(
        after_help = "Filters and bindings are refused until --on-death, or on-death in the file, says what happens when the router dies.\n\nExample:\n  millrace run --port eth1 --port eth2 --dry-run\n  millrace run --port eth1 --port eth2 --on-death kernel\n  millrace run --config router.toml"
    )]
    Run(Run),
    /// Write a configuration from devices, addresses and routes.
    #[command(
        after_help = "The kernel's addresses and routes stand in it as comments: the router mirrors them.\n\nExample:\n  millrace init --output router.toml && millrace check router.toml\n  millrace init eth1 eth2"
    )]
    Init(Init),
    /// Check a configuration without running it.
    #[command(
        after_help = "Example:\n  millrace check router.toml\n  millrace check --schema > router.schema.json"
    )]
    Check(Check),
    /// Apply a configuration file atomically.
    #[command(
        after_help = "Only what differs is changed, and other flows lose no packet. When a step can't be made, those before it are undone.\n\nExample:\n  millrace apply router.toml --comment 'new branch office'\n  millrace apply router.toml --confirm 60s && millrace confirm\n  millrace apply router.toml --if-revision 12"
    )]
    Apply(Apply),
    /// Show what a configuration file would change; exit 1 if it differs, 2 on an error.
    #[command(after_help = "Example:\n  millrace diff router.toml\n  millrace diff")]
    Diff(Diff),
    /// Confirm a configuration that was applied with --confirm.
    #[command(
        after_help = "Example:\n  millrace apply router.toml --confirm 60s && millrace confirm\n  millrace confirm 12"
    )]
    Confirm(Confirm),
    /// List configuration revisions, or print one.
    #[command(after_help = "Example:\n  millrace history\n  millrace history show 12")]
    History(History),
    /// Apply an earlier revision, or revert an unconfirmed one.
    #[command(
        after_help = "Example:\n  millrace rollback\n  millrace rollback 12 --comment 'mail did not work'"
    )]
    Rollback(Rollback),
    /// Save the running configuration to a file and a revision.
    #[command(
        after_help = "A file with entries that were neither applied nor saved is refused: apply it first, or say --force.\n\nExample:\n  millrace save\n  millrace save router.toml --comment 'mail works'\n  millrace save - > copy.toml"
    )]
    Save(Save),
    /// Check devices for performance features and suggest fixes.
    #[command(after_help = "Example:\n  millrace doctor\n  millrace doctor eth1 --json")]
    Doctor(Doctor),
    /// Show the state of a running router.
    #[command(
        after_help = "Example:\n  millrace show ports\n  millrace show filter 3\n  millrace show drops --json"
    )]
    Show(Show),
    /// Create, build, try, sign, load, unload and list plugins.
    #[command(
        after_help = "Example:\n  millrace plugin new hello\n  millrace plugin build hello\n  millrace plugin load hello/hello.wasm"
    )]
    Plugin(PluginArguments),
    /// Create, remove and list plugin instances.
    #[command(after_help = "Example:\n  millrace instance create statistics stats1")]
    Instance(Instance),
    /// Create, remove and list gates.
    #[command(after_help = "Example:\n  millrace gate create late audit")]
    Gate(Gate),
    /// Bind an instance to the flows that a filter matches.
    #[command(after_help = "Example:\n  millrace bind stats1 --gate monitor --filter 'proto udp dport 5201'")]
    Bind(Bind),
    /// Undo a binding.
    #[command(
        after_help = "Example:\n  millrace unbind stats1\n  millrace unbind stats1 --gate monitor --filter 'proto udp dport 5201'\n  millrace unbind stats1 --all"
    )]
    Unbind(Unbind),
    /// Manage filters: match packets and act on them.
    #[command(
        after_help = "Example:\n  millrace filter add 'in lan proto tcp dport 25' --action drop\n  millrace filter list"
    )]
    Filter(Filter),
    /// Manage static routes and look up routes.
    #[command(
        after_help = "Example:\n  millrace route add 10.9.0.0/16 via 10.2.0.254\n  millrace route lookup 10.9.1.1"
    )]
    Route(Route),
    /// Manage static neighbours.
    #[command(
        alias = "neighbor",
        after_help = "Example:\n  millrace neighbour add wan 10.2.0.77 02:00:00:00:00:07\n  millrace neighbour list"
    )]
    Neighbour(Neighbour),
    /// Change settings of a port.
    #[command(after_help = "Example:\n  millrace port set lan input-weight=64")]
    Port(Port),
    /// Show and change router-wide settings: the table [router].
    #[command(after_help = "Example:\n  millrace router show\n  millrace router set icmp-rate=200")]
    Router(Router),
    /// Configure control-plane policing: the table [control-plane].
    #[command(after_help = "Example:\n  millrace control-plane show\n  millrace control-plane set icmp=200")]
    ControlPlane(ControlPlane),
    /// Configure egress queueing and shaping.
    #[command(
        after_help = "Example:\n  millrace scheduler add wan shared --kind fq-codel\n  millrace scheduler set wan rate=10mbit\n  millrace scheduler show"
    )]
    Scheduler(Scheduler),
    /// Show and change queues.
    #[command(after_help = "Example:\n  millrace queue show\n  millrace queue set wan voice threshold=32KiB")]
    Queue(Queue),
    /// List, show and flush flows.
    #[command(after_help = "Example:\n  millrace flow list --order rate --limit 10")]
    Flow(Flow),
    /// Pin flows to the driver or a worker, or show where they are treated.
    #[command(
        after_help = "An active flow moves into the driver if no feature of a worker concerns it; an idle flow leaves the driver. The first matching placement counts.\n\nExample:\n  millrace place 'proto udp dport 5201' worker\n  millrace place 'dst 10.2.0.0/16' xdp\n  millrace place 'udp and not port 53' xdp\n  millrace place 'proto udp dport 5201' auto\n  millrace place list\n  millrace place show 'proto udp'"
    )]
    Place(Place),
    /// Send a control message to a plugin instance.
    #[command(
        after_help = "Example:\n  millrace control stats1 read --json\n  millrace control pf1 set ports=80,443"
    )]
    Control(Control),
    /// Show how the router would forward a packet.
    #[command(
        after_help = "Example:\n  millrace lookup 'src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan'"
    )]
    Lookup(Lookup),
    /// Capture frames at a port, gate or instance as pcapng.
    #[command(
        after_help = "At a gate or an instance, the file has each packet before it (inbound) and after it (outbound). A dropped packet has no outbound frame, nor has a packet that an instance holds.\nThe file holds the frames that were read until the end; after Ctrl-C those of the last 20 ms may be missing. 4 MiB wait for the reader; frames that find no room are left out, and counted in the router's log.\n\nExample:\n  millrace capture lan --filter 'proto tcp dport 80' -w - | tshark -r -\n  millrace capture any --filter 'port 80 or icmp' -w - | tcpdump -n -r -\n  millrace capture firewall -w - | tcpdump -n -r -\n  millrace capture instance:stats1 --count 100 -w stats1.pcapng\n  timeout 10s millrace capture lan --filter 'not port 22' -w lan.pcapng\n\ntcpdump can't see packets that the router takes before the kernel does; this can. Flows that it may match leave the driver while it runs: TCP slows down."
    )]
    Capture(Capture),
    /// Trace packets stage by stage.
    #[command(after_help = "\
Whichever level would have treated a packet, it is seen: while a trace goes on, the driver leaves the flows that its filter may match to
the workers, and each packet that is chosen goes through the stages alone. So its cycles are its own; in a batch it costs less.
One trace goes on at a time. What the kernel keeps (its own addresses, other protocols) never enters the router.

Example:
  millrace trace --filter 'proto tcp dport 80 in lan' --count 3
  millrace trace --filter 'port 53 or icmp'
  millrace trace --every 1000 --count 100 --time 10m --json
  millrace trace --filter 'src 10.1.0.2' -w - | tshark -r - -T fields -e frame.comment")]
    Trace(Trace),
    /// Show drop counters and the last dropped packets.
    #[command(after_help = "\
Up to 8 packets are kept for each reason and worker; of those dropped in one iteration of a worker, the first.
Reasons may be written with hyphens: new-flows is new_flows.
What devices and the driver drop before the router sees it is counted, and has no packets.

Example:
  millrace drops
  millrace drops --reason no-route --follow
  millrace drops -w drops.pcapng")]
    Drops(Drops),
    /// Run commands interactively or from a file.
    #[command(after_help = "\
Lines are what stands behind `millrace`, with quotes as in other shells; # begins a comment, `exit` or Ctrl-D ends, Ctrl-C ends what runs.
Tab completes commands, options, and names of the running router. What was typed is remembered in ~/.local/state/millrace/history.
Out of a file, or from a pipe, the first line that fails ends it, with its exit code, unless --keep-going is given.

Example:
  millrace shell
  millrace shell commands.txt
  echo 'show ports' | millrace shell --json")]
    Shell(Shell),
    /// Monitor ports, queues, flows and plugins.
    #[command(
        after_help = "Example:\n  millrace top\n  millrace top --interval 5s\n\nKeys: q quits, space pauses."
    )]
    Top(Top),
    /// Show events.
    #[command(
        after_help = "Example:\n  millrace events\n  millrace events --follow --kind plugin-fault --kind instance-quarantined\n  millrace events --since 120 --json"
    )]
    Events(Events),
    /// Show the audit log.
    #[command(after_help = "Example:\n  millrace audit\n  millrace audit --last 1000 --json")]
    Audit(Audit),
    /// Manage API tokens.
    #[command(
        after_help = "Example:\n  millrace token create prometheus --role viewer\n  millrace token list\n  millrace token revoke prometheus\n\nWith a token, commands reach a remote router:\n  millrace --server https://router:8443 --token-file ci.token --ca router.crt show ports"
    )]
    Token(Token),
    /// Print packet and byte rates of ports.
    #[command(after_help = "Example:\n  millrace rates\n  millrace rates --hz 10 --count 50 --json")]
    Rates(Rates),
    /// Print metrics in OpenMetrics format.
    #[command(after_help = "Example:\n  millrace metrics | grep dropped")]
    Metrics,
    /// Print the ETag of a resource, for --if-match.
    #[command(
        after_help = "Resources that have one: router, configuration, instances/NAME, gates/NAME, filters/ID, plugins/NAME, schedulers/PORT, queues/PORT/QUEUE.\n\nExample:\n  millrace tag instances/web\n  millrace instance set web ports=80 --if-match \"$(millrace tag instances/web)\""
    )]
    Tag(Tag),
    /// Reset all counters.
    #[command(after_help = "Example:\n  millrace clear")]
    Clear,
    /// Replay a capture file under a virtual clock.
    #[command(
        after_help = "Example:\n  millrace replay --in a.pcap --out b.pcap --config c.toml\n  millrace replay --crash /var/lib/millrace/crash-captures/20261123T221500Z-1234-0.pcapng"
    )]
    Replay(Replay),
    /// Build test networks in network namespaces.
    #[command(
        after_help = "Example:\n  millrace lab up examples/lab/two-hosts.toml\n  millrace lab exec two-hosts h1 -- ping -c 3 10.2.0.2\n  millrace lab down two-hosts"
    )]
    Lab(Lab),
    /// Run or list benchmarks; exit 1 if a promise is not met.
    #[command(
        after_help = "Exit status:\n  0  all promises kept\n  1  a promise not kept, or a benchmark without results: standard error lists them,\n     after the JSON and the page are written\n  2  wrong usage\n\nExample:\n  millrace bench\n  millrace bench memory --json\n  millrace bench memory --flows 128K --distribution zipf --size imix --path queues\n  millrace bench instructions --baseline bench/instructions.json\n  millrace bench instructions --accept"
    )]
    Bench(Bench),
    /// Print shell completions.
    #[command(
        after_help = "Example:\n  millrace completions bash > /etc/bash_completion.d/millrace\n  millrace completions fish > ~/.config/fish/completions/millrace.fish\n  source <(millrace completions bash --names)"
    )]
    Completions(Completions),
    /// Write the manual pages.
    #[command(
        after_help = "Example:\n  millrace manual /usr/local/share/man/man1\n  man millrace-scheduler-add"
    )]
    Manual(Manual),
    /// Compile a plugin (internal).
    #[command(hide = true)]
    CompilePlugin(CompilePlugin),
}

/// Arguments of `tag`.
#[derive(Debug, Args)]
pub struct Tag {
    /// Resource, as listed by `show interface`.
    pub resource: String,
}

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// File with commands (default: standard input).
    pub file: Option<PathBuf>,
    /// Continue after failed lines; exit with the code of the last one that failed.
    #[arg(long, short)]
    pub keep_going: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    pub shell: clap_complete::Shell,
    /// Also complete names of the running router.
    #[arg(long)]
    pub names: bool,
}

/// Arguments of `manual`.
#[derive(Debug, Args)]
pub struct Manual {
    /// Output directory, created if missing.
    pub directory: PathBuf,
}

/// Arguments of `compile-plugin`.
#[derive(Debug, Args)]
pub struct CompilePlugin {
    /// Order from the parent router process.
    pub order: Vec<String>,
}
