//! Command line: all commands with arguments, help and examples.

mod admission;
mod bench;
mod configuration;
mod connection;
mod gate;
mod instance;
mod place;
mod plugin;
mod principal;
mod run;
mod scheduler;
mod seeing;
mod show;
#[cfg(test)]
mod tests;
mod token;
mod traffic;

use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

pub use admission::{AdmissionAction, AllowanceAction, HardwareAction, Reproduce};
pub use bench::{Bench, BenchWorkload, LabAction, Replay};
pub use configuration::{
    Apply, Confirm, ControlPlaneAction, Diff, History, HistoryAction, Rollback, RouterAction, Save,
};
pub use connection::Connection;
pub use gate::{Bind, GateAction, Unbind};
pub use instance::{Control, Cycles, InstanceAction, Service, ServiceLevel, WorkerNumber};
pub use place::{Place, PlaceAction};
pub use plugin::{PluginAction, PluginBench, PluginTest, PluginUpgrade};
pub use principal::{Exec, PrincipalAction};
pub use run::{Check, Doctor, Driver, Init, Mode, OnDeath, Run, Shell};
pub use scheduler::{PortAction, QueueAction, SchedulerAction};
pub use seeing::{Capture, Drops, Lookup, Trace};
pub use show::{Audit, Events, Noun, Rates, Show, Top};
pub use token::TokenAction;
pub use traffic::{ConnectionAction, FilterAction, FlowAction, FlowOrder};
pub use traffic::{FlowReservation, NeighbourAction, RouteAction, Watch};

use crate::output::Failure;
use crate::usage::one_line;

/// Default path of the router's Unix socket.
pub const DEFAULT_SOCKET: &str = "/run/millrace/millrace.sock";
/// Heading of the common options in help.
const COMMON: &str = "Common options";

/// Software router for Linux with plugins, filters and schedulers.
#[derive(Debug, Parser)]
#[command(
    name = "millrace",
    version,
    max_term_width = 110,
    propagate_version = true,
    after_help = "\
Examples:
  millrace run --port eth1 --port eth2 --on-death kernel   # start a router
  millrace show ports                                      # query the running router
  millrace filter add --help                               # show help of a command, with examples

Exit status:
  0  success
  1  failure; also differences (`diff`) and findings (`filter check`)
  2  wrong usage; also errors of `diff`
  3  `run`: a call of a plugin instance did not return
  4  out of memory"
)]
pub struct Arguments {
    /// Connection to the router.
    #[command(flatten)]
    pub connection: Connection,
    /// Print JSON instead of text.
    #[arg(long, global = true, help_heading = COMMON)]
    pub json: bool,
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Parses the arguments of this process. Prints the text and exits for `--help`, for `--version`, and for
/// wrong usage without `json`.
///
/// # Errors
/// The arguments are invalid, and `json` is set. The caller prints the failure as JSON.
pub fn parse(json: bool) -> Result<Arguments, Failure> {
    let refused = |error: clap::Error| match error.use_stderr() && json {
        true => Failure::usage(one_line(&error)),
        false => error.exit(),
    };
    let matches = Arguments::command().try_get_matches().map_err(refused)?;
    let mut arguments = Arguments::from_arg_matches(&matches)
        .map_err(|error| refused(error.format(&mut Arguments::command())))?;
    arguments.connection.prefer_said(&matches)?;
    Ok(arguments)
}

/// Parses one command, given as words without the program name.
///
/// # Errors
/// The words are not a valid command.
pub fn command<'a>(words: impl Iterator<Item = &'a str>) -> Result<Command, Failure> {
    let read = Arguments::try_parse_from(std::iter::once("millrace").chain(words));
    read.map(|arguments| arguments.command).map_err(|error| Failure::usage(one_line(&error)))
}

/// Returns the command-line word of an enum value. The API uses the same word.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Command of `millrace`, with its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a router until SIGTERM or SIGINT.
    #[command(after_help = "\
