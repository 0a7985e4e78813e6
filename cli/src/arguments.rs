//! The command line: every command with its arguments, help and an example.

mod configuration;
mod connection;
mod place;
mod plugin;
mod scheduler;
mod seeing;
mod token;
mod traffic;
#[cfg(test)]
mod words;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

pub use configuration::{Apply, Diff, History, HistoryAction, Rollback, Router, RouterAction, Save};
pub use connection::Connection;
pub use place::{Place, PlaceAction};
pub use plugin::{PluginAction, PluginArguments, PluginTest};
pub use scheduler::{Port, PortAction, Queue, QueueAction, Scheduler, SchedulerAction};
pub use seeing::{Drops, Trace};
pub use token::{Token, TokenAction};
pub use traffic::{
    Filter, FilterAction, Flow, FlowAction, FlowOrder, Neighbour, NeighbourAction, Route, RouteAction, Watch,
};

/// Where clients find the daemon unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/millrace/millrace.sock";

/// A software router that is programmed while it forwards: bind plugins to flows, keep every promise.
#[derive(Debug, Parser)]
#[command(name = "millrace", version, max_term_width = 110, propagate_version = true)]
pub struct Arguments {
    /// Which router is asked.
    #[command(flatten)]
    pub connection: Connection,
    /// Print JSON.
    #[arg(long, global = true)]
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
        after_help = "Example:\n  millrace run --port eth1 --port eth2\n  millrace run --config router.toml"
    )]
    Run(Run),
    /// Check a configuration without running it.
    #[command(
        after_help = "Example:\n  millrace check router.toml\n  millrace check --schema > router.schema.json"
    )]
    Check(Check),
    /// Make of what runs what a file says: all of it, or nothing.
    #[command(
        after_help = "Only what differs is changed, and other flows lose no packet. When a step can't be made, those before it are undone.\n\nExample:\n  millrace apply router.toml --comment 'new branch office'\n  millrace apply router.toml --confirm 60s && millrace confirm"
    )]
    Apply(Apply),
    /// Say what a file would change, in the words of the commands; exit with 1 where that is something, with 2 where it can't be told.
    #[command(after_help = "Example:\n  millrace diff router.toml\n  millrace diff")]
    Diff(Diff),
    /// Keep what was applied with --confirm.
    #[command(after_help = "Example:\n  millrace apply router.toml --confirm 60s && millrace confirm")]
    Confirm,
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
    #[command(after_help = "Example:\n  millrace show ports\n  millrace show drops --json")]
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
        after_help = "Example:\n  millrace unbind stats1 --gate monitor --filter 'proto udp dport 5201'"
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
    /// Say in which order ports send, and at which rates.
    #[command(
        after_help = "Example:\n  millrace scheduler add wan shared --kind fq-codel\n  millrace scheduler set wan rate=10mbit\n  millrace scheduler show"
    )]
    Scheduler(Scheduler),
    /// Show queues of ports and of flows, and change them.
    Queue(Queue),
    /// List, show and forget the flows that the router knows.
    #[command(after_help = "Example:\n  millrace flow list --by rate --limit 10")]
    Flow(Flow),
    /// Say at which level flows are treated: in the driver, or at a worker; show where each is, and why.
    #[command(
        after_help = "By itself a flow goes down into the driver when it sends, if nothing about it is a worker's, and comes up when it is idle. The first that was said of a flow counts.\n\nExample:\n  millrace place 'proto udp dport 5201' worker\n  millrace place 'dst 10.2.0.0/16' xdp\n  millrace place 'proto udp dport 5201' auto\n  millrace place list\n  millrace place show 'proto udp'"
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
        after_help = "At gates and instances, packets are inbound as they come there, and outbound as they go on; what is dropped there does not. Those that an instance keeps for a while are not seen as they go on.\n\nExample:\n  millrace capture lan --filter 'proto tcp dport 80' -w - | tshark -r -\n  millrace capture firewall -w - | tcpdump -n -r -\n  millrace capture instance:stats1 --count 100 -w stats1.pcapng\n\ntcpdump can't see packets that the router takes before the kernel does; this can."
    )]
    Capture(Capture),
    /// Write down the journeys of packets that come in, stage by stage: decisions, cycles, and why they are dropped.
    #[command(after_help = "\
