//! The command line: every command with its arguments, help and an example.

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

/// Where clients find the daemon unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/millrace/millrace.sock";

/// What help calls the options that all commands have.
const COMMON: &str = "Common options";

/// A software router that is programmed while it forwards: bind plugins to flows, keep every promise.
#[derive(Debug, Parser)]
#[command(name = "millrace", version, max_term_width = 110, propagate_version = true)]
pub struct Arguments {
    /// Which router is asked.
    #[command(flatten)]
    pub connection: Connection,
    /// Print JSON.
    #[arg(long, global = true, help_heading = COMMON)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The arguments of this process.
///
/// # Errors
/// Why they are wrong.
pub fn parse() -> Result<Arguments, clap::Error> {
    let matches = Arguments::command().try_get_matches()?;
    let mut arguments =
        Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut Arguments::command()))?;
    arguments.connection.prefer_said(&matches)?;
    Ok(arguments)
}

/// Reads a command from its words.
///
/// # Errors
/// Why they are wrong.
pub fn command<'a>(words: impl Iterator<Item = &'a str>) -> Result<Command, crate::output::Failure> {
    let read = Arguments::try_parse_from(std::iter::once("millrace").chain(words));
    read.map(|arguments| arguments.command).map_err(|error| crate::output::Failure::usage(one_line(&error)))
}