Examples:
  millrace run --port eth1 --port eth2 --dry-run           # show the planned changes only
  millrace run --port eth1 --port eth2 --on-death kernel   # forward between two devices
  millrace run --config router.toml                        # read a configuration file

Ports on kernel devices need root. They use the addresses, routes and neighbours of the kernel.
Filters and bindings need an on-death action: --on-death, or `on-death` in the file.")]
    Run(Run),
    /// Generate a configuration file for this machine.
    #[command(
        after_help = "Examples:\n  millrace init --output router.toml   # a port for each suitable device\n  millrace init eth1 eth2              # ports for these devices, on standard output\n\nAddresses and routes are comments in the file, because the router takes them from the kernel."
    )]
    Init(Init),
    /// Check a configuration file without running it.
    #[command(
        after_help = "Examples:\n  millrace check router.toml                     # show the first 10 errors\n  millrace check router.toml --json              # show the first 100 errors as JSON\n  millrace check --schema > router.schema.json   # write the JSON Schema, for editors\n\nExit status 1 if the file has errors. Needs no running router."
    )]
    Check(Check),
    /// Apply a configuration file atomically.
    #[command(after_help = "\
Examples:
  millrace apply router.toml --comment 'new branch office'
  millrace apply router.toml --confirm 60s      # revert after 60 s, unless `millrace confirm` runs
  millrace apply router.toml --if-revision 12   # only if revision 12 runs, unchanged

The router changes only the differences. Flows that no difference affects lose no packet.
If a step fails, the router undoes the earlier steps.
The router refuses changes that need a restart, such as added ports; `millrace diff` shows them.")]
    Apply(Apply),
    /// Show what a configuration file would change.
    #[command(
        after_help = "Examples:\n  millrace diff router.toml   # changes that `apply router.toml` would make\n  millrace diff               # changes that would undo all commands since the last apply or save\n\nEach change is a command. Lines with # are notes, such as changes that need a restart.\nExit status: 0 no differences, 1 differences, 2 error."
    )]
    Diff(Diff),
    /// Keep a configuration that was applied with --confirm.
    #[command(
        after_help = "Examples:\n  millrace confirm      # confirm the unconfirmed revision\n  millrace confirm 12   # only if revision 12 is the unconfirmed one\n\nWithout confirmation, the router reverts the revision after the time of --confirm."
    )]
    Confirm(Confirm),
    /// List configuration revisions, or print one.
    #[command(
        after_help = "Examples:\n  millrace history           # list all revisions\n  millrace history show 12   # print the configuration of revision 12\n\nStates: runs (applied last), good (needs no confirmation), waiting (unconfirmed), withdrawn (reverted)."
    )]
    History(History),
    /// Apply an earlier revision, or revert an unconfirmed one.
    #[command(after_help = "\
Examples:
  millrace rollback                                    # revert the last change of the configuration
  millrace rollback 12 --comment 'mail did not work'   # apply revision 12, as a new revision
  millrace rollback 12 --confirm 60s                   # revert after 60 s, unless confirmed

Without NUMBER, the router reverts the unconfirmed revision.
If there is none, the router applies the newest good revision that is not running.")]
    Rollback(Rollback),
    /// Save the running configuration to a file and a revision.
    #[command(after_help = "\
Examples:
  millrace save                                      # to the file of the last apply, save or start
  millrace save router.toml --comment 'mail works'
  millrace save - > copy.toml                        # to standard output, without a revision