Whichever level would have treated a packet, it is seen: while a trace goes on, the driver leaves the flows that its filter may match to
the workers, and each packet that is chosen goes through the stages alone. So its cycles are its own; in a batch it costs less.
One trace goes on at a time. What the kernel keeps (its own addresses, other protocols) never enters the router.

Example:
  millrace trace --filter 'proto tcp dport 80 in lan' --count 3
  millrace trace --every 1000 --count 100 --seconds 600 --json
  millrace trace --filter 'src 10.1.0.2' -w - | tshark -r - -T fields -e frame.comment")]
    Trace(Trace),
    /// Say what was dropped and why, with the last packets of each reason.
    #[command(after_help = "\
Up to 8 packets are kept for each reason and worker; of those that are dropped in one turn of a worker, the first.
What devices and the driver drop before the router sees it is counted, and has no packets.

Example:
  millrace drops
  millrace drops --reason no_route --follow
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
        after_help = "Example:\n  millrace top\n  millrace top --interval 5\n\nKeys: q ends it, space holds it."
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
    /// Set all counters to zero.
    #[command(after_help = "Example:\n  millrace clear")]
    Clear,
    /// Send the frames of a file through a router without devices, under a virtual clock.
    #[command(after_help = "Example:\n  millrace replay --in a.pcap --out b.pcap --config c.toml")]
    Replay(Replay),
    /// Build networks of hosts and routers in network namespaces.
    #[command(
        after_help = "Example:\n  millrace lab up examples/lab/two-hosts.toml\n  millrace lab exec two-hosts h1 -- ping -c 3 10.2.0.2\n  millrace lab down two-hosts"
    )]
    Lab(Lab),
    /// Measure, beside a peer where there is one. Without a name: list what can be measured.
    #[command(
        after_help = "Example:\n  millrace bench\n  millrace bench memory --json\n  millrace bench memory --flows 128K --distribution zipf --size imix --path queues\n  millrace bench instructions --baseline bench/instructions.json\n  millrace bench instructions --accept"
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

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// The file with the commands; without it, the terminal, or what comes from a pipe.
    pub file: Option<PathBuf>,
    /// Go on behind lines that fail, and end with the exit code of the last of them.
    #[arg(long, short)]
    pub keep_going: bool,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Seconds between two looks, 0.5 to 60.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
}

/// Seconds between two looks.
fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.5..=60.0).contains(seconds));
    seconds.ok_or_else(|| "seconds from 0.5 to 60 are right".to_owned())
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Go on with those that come, until it is interrupted or the router ends.
    #[arg(long, short)]
    pub follow: bool,
    /// Those with higher numbers than this one.
    #[arg(long, value_name = "NUMBER", conflicts_with = "last")]
    pub since: Option<u64>,
    /// The last ones, so many. Default: 50; with --follow none.
    #[arg(long, value_name = "COUNT")]
    pub last: Option<u32>,
    /// Those of this kind; may be given several times.
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
}

impl Events {
    /// How many of the last ones are printed, if nothing is said.
    pub const LAST: u32 = 50;
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// The last lines, so many: 1 to 10,000.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub last: u32,
}