/// Why arguments are wrong, in one line: what there is before the usage.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let words: Vec<_> = said.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a router until SIGTERM or SIGINT.
    #[command(
        after_help = "Filters and bindings are refused until --on-death, or on-death in the file, says what happens when the router dies.\n\nExample:\n  millrace run --port eth1 --port eth2 --dry-run\n  millrace run --port eth1 --port eth2 --on-death kernel\n  millrace run --config router.toml"
    )]
    Run(Run),
    /// Write a configuration for this machine, from its devices, addresses and routes.
    #[command(
        after_help = "The kernel's addresses and routes stand in it as comments: the router mirrors them.\n\nExample:\n  millrace init --output router.toml && millrace check router.toml\n  millrace init eth1 eth2"
    )]
    Init(Init),
    /// Check a configuration without running it.
    #[command(
        after_help = "Example:\n  millrace check router.toml\n  millrace check --schema > router.schema.json"
    )]
    Check(Check),
    /// Make of what runs what a file says: all of it, or nothing.
    #[command(
        after_help = "Only what differs is changed, and other flows lose no packet. When a step can't be made, those before it are undone.\n\nExample:\n  millrace apply router.toml --comment 'new branch office'\n  millrace apply router.toml --confirm 60s && millrace confirm\n  millrace apply router.toml --if-revision 12"
    )]
    Apply(Apply),
    /// Say what a file would change, in the words of the commands; exit with 1 where that is something, with 2 where it can't be told.
    #[command(after_help = "Example:\n  millrace diff router.toml\n  millrace diff")]
    Diff(Diff),
    /// Keep what was applied with --confirm.
    #[command(
        after_help = "Example:\n  millrace apply router.toml --confirm 60s && millrace confirm\n  millrace confirm 12"
    )]
    Confirm(Confirm),
    /// List what was applied: when, by whom and why; print a revision's file.
    #[command(after_help = "Example:\n  millrace history\n  millrace history show 12")]
    History(History),
    /// Apply a revision again; go back at once where something waits to be confirmed.
    #[command(
        after_help = "Example:\n  millrace rollback\n  millrace rollback 12 --comment 'mail did not work'"
    )]
    Rollback(Rollback),
    /// Write what runs into a file, keep its comments, and make a revision of it.
    #[command(
        after_help = "A file with entries that were neither applied nor saved is refused: apply it first, or say --force.\n\nExample:\n  millrace save\n  millrace save router.toml --comment 'mail works'\n  millrace save - > copy.toml"
    )]
    Save(Save),
    /// Say what this machine can do for each network device, and what would make it faster.
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
    /// Add, remove, list and explain filters: what is done with which packets.
    #[command(
        after_help = "Example:\n  millrace filter add 'in lan proto tcp dport 25' --action drop\n  millrace filter list"
    )]
    Filter(Filter),
    /// Add, remove, list and look up routes.
    #[command(
        after_help = "Example:\n  millrace route add 10.9.0.0/16 via 10.2.0.254\n  millrace route lookup 10.9.1.1"
    )]
    Route(Route),
    /// Add, remove and list neighbours: those that are known for good.
    #[command(
        alias = "neighbor",
        after_help = "Example:\n  millrace neighbour add wan 10.2.0.77 02:00:00:00:00:07\n  millrace neighbour list"
    )]
    Neighbour(Neighbour),
    /// Change settings of a port while it forwards.
    #[command(after_help = "Example:\n  millrace port set lan input-weight=64")]
    Port(Port),
    /// Show and change what holds for the whole router: the table [router] of its configuration.
    #[command(after_help = "Example:\n  millrace router show\n  millrace router set icmp-rate=200")]
    Router(Router),
    /// Show and change how much of what is for the router itself gets there, by class: the table [control-plane] of its configuration.
    #[command(after_help = "Example:\n  millrace control-plane show\n  millrace control-plane set icmp=200")]
    ControlPlane(ControlPlane),
    /// Say in which order ports send, and at which rates.
    #[command(
        after_help = "Example:\n  millrace scheduler add wan shared --kind fq-codel\n  millrace scheduler set wan rate=10mbit\n  millrace scheduler show"
    )]
    Scheduler(Scheduler),
    /// Show queues of ports and of flows, and change them.
    #[command(after_help = "Example:\n  millrace queue show\n  millrace queue set wan voice threshold=32KiB")]
    Queue(Queue),
    /// List, show and forget the flows that the router knows.
    #[command(after_help = "Example:\n  millrace flow list --order rate --limit 10")]
    Flow(Flow),
    /// Say at which level flows are treated: in the driver, or at a worker; show where each is, and why.
    #[command(
        after_help = "By itself a flow goes down into the driver when it sends, if nothing about it is a worker's, and comes up when it is idle. The first that was said of a flow counts.\n\nExample:\n  millrace place 'proto udp dport 5201' worker\n  millrace place 'dst 10.2.0.0/16' xdp\n  millrace place 'udp and not port 53' xdp\n  millrace place 'proto udp dport 5201' auto\n  millrace place list\n  millrace place show 'proto udp'"
    )]
    Place(Place),
    /// Send an instance a control message.
    #[command(
        after_help = "Example:\n  millrace control stats1 read --json\n  millrace control pf1 set ports=80,443"
    )]
    Control(Control),
    /// Say what would happen to a packet, and why.
    #[command(
        after_help = "Example:\n  millrace lookup 'src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 5201 in lan'"
    )]
    Lookup(Lookup),
    /// Write the frames at a port, a gate or an instance to a pcapng file or, with `-w -`, to Wireshark.
    #[command(
        after_help = "At a gate or an instance, the file has each packet before it (inbound) and after it (outbound). A dropped packet has no outbound frame, nor has a packet that an instance holds.\nThe file holds the frames that were read until the end; after Ctrl-C those of the last 20 ms may be missing. 4 MiB wait for the reader; frames that find no room are left out, and counted in the router's log.\n\nExample:\n  millrace capture lan --filter 'proto tcp dport 80' -w - | tshark -r -\n  millrace capture any --filter 'port 80 or icmp' -w - | tcpdump -n -r -\n  millrace capture firewall -w - | tcpdump -n -r -\n  millrace capture instance:stats1 --count 100 -w stats1.pcapng\n  timeout 10s millrace capture lan --filter 'not port 22' -w lan.pcapng\n\ntcpdump can't see packets that the router takes before the kernel does; this can. Flows that it may match leave the driver while it runs: TCP slows down."
    )]
    Capture(Capture),
    /// Write down the journeys of packets that come in, stage by stage: decisions, cycles, and why they are dropped.
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
    /// Say what was dropped and why, with the last packets of each reason.
    #[command(after_help = "\
Up to 8 packets are kept for each reason and worker; of those that are dropped in one turn of a worker, the first.
Reasons may be written with hyphens: new-flows is new_flows.
What devices and the driver drop before the router sees it is counted, and has no packets.

Example:
  millrace drops
  millrace drops --reason no-route --follow
  millrace drops -w drops.pcapng")]
    Drops(Drops),
    /// Read commands and carry them out, one after the other: from the terminal, with completion and history, or from a file.
    #[command(after_help = "\
Lines are what stands behind `millrace`, with quotes as in other shells; # begins a comment, `exit` or Ctrl-D ends, Ctrl-C ends what runs.
Tab completes commands, options, and names of the running router. What was typed is remembered in ~/.local/state/millrace/history.
Out of a file, or from a pipe, the first line that fails ends it, with its exit code, unless --keep-going is said.