Unchanged entries of the file keep their text and comments.
If entries were added to the file by hand and never applied, `save` fails: apply the file first, or add --force.
While a revision is unconfirmed, only `save -` works.")]
    Save(Save),
    /// Check devices for performance features and suggest fixes.
    #[command(
        after_help = "Examples:\n  millrace doctor               # the machine, and all devices except loopback\n  millrace doctor eth1 --json   # the machine, and one device\n\n`!!` marks a problem of the machine. Needs no running router. Some checks need root."
    )]
    Doctor(Doctor),
    /// Show the state of a running router.
    #[command(
        after_help = "Examples:\n  millrace show ports           # all ports with counters and rates\n  millrace show port wan        # only the port `wan`\n  millrace show drops --json    # drop counters as JSON"
    )]
    Show(Show),
    /// Create, build, test, sign, load and upgrade plugins.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace plugin new hello               # create the project `hello` in Rust\n  millrace plugin build hello             # build hello/hello.wasm\n  millrace plugin load hello/hello.wasm   # load the plugin into the running router\n\nBuilt-in plugins need no file: `millrace plugin manual NAME` prints the manual of a built-in plugin."
    )]
    Plugin(PluginAction),
    /// Create, change, remove and list plugin instances.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace instance create statistics stats1              # instance `stats1` of `statistics`\n  millrace instance create port-filter web ports=80,443   # create `web` with a setting\n  millrace instance list\n\nAn instance gets packets once `millrace bind` or a filter action names it."
    )]
    Instance(InstanceAction),
    /// Manage gates: points at which instances and filters act.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace gate create late audit   # create the gate `audit` at the position `late`\n  millrace gate list\n\nA gate is a point in the pipeline at which instances and filters are bound to flows."
    )]
    Gate(GateAction),
    /// Bind a plugin instance to the flows that a filter matches.
    #[command(
        after_help = "Examples:\n  millrace bind stats1 --gate monitor --filter 'proto udp dport 5201'\n  millrace bind pf1 --gate firewall --filter 'in lan' --priority 10 --on-fault bypass\n\nAt each gate, one binding applies to a packet: the highest priority, then the most specific filter, then the oldest.\nBefore the first binding at ports on kernel devices, set what happens to packets when the router dies:\n`millrace router set on-death=kernel`, or `run --on-death`."
    )]
    Bind(Bind),
    /// Remove bindings of an instance.
    #[command(
        after_help = "Examples:\n  millrace unbind stats1         # remove the only binding of stats1\n  millrace unbind stats1 --all   # remove all bindings of stats1\n  millrace unbind stats1 --gate monitor --filter 'proto udp dport 5201'\n\nIf several bindings match, add --all. Without --all, the command then removes none (exit status 2)."
    )]
    Unbind(Unbind),
    /// Manage filters: match packets and act on them.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace filter add 'in lan proto tcp dport 25' --action drop\n  millrace filter list --watch   # counters and rates, every second\n  millrace filter remove 3       # remove the filter with the id 3\n\n`millrace filter add --help` lists all matches and actions."
    )]
    Filter(FilterAction),
    /// Manage static routes and look up routes.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace route add 10.9.0.0/16 via 10.2.0.254\n  millrace route lookup 10.9.1.1\n  millrace route list --within 10.0.0.0/8\n\nThe router also uses the kernel's routes (`ip route`, routing daemons), without a command."
    )]
    Route(RouteAction),
    /// Manage static neighbours, list all neighbours.
    #[command(
        subcommand,
        alias = "neighbor",
        after_help = "Examples:\n  millrace neighbour add tap0 10.3.0.77 02:00:00:00:00:07\n  millrace neighbour list\n\nOnly ports without a kernel device have static neighbours. For kernel devices, use `ip neighbour`."
    )]
    Neighbour(NeighbourAction),
    /// Change settings of a port.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace port set lan input-weight=64\n  millrace port set lan reverse-path=strict\n\nChanges of other settings of a port need a restart. `millrace scheduler` changes its scheduler."
    )]
    Port(PortAction),
    /// Show or change router-wide settings: the table [router].
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace router show\n  millrace router set icmp-rate=200   # ICMP errors of each type per second\n  millrace router set icmp-rate=      # restore the default"
    )]
    Router(RouterAction),
    /// Configure control-plane policing: the table [control-plane].
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace control-plane show\n  millrace control-plane set icmp=200   # packets per second at each port\n\nControl-plane policing limits packets to the router itself, by class. It doesn't limit forwarded packets."
    )]
    ControlPlane(ControlPlaneAction),
    /// Show and limit what is promised to principals, or place services on described hardware.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace admission show            # promised and left, by component\n  millrace admission set link=90%    # keep a tenth of each port's rate free\n  millrace admission simulate examples/admission/ixp1200.toml   # without a router"
    )]
    Admission(AdmissionAction),
    /// Measure this machine's processors and switches.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace hardware measure\n  millrace hardware measure --out router.toml\n\n`millrace show hardware` shows the processors, ports and switches of a running router."
    )]
    Hardware(HardwareAction),
    /// Manage allowances: what users may request and hold.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace allowance add students 'user=[\"alice\"]' cpu=30% link.wan=10mbit principals=4\n  millrace allowance list\n\nWithout an allowance, admins may request everything, and others no shares."
    )]
    Allowance(AllowanceAction),
    /// Configure egress queueing and shaping.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace scheduler add wan shared --kind fq-codel   # one FQ-CoDel queue for the port\n  millrace scheduler set wan rate=10mbit              # shape the port\n  millrace scheduler show wan\n\nA port without a scheduler sends first in, first out, without a rate limit."
    )]
    Scheduler(SchedulerAction),
    /// Show queues and change their settings.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace queue show\n  millrace queue set wan voice threshold=32KiB\n\nA queue is a leaf of a port's scheduler: `millrace scheduler add` creates queues."
    )]
    Queue(QueueAction),
    /// List, show and flush flows.
    #[command(subcommand, after_help = traffic::FLOW_EXAMPLES)]
    Flow(FlowAction),
    /// List connections: both directions of flows.
    #[command(subcommand, after_help = traffic::CONNECTION_EXAMPLES)]
    Connection(ConnectionAction),
    /// Pin flows to a level: offload (XDP) or worker.
    #[command(after_help = "\