/// Arguments of `rates`.
#[derive(Debug, Args)]
pub struct Rates {
    /// How often in a second, 1 to 10.
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub hz: u8,
    /// End after so many.
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,
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

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// A kernel device to use as a port; may be given several times.
    #[arg(long = "port", value_name = "DEVICE", conflicts_with = "config")]
    pub ports: Vec<String>,
    /// A configuration file.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["ports", "last_good"])]
    pub config: Option<PathBuf>,
    /// Start from the last revision that counts (`history`), even where the file can't be read; without one, from the file.
    #[arg(long, conflicts_with = "ports")]
    pub last_good: bool,
    /// Where the router remembers what has to outlive it, revisions for instance; `none`: nowhere. It counts more than the file.
    #[arg(long, value_name = "DIR", value_parser = state)]
    pub state: Option<PathBuf>,
    /// How the worker waits for packets.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Threads that forward, 1 to 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub workers: Option<u8>,
    /// How kernel devices are used, for ports that don't say.
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<Driver>,
    /// What happens to packets when the router dies, for ports that don't say.
    #[arg(long, value_name = "WHAT")]
    pub on_death: Option<OnDeath>,
    /// Forward although Linux was told to do more than routing with these ports' packets.
    #[arg(long)]
    pub ignore_kernel_policy: bool,
    /// Say what would be taken, what stays with the kernel, and what changes; change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Serve the HTTP interface here over TLS, to whoever has a token; may be given several times.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<std::net::SocketAddr>,
    /// The certificate for --listen, with those that vouch for it, in PEM. Without it the router makes its own.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// The certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Write `ready` and a newline to this descriptor once the router forwards.
    #[arg(long, value_name = "FD")]
    pub ready_fd: Option<i32>,
}

/// A directory by its whole path, or `none`.
fn state(text: &str) -> Result<PathBuf, String> {
    match text {
        "none" => Ok(text.into()),
        _ => std::path::absolute(text).map_err(|error| error.to_string()),
    }
}

/// How the worker waits for packets.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Mode {
    /// It never sleeps.
    Poll,
    /// It sleeps whenever there is nothing to do.
    Interrupt,
    /// It polls under load and sleeps when idle.
    Adaptive,
}

/// How kernel devices are used.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Driver {
    /// The best that works.
    #[value(name = "auto")]
    Auto,
    /// AF_XDP, in the driver if it can.
    #[value(name = "af_xdp")]
    AfXdp,
    /// AF_XDP behind the driver.
    #[value(name = "af_xdp-generic")]
    AfXdpGeneric,
    /// AF_PACKET rings.
    #[value(name = "af_packet")]
    AfPacket,
}

/// What happens to packets when the router dies.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OnDeath {
    /// The kernel forwards on.
    Kernel,
    /// They are dropped until a router starts again.
    Drop,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The configuration file.
    #[arg(required_unless_present = "schema")]
    pub file: Option<PathBuf>,
    /// Print the JSON Schema of configurations instead.
    #[arg(long)]
    pub schema: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Devices to look at; all of this network namespace, if none is named.
    pub devices: Vec<String>,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct Show {
    /// What to show.
    pub noun: Noun,
}

/// What can be shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Noun {
    /// Ports with counters and rates.
    Ports,
    /// Processors, ports and switches, what each can do, and the tree that they are.
    Hardware,
    /// Routes, mirrored and our own.
    Routes,
    /// Neighbours of the ports.
    Neighbours,
    /// Plugin instances and what they are bound to.
    Instances,
    /// Gates and what is bound there.
    Gates,
    /// Plugins that instances can be made of.
    Plugins,
    /// Instances that a call of theirs has ended the router for.
    Quarantine,
    /// What became of all packets.
    Summary,
    /// What was dropped, and why.
    Drops,
    /// The daemon itself.
    Status,
    /// Bindings of instances and of other actions.
    Bindings,
    /// What runs, as the text of a configuration.
    Configuration,
    /// What the interface has: paths and methods.
    Interface,
    /// The interface described in OpenAPI, as JSON.
    Openapi,
}