Example:
  millrace shell
  millrace shell commands.txt
  echo 'show ports' | millrace shell --json")]
    Shell(Shell),
    /// Watch a running router: ports, queues, flows and plugins, drawn anew every second.
    #[command(
        after_help = "Example:\n  millrace top\n  millrace top --interval 5s\n\nKeys: q ends it, space holds it."
    )]
    Top(Top),
    /// Print what happened: links, neighbours, plugins that fail, configurations, what fills up.
    #[command(
        after_help = "Example:\n  millrace events\n  millrace events --follow --kind plugin-fault --kind instance-quarantined\n  millrace events --since 120 --json"
    )]
    Events(Events),
    /// Print who asked for which change, when, and what came of it.
    #[command(after_help = "Example:\n  millrace audit\n  millrace audit --last 1000 --json")]
    Audit(Audit),
    /// Make, list and revoke tokens, by which one is let in from elsewhere.
    #[command(
        after_help = "Example:\n  millrace token create prometheus --role viewer\n  millrace token list\n  millrace token revoke prometheus\n\nWith a token, commands ask a router elsewhere:\n  millrace --server https://router:8443 --token-file ci.token --ca router.crt show ports"
    )]
    Token(Token),
    /// Print what the counters of ports grow by in a second, again and again.
    #[command(after_help = "Example:\n  millrace rates\n  millrace rates --hz 10 --count 50 --json")]
    Rates(Rates),
    /// Print counters and gauges for Prometheus, as OpenMetrics text.
    #[command(after_help = "Example:\n  millrace metrics | grep dropped")]
    Metrics,
    /// Print the tag of a resource, which stays while nobody changes it: for --if-match.
    #[command(
        after_help = "Resources that have one: router, configuration, instances/NAME, gates/NAME, filters/ID, plugins/NAME, schedulers/PORT, queues/PORT/QUEUE.\n\nExample:\n  millrace tag instances/web\n  millrace instance set web ports=80 --if-match \"$(millrace tag instances/web)\""
    )]
    Tag(Tag),
    /// Set all counters to zero.
    #[command(after_help = "Example:\n  millrace clear")]
    Clear,
    /// Send the frames of a file through a router without devices, under a virtual clock.
    #[command(
        after_help = "Example:\n  millrace replay --in a.pcap --out b.pcap --config c.toml\n  millrace replay --crash /var/lib/millrace/crash-captures/20261123T221500Z-1234-0.pcapng"
    )]
    Replay(Replay),
    /// Build networks of hosts and routers in network namespaces.
    #[command(
        after_help = "Example:\n  millrace lab up examples/lab/two-hosts.toml\n  millrace lab exec two-hosts h1 -- ping -c 3 10.2.0.2\n  millrace lab down two-hosts"
    )]
    Lab(Lab),
    /// Run a benchmark, or list them; exit 1 if a promise breaks.
    #[command(
        after_help = "Exit status:\n  0  all promises kept\n  1  a promise not kept, or a benchmark without results: standard error lists them,\n     after the JSON and the page are written\n  2  wrong usage\n\nExample:\n  millrace bench\n  millrace bench memory --json\n  millrace bench memory --flows 128K --distribution zipf --size imix --path queues\n  millrace bench instructions --baseline bench/instructions.json\n  millrace bench instructions --accept"
    )]
    Bench(Bench),
    /// Print the completions of commands for a shell.
    #[command(
        after_help = "Example:\n  millrace completions bash > /etc/bash_completion.d/millrace\n  millrace completions fish > ~/.config/fish/completions/millrace.fish\n  source <(millrace completions bash --names)"
    )]
    Completions(Completions),
    /// Write the manual pages of all commands.
    #[command(
        after_help = "Example:\n  millrace manual /usr/local/share/man/man1\n  man millrace-scheduler-add"
    )]
    Manual(Manual),
    /// Compile a plugin: the router starts itself so.
    #[command(hide = true)]
    CompilePlugin(CompilePlugin),
}

/// Arguments of `tag`.
#[derive(Debug, Args)]
pub struct Tag {
    /// The resource, as `show interface` lists them.
    pub resource: String,
}

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// The file with the commands; without it, the terminal, or what comes from a pipe.
    pub file: Option<PathBuf>,
    /// Go on behind lines that fail, and end with the exit code of the last of them.
    #[arg(long, short)]
    pub keep_going: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    pub shell: clap_complete::Shell,
    /// Complete names of the running router too: the shell asks millrace each time.
    #[arg(long)]
    pub names: bool,
}

/// Arguments of `manual`.
#[derive(Debug, Args)]
pub struct Manual {
    /// The directory that they are written to; it is made where it is missing.
    pub directory: PathBuf,
}

/// Arguments of `compile-plugin`.
#[derive(Debug, Args)]
pub struct CompilePlugin {
    /// What the router says to itself.
    pub order: Vec<String>,
}