Examples:
  millrace place 'proto udp dport 5201' worker   # never offload these flows
  millrace place 'dst 10.2.0.0/16' offload       # offload these flows, and keep idle ones offloaded
  millrace place stats1 offload                  # offload the packets of the instance `stats1`
  millrace place 'proto udp dport 5201' auto     # remove the placement of these flows
  millrace place list                            # list placements, and why flows are not offloaded
  millrace place show 'proto udp'                # show the level of each of these flows

At the level `offload`, the XDP program of the ingress port forwards the flow.
Without a placement, the router offloads active flows that need no worker.
The first placement that matches a flow applies.")]
    Place(Place),
    /// Send a control message to a plugin instance.
    #[command(
        after_help = "Examples:\n  millrace control stats1 read --json\n  millrace control pf1 set ports=80,443\n\n`millrace plugin inspect PLUGIN` lists the messages of a plugin."
    )]
    Control(Control),
    /// Show how the router would forward a packet.
    #[command(
        after_help = "Examples:\n  millrace lookup 'src 10.1.0.2 dst 10.2.0.2 in lan'\n  millrace lookup 'src 10.1.0.2 dst 10.2.0.2 proto tcp sport 9000 dport 80 flags syn in lan'\n\nNo packet is sent. Defaults: proto udp, sport 0, dport 0, dscp 0, no ingress port; the length is 64 bytes."
    )]
    Lookup(Lookup),
    /// Capture frames at a port, gate or instance as pcapng.
    #[command(after_help = "\
Examples:
  millrace capture lan --filter 'proto tcp dport 80' -w - | tshark -r -
  millrace capture any --filter 'port 80 or icmp' -w - | tcpdump -n -r -   # at all ports
  millrace capture instance:stats1 --count 100 -w stats1.pcapng            # at an instance
  timeout 10s millrace capture lan --filter 'not port 22' -w lan.pcapng    # for 10 seconds

At a gate or an instance, arriving packets are inbound frames, and departing packets are outbound frames.
During a capture, matching flows are not offloaded, and workers use only the general path: throughput falls.
If the reader is more than 4 MiB behind, the router discards frames and logs their number.")]
    Capture(Capture),
    /// Trace packets stage by stage.
    #[command(after_help = "\