impl Noun {
    /// The resource of the interface that holds it.
    pub fn path(self) -> &'static str {
        match self {
            Self::Ports => "/ports",
            Self::Hardware => "/hardware",
            Self::Routes => "/routes",
            Self::Neighbours => "/neighbours",
            Self::Instances => "/instances",
            Self::Gates => "/gates",
            Self::Plugins => "/plugins",
            Self::Quarantine => "/quarantine",
            Self::Summary => "/summary",
            Self::Drops => "/drops",
            Self::Status => "/status",
            Self::Bindings => "/bindings",
            Self::Configuration => "/configuration",
            Self::Interface => "/",
            Self::Openapi => "/openapi.json",
        }
    }
}

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
        after_help = "Examples:\n  millrace instance map guard\n  millrace instance map guard blocked --json"
    )]
    Map {
        /// The instance's name.
        name: String,
        /// The map's name; without it, all are listed.
        map: Option<String>,
    },
}

/// Arguments of `gate`.
#[derive(Debug, Args)]
pub struct Gate {
    /// What to do.
    #[command(subcommand)]
    pub action: GateAction,
}

/// What to do with gates.
#[derive(Debug, Subcommand)]
pub enum GateAction {
    /// Create a gate, the last at its position.
    #[command(after_help = "Example:\n  millrace gate create late audit")]
    Create {
        /// early, route, late, queue or copy.
        position: String,
        /// The gate's name.
        name: String,
    },
    /// Change how a gate's filters are searched, while it forwards: all kinds of tables find the same.
    #[command(after_help = "Example:\n  millrace gate set firewall --table dag")]
    Set {
        /// The gate's name.
        name: String,
        /// auto, linear, tuple-space, cutting-tree, dag, dag-patricia or dag-tree-bitmap.
        #[arg(long)]
        table: String,
    },
    /// Remove a gate that nothing is bound at.
    #[command(after_help = "Example:\n  millrace gate remove audit")]
    Remove {
        /// The gate's name.
        name: String,
    },
    /// List gates.
    #[command(after_help = "Example:\n  millrace gate list")]
    List,
}

/// Arguments of `bind`.
#[derive(Debug, Args)]
pub struct Bind {
    /// The instance.
    pub instance: String,
    /// The gate.
    #[arg(long)]
    pub gate: String,
    /// Which packets; an empty filter is all of them.
    #[arg(long)]
    pub filter: String,
    /// Of several filters that match, the highest priority wins.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// What becomes of packets that the instance fails at, and while it pauses after that.
    #[arg(long, value_parser = ["drop", "bypass"], default_value = "drop")]
    pub on_fault: String,
    /// Microseconds that a call may take in all before it counts as a fault, 1 to 1000000. Default 1000.
    #[arg(long)]
    pub budget: Option<u32>,
    /// The same for each packet of a call, if that is less. A call always has 50.
    #[arg(long)]
    pub packet_budget: Option<u32>,
}

/// Arguments of `unbind`.
#[derive(Debug, Args)]
pub struct Unbind {
    /// The instance.
    pub instance: String,
    /// The gate.
    #[arg(long)]
    pub gate: String,
    /// The filter that it was bound with.
    #[arg(long)]
    pub filter: String,
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

/// Arguments of `lookup`.
#[derive(Debug, Args)]
pub struct Lookup {
    /// The packet, written as a filter without wildcards for source and destination. Without `proto` it is UDP, without
    /// `sport` and `dport` its ports are 0; it has 64 bytes.
    pub packet: String,
}

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct Capture {
    /// A port, a gate or an instance, by its name; `any` for all ports. `gate:NAME` says which, where names are not unique.
    pub place: String,
    /// Which packets.
    #[arg(long)]
    pub filter: Option<String>,
    /// The file to write; `-` for standard output.
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// End after so many frames.
    #[arg(long, short)]
    pub count: Option<u64>,
    /// Keep at most so many bytes of a frame.
    #[arg(long, default_value_t = 65_535)]
    pub snap: u32,
}

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// The file with the frames, pcap or pcapng.
    #[arg(long = "in", value_name = "FILE")]
    pub input: PathBuf,
    /// The pcapng file for the frames that the router sends, one interface per port.
    #[arg(long = "out", value_name = "FILE")]
    pub output: PathBuf,
    /// The configuration; its ports are taken as they are named, without their devices.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The port that the frames arrive at. Default: the first.
    #[arg(long, value_name = "PORT")]
    pub at: Option<String>,
}

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub struct Lab {
    /// What to do.
    #[command(subcommand)]
    pub action: LabAction,
}