Examples:
  millrace trace --filter 'proto tcp dport 80 in lan' --count 3
  millrace trace --every 1000 --count 100 --time 10m --json   # sample 1 in 1,000 packets
  millrace trace --filter 'src 10.1.0.2' -w - | tshark -r - -T fields -e frame.comment

For each stage, a trace shows CPU cycles, decision and reason. Only one trace runs at a time.
During a trace, flows that match --filter are not offloaded; without --filter, no flow is.
Packets that stay in the kernel, such as those to its own addresses, are not traced.")]
    Trace(Trace),
    /// Show drop counters and the last dropped packets.
    #[command(after_help = "\
Examples:
  millrace drops                              # counters by reason, with the last packets
  millrace drops --reason no-route --follow   # new packets without a route, until Ctrl-C
  millrace drops -w drops.pcapng              # the last packets as pcapng

Each worker keeps up to 8 packets for each reason.
Drops in devices and in the XDP program have counters, but no packets.")]
    Drops(Drops),
    /// Run commands interactively or from a file.
    #[command(after_help = "\
Examples:
  millrace shell                              # interactive; Tab completes commands and names
  millrace shell commands.txt                 # run the commands of a file
  echo 'show ports' | millrace shell --json   # run the commands of a pipe

Write commands without `millrace`. # starts a comment; `exit` or Ctrl-D ends the shell.
The first failing command of a file or pipe ends the shell, with the exit status of the command.
The shell keeps typed commands in ~/.local/state/millrace/history.")]
    Shell(Shell),
    /// Monitor ports, queues, flows and plugins.
    #[command(
        after_help = "Examples:\n  millrace top\n  millrace top --interval 5s\n\nKeys: q or Esc quits, space pauses.\nNeeds a terminal; in scripts, use `show`, `flow list`, `queue show` or `metrics`."
    )]
    Top(Top),
    /// Show events, such as link changes and plugin faults.
    #[command(
        after_help = "Examples:\n  millrace events                              # the last 50 events\n  millrace events --follow --kind link-down    # new events of one kind, until Ctrl-C\n  millrace events --since 120 --json           # all events after number 120\n\nThe router keeps the last 4,096 events in memory. Event numbers start at 1 when the router starts."
    )]
    Events(Events),
    /// Show the audit log.
    #[command(
        after_help = "Examples:\n  millrace audit                      # the last 100 lines\n  millrace audit --last 1000 --json\n\nThe audit log lists changes, refused requests, captures and traces, with time, user and outcome.\nNeeds the role admin."
    )]
    Audit(Audit),
    /// Manage API tokens for remote access.
    #[command(
        subcommand,
        after_help = "Examples:
  millrace token create ci --role operator --expires 30d > ci.token
  millrace token list
  millrace token revoke ci
  millrace --server https://router:8443 --token-file ci.token --ca router.crt show ports

The last example uses the token on another machine. The router accepts remote clients with `run --listen`."
    )]
    Token(TokenAction),
    /// Print packet and bit rates of ports.
    #[command(
        after_help = "Examples:\n  millrace rates                              # once a second, until Ctrl-C\n  millrace rates --hz 10 --count 50 --json    # 50 samples in 5 seconds\n\nAll rates are per second: packets received, sent and dropped, and bits received and sent."
    )]
    Rates(Rates),
    /// Print metrics in OpenMetrics format.
    #[command(
        after_help = "Examples:\n  millrace metrics | grep dropped\n\nPrometheus reads the same text at /metrics of the API. The command refuses --json."
    )]
    Metrics,
    /// Print the ETag of a resource, for --if-match.
    #[command(after_help = "\
Examples:
  millrace tag instances/web
  millrace instance set web ports=80 --if-match \"$(millrace tag instances/web)\"

The ETag of a resource changes with its settings, not with its counters.
Resources with an ETag:
  router, configuration, instances/NAME, gates/NAME, filters/ID, plugins/NAME,
  schedulers/PORT, queues/PORT/QUEUE, principals/NAME")]
    Tag {
        /// Path of the resource, such as instances/web.
        resource: String,
    },
    /// Reset packet counters.
    #[command(
        after_help = "Examples:\n  millrace clear\n\nResets counters of ports, drops, routes, filters, instances and control-plane policing.\nCounters of queues, schedulers and flows continue."
    )]
    Clear,
    /// Manage principals: owners of CPU time, memory and disk.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace principal add video cpu=5% cpu-limit=20% memory=8MiB\n  millrace principal list\n  millrace exec --principal video -- ffmpeg -i in.ts out.ts\n\nA principal has a control group of the kernel on the router's machine. Its processes are started by `millrace exec`."
    )]
    Principal(PrincipalAction),
    /// Run a command as a process of a principal.
    #[command(
        after_help = "Examples:\n  millrace exec --principal video -- ffmpeg -i in.ts out.ts\n  millrace exec --principal backup -- sh -c 'tar c /srv | gzip > /backup.tar.gz'\n\nNeeds root, on the router's machine. Shares and limits apply to the command and its child processes.\nExit status: that of the command; 1 if it can't be started."
    )]
    Exec(Exec),
    /// Replay a capture file under a virtual clock.
    #[command(
        after_help = "Examples:\n  millrace replay --in lan.pcap --out sent.pcapng --config examples/replay.toml --at lan\n  millrace replay --crash /var/lib/millrace/crash-captures/20261123T221500Z-1234-0.pcapng\n\nThe virtual clock follows the times of the capture. Needs no device, no root and no running router.\n--crash: exit status 0 if the worker panics again at the same place, else 1."
    )]
    Replay(Replay),
    /// Build test networks in network namespaces.
    #[command(
        subcommand,
        after_help = "Examples:\n  millrace lab up examples/lab/two-hosts.toml\n  millrace lab exec two-hosts h1 -- ping -c 3 10.2.0.2\n  millrace lab down two-hosts\n\nA lab has hosts, routers and links on this machine. Needs root, except for `lab list`."
    )]
    Lab(LabAction),
    /// Run or list benchmarks.
    #[command(after_help = "\
Examples:
  millrace bench                        # list all benchmarks
  millrace bench memory --json
  millrace bench cpu --case isolation
  millrace bench memory --flows 128K --distribution zipf --size imix --path queues
  millrace bench instructions           # compare with bench/instructions.json
  millrace bench all --html out.html    # run all benchmarks, in up to an hour

Exit status:
  0  all performance targets met
  1  a target missed, or a benchmark without results
  2  wrong usage

Most benchmarks need root.")]
    Bench(Bench),
    /// Run the papers' experiments.
    #[command(after_help = "\
Examples:
  millrace reproduce --list                  # list all experiments
  millrace reproduce vera --html vera.html   # all experiments of one paper

~/.cache/millrace/reproduce keeps results until the program changes.
Exit status 1 if a conclusion of a paper doesn't show.")]
    Reproduce(Reproduce),
    /// Print shell completions.
    #[command(
        after_help = "Examples:\n  millrace completions bash > /etc/bash_completion.d/millrace\n  millrace completions fish > ~/.config/fish/completions/millrace.fish\n  source <(millrace completions bash --names)   # also complete names of ports, filters and others\n\nWith --names, the shell calls millrace at each Tab."
    )]
    Completions {
        /// Shell that reads the completions.
        shell: clap_complete::Shell,
        /// Also complete names of the running router, such as ports.
        #[arg(long)]
        names: bool,
    },
    /// Write the manual pages.
    #[command(
        after_help = "Examples:\n  millrace manual /usr/local/share/man/man1\n  man millrace-scheduler-add   # read one of the pages"
    )]
    Manual {
        /// Output directory; created if missing.
        directory: PathBuf,
    },
    /// Compile a plugin (internal).
    #[command(hide = true)]
    CompilePlugin {
        /// Order from the parent router process.
        order: Vec<String>,
    },
    /// Run an instance of a shared object (internal).
    #[command(hide = true)]
    PluginProcess {
        /// Order from the parent router process.
        order: Vec<String>,
    },
}