/// What to do with labs.
#[derive(Debug, Subcommand)]
pub enum LabAction {
    /// Build the lab of a file, and wait until it forwards.
    #[command(after_help = "Example:\n  millrace lab up examples/lab/two-hosts.toml")]
    Up {
        /// The lab's file.
        file: PathBuf,
    },
    /// Undo a lab.
    #[command(after_help = "Example:\n  millrace lab down two-hosts")]
    Down {
        /// The lab's name, or its file.
        name: String,
    },
    /// List the labs that are up.
    #[command(after_help = "Example:\n  millrace lab list")]
    List,
    /// Run a command on a host or router of a lab.
    #[command(after_help = "Example:\n  millrace lab exec two-hosts h1 -- ping -c 3 10.2.0.2")]
    Exec {
        /// The lab's name, or its file.
        name: String,
        /// The host or router.
        node: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// What to measure; `all` for everything.
    pub name: Option<String>,
    /// With `instructions`: the file with the counts to compare with. Without it `bench/instructions.json`, where that is.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// With `instructions`: make what is counted the baseline, and print what changed.
    #[arg(long)]
    pub accept: bool,
    /// Run it by another build of Millrace as well, in turns with this one, and print the ratio of the medians of each case.
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["accept", "baseline"])]
    pub against: Option<PathBuf>,
    /// With `--against`: how often each build runs it.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Write the results to a page with plots as well, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// With `--html`: measure nothing, and take results that were printed by `--json`.
    #[arg(long, value_name = "FILE", requires = "html", conflicts_with_all = ["name", "against", "accept", "baseline"])]
    pub from: Option<PathBuf>,
    /// With `memory`: what is sent.
    #[command(flatten)]
    pub workload: BenchWorkload,
}

/// What `bench memory` sends. Without any of these all that something is promised of is measured, else one case, in which
/// the rest is as their defaults say.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "With `memory`: one case, instead of all that something is promised of")]
pub struct BenchWorkload {
    /// Flows, as in 1, 128K or 1M. 1K by default.
    #[arg(long, value_name = "NUMBER")]
    pub flows: Option<millrace_bench::Amount>,
    /// How often each flow comes: `uniform` (the default) or `zipf`.
    #[arg(long)]
    pub distribution: Option<millrace_bench::Distribution>,
    /// The internet protocol's version: 4 (the default) or 6.
    #[arg(long, value_name = "VERSION")]
    pub ip: Option<millrace_bench::Ip>,
    /// How long packets are: 64 bytes (the default), `imix` (350 on average) or 1500.
    #[arg(long)]
    pub size: Option<millrace_bench::Size>,
    /// Routes, all with flows, as in 1, 200K or 500K. 1K by default.
    #[arg(long, value_name = "NUMBER")]
    pub routes: Option<millrace_bench::Amount>,
    /// Gates at which nothing is bound: 0 (the default) or 3.
    #[arg(long, value_name = "NUMBER")]
    pub gates: Option<millrace_bench::EmptyGates>,
    /// What packets pass: `bare` (no flow table), `flow-table` (the default) or `queues` (the flow table, and a queue for each
    /// flow).
    #[arg(long)]
    pub path: Option<millrace_bench::Stages>,
    /// Workers: 1 (the default) or 2. With 2 their rate beside that of one is measured.
    #[arg(long, value_name = "NUMBER")]
    pub workers: Option<millrace_bench::Workers>,
}
