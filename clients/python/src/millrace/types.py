"""What is sent and answered.

Made by tools/python-client: change what the router says of itself, and make it again.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

class AmbiguousView(TypedDict):
    """Two filters whose winner is hard to see."""
    decided_by: str
    """Field in which the winner is more specific; `age` where the winner is only older."""
    loser: NamedFilterView
    """Filter that loses."""
    winner: NamedFilterView
    """Filter that wins."""


class AppliedView(TypedDict):
    """Outcome of applying a configuration."""
    changes: list[str]
    """Commands that would make the same changes."""
    confirm: str | None
    """Time after which the change is rolled back unless it is confirmed: `60s`."""
    origin: str
    """Source of the configuration."""
    revision: int | None
    """Number of the new revision. It is absent where nothing changed and the newest revision was running
    already, or where the previous revision runs again."""
    shadowed: list[ShadowedView]
    """Filters and bindings that never win, each with the filters that precede it; empty where nothing changed."""


class Apply(TypedDict):
    """Request to apply a configuration."""
    comment: NotRequired[str | None]
    """Reason for the change."""
    confirm: NotRequired[str | None]
    """Time until an unconfirmed configuration is rolled back: `60s`, `10m`."""
    if_revision: NotRequired[int | None]
    """Revision that must be running without later changes; otherwise nothing is applied."""
    origin: NotRequired[str | None]
    """Name of the file, for messages and for the history."""
    text: str
    """Text of the configuration."""


class ApplyingView(TypedDict):
    """Progress of a transaction of several changes."""
    made: int
    """Number of changes made."""
    of: int
    """Number of changes in all; 0 while it is unknown."""


AuditEntry: TypeAlias = 'dict[str, Any]'
"""Entry of the audit log: a request for a change."""


class BindingView(TypedDict):
    """Binding of an instance, or of another action, to flows."""
    action: str
    """Action on the packets: `instance NAME`, `drop`, `reject`, `host`, `port NAME`, `ports NAME,NAME` or `copy-
    to NAME`."""
    budget: int | None
    """Time limit of an instance's call, in microseconds."""
    bytes: int
    """Bytes of the binding's packets."""
    drops: int
    """Packets of the binding that the instance dropped."""
    filter: str
    """Filter of the packets."""
    gate: str
    """Name of the gate."""
    id: int
    """Number of the binding. No other binding gets it while the router runs, and older bindings have smaller
    numbers."""
    instance: str | None
    """Name of the instance, if the action is one."""
    lost_bytes: int
    """Bytes of the lost packets."""
    lost_packets: int
    """Packets dropped in queues or behind them, before a device took them."""
    on_fault: str | None
    """Treatment of packets at which the instance fails; `null` without an instance."""
    packet_budget: int | None
    """Time limit for each packet of a call in microseconds, if there is one."""
    packets: int
    """Packets of the binding."""
    priority: int
    """Priority of the filter; of several filters that match, the highest priority wins."""
    queued_bytes: int
    """Bytes of the queued packets."""
    queued_packets: int
    """Packets given to the queues of ports; each copy and each fragment is one packet."""
    sent_bytes: int
    """Bytes of the sent packets."""
    sent_packets: int
    """Packets that went on to devices."""
    shadowed_by: NotRequired[list[NamedFilterView] | None]
    """Filters that precede a new binding so that it never wins; empty where the binding can win. Absent in
    lists."""
    unreached: NotRequired[str | None]
    """Reason why no arriving packet meets a new binding. Absent where packets can meet it, and in lists."""
    waiting_bytes: int
    """Bytes of the waiting packets."""
    waiting_packets: int
    """Packets waiting in queues."""


Boot: TypeAlias = Literal['file'] | Literal['last-good']
"""Source of the configuration at the start."""


class CandidateView(TypedDict):
    """Filter in the explanation of a packet."""
    action: str
    """Action of the filter."""
    chosen: bool
    """Whether the filter wins for the packet."""
    id: int
    """Number of the filter."""
    match: str
    """Expression of the filter."""
    outcome: str
    """Reason why the filter wins or not."""
    priority: int
    """Priority of the filter; of several filters that match, the highest priority wins."""


class Cleared(TypedDict):
    """That counters begin anew."""
    cleared: bool
    """Always true."""


class Compared(TypedDict):
    """A text, or what was last applied."""
    origin: NotRequired[str | None]
    text: NotRequired[str | None]


class ConfigurationView(TypedDict):
    """Running configuration."""
    origin: str
    """Name of the file that was applied last, or with which the router was started."""
    pending: Pending | None
    """Revision that waits for its confirmation."""
    store: str | None
    """File of the revisions; `null` where revisions end with the router."""
    text: str
    """Text of the configuration, as a file."""


class Confirm(TypedDict):
    """What is confirmed."""
    revision: NotRequired[int | None]
    """The revision that has to wait: where another one does, nothing is confirmed."""


class Confirmed(TypedDict):
    """What was confirmed."""
    revision: int
    """Its revision."""


ControlClassView: TypeAlias = 'dict[str, Any]'
"""Class of packets for the router itself."""


class ControlPlaneView(TypedDict):
    """State of control-plane policing."""
    classes: list[ControlClassView]
    """Classes, each with its rate."""
    police: bool
    """Whether control-plane policing is on."""


class CpuView(TypedDict):
    """Processor of the machine."""
    core: int | None
    """Core of the processor. Processors with the same core in the same package share it."""
    cpu: int
    """Number of the processor in Linux."""
    node: int | None
    """Nearest NUMA node of the processor."""
    package: int | None
    """Package of the processor."""


class CrashView(TypedDict):
    """Crash with a stored capture."""
    capture: str
    """Path of the frames of the last batch; the report is next to it, as `.json`."""
    instance: NotRequired[str | None]
    """Instance whose call panicked; absent if no call of an instance was running."""
    location: str
    """File, line and column of the panic."""
    message: str
    """Message of the panic."""
    time: str
    """Time of the crash, UTC."""
    version: str
    """Version of the router."""


class CreatedTokenView(TypedDict):
    """Newly created token."""
    created: str
    """Time of creation: date and time, UTC."""
    created_by: Who
    """Creator of the token."""
    expired: bool
    """Whether the token has expired."""
    expires: str | None
    """Time of expiry; absent for a token that does not expire."""
    name: str
    """Name of the token."""
    role: Role
    """Role that the token grants."""
    token: str
    """Token itself. It is shown only this once."""
    used: str | None
    """Time of the last use, as far as it is known; absent for an unused token."""
    used_from: str | None
    """Address of the last use."""


class DifferenceView(TypedDict):
    """Difference between the running configuration and another one."""
    changes: list[str]
    """Commands that would make the changes."""
    origin: str
    """Name of the other configuration."""
    restart: list[str]
    """Changes that need a restart."""


class DriverBudgetView(TypedDict):
    """Static budget of the offload level, in instructions for each packet."""
    ask: int
    """Assumed additional cost of calling the eBPF variant of a plugin, without the variant's own instructions."""
    form: int
    """Budget of the eBPF variant of a plugin."""
    forward: int
    """Assumed cost of forwarding or dropping."""
    instructions: int
    """Budget of a flow."""
    longest_way: int | None
    """Instructions on the longest path through the compiled program, without a token bucket and without
    completing a checksum."""
    police: int
    """Assumed additional cost of a token bucket."""


class DriverFlowsView(TypedDict):
    """Offloaded flows."""
    evicted: int
    """Number of flows evicted for heavier flows, or for flows placed there."""
    evicted_rate: float
    """Flows evicted for others per second since the last request."""
    flows: int
    """Number of flows in the flow cache."""
    idle: int
    """Number of flows evicted because no packet arrived for a time."""
    idle_rate: float
    """Flows evicted as idle per second since the last request."""
    inserted: int
    """Number of flows offloaded so far."""
    inserted_rate: float
    """Flows offloaded per second since the last request."""
    most: int
    """Most flows of the flow cache."""
    refused: int
    """Number of flows that found no room, each counted once."""
    refused_rate: float
    """Flows that found no room, per second since the last request."""
    renewed: int
    """Number of flows renewed in the flow cache after a change."""


class DriverFormView(TypedDict):
    """eBPF variant of a plugin."""
    bytes: int
    """Size of its object file in bytes."""
    counters: int
    """Number of words of its counters, on each processor."""
    settings: int
    """Number of words of its settings."""


class DropView(TypedDict):
    """Drops for one reason."""
    ether_types: dict[str, int]
    """Number of packets by EtherType, for the reason `ether_type`; up to 64 EtherTypes."""
    meaning: str
    """Meaning of the reason."""
    packets: int
    """Number of packets."""
    ports: dict[str, int]
    """Number of packets by port; `-` for packets without a port."""
    rate: float
    """Packets per second since the last request."""
    reason: str
    """Drop reason."""


class DroppedView(TypedDict):
    """Dropped packet."""
    binding: int | None
    """Number of the filter or binding that dropped the packet, where it is known."""
    by: str | None
    """Description of the instance or filter that dropped the packet; a list where several instances are
    possible."""
    filter: str | None
    """Expression of that filter."""
    frame: str
    """First bytes of the packet, up to 128, in hexadecimal."""
    instance: str | None
    """Instance that dropped the packet, where it is known."""
    length: int
    """Length of the packet in bytes."""
    out_port: str | None
    """Egress port, if it was decided."""
    port: str
    """Port of arrival; `-` for packets that the router creates."""
    reason: str
    """Drop reason."""
    summary: str
    """Headers of the packet in one line."""
    time: str
    """Time of the drop: date and time, UTC."""
    worker: int
    """Number of the worker."""


class Event(TypedDict):
    """Event of the log."""
    count: int
    """Number of events that this entry combines."""
    details: dict[str, Any]
    """Details of the event for programs."""
    kind: EventKind
    """Kind of the event."""
    number: int
    """Number of the event: 1 for the first event of a router, then one more for each."""
    severity: Severity
    """Severity of the event."""
    subject: str
    """Subject of the event."""
    text: str
    """Text of the event, in one sentence; of several events, about the last."""
    time: str
    """Time of the event, or of the last of several: date and time, UTC."""


EventKind: TypeAlias = Literal['router-started'] | Literal['worker-panicked'] | Literal['link-up'] | Literal['link-down'] | Literal['device-gone'] | Literal['device-back'] | Literal['queueing-passed-by'] | Literal['queueing-gone'] | Literal['neighbour-learned'] | Literal['neighbour-changed'] | Literal['neighbour-lost'] | Literal['neighbour-failed'] | Literal['address-conflict'] | Literal['route-missing'] | Literal['route-back'] | Literal['plugin-loaded'] | Literal['plugin-unloaded'] | Literal['plugin-upgraded'] | Literal['plugin-rolled-back'] | Literal['plugin-fault'] | Literal['instance-restarted'] | Literal['instance-quarantined'] | Literal['instance-released'] | Literal['configuration-applied'] | Literal['configuration-refused'] | Literal['configuration-confirmed'] | Literal['configuration-rolled-back'] | Literal['configuration-saved'] | Literal['reservation-set'] | Literal['reservation-removed'] | Literal['threshold-exceeded'] | Literal['threshold-cleared'] | Literal['handler-panicked'] | Literal['audit-failed']
"""Kind of an event."""


class EventPage(TypedDict):
    """Page of the event log."""
    events: list[Event]
    """Entries, the oldest first."""
    missed: int
    """Number of requested entries of any kind that the log no longer has."""
    newest: int
    """Number of the newest entry."""
    next: int
    """Value of `since` for the entries that follow this page."""


class FilterView(TypedDict):
    """Binding of an instance, or of another action, to flows."""
    action: str
    """Action on the packets: `instance NAME`, `drop`, `reject`, `host`, `port NAME`, `ports NAME,NAME` or `copy-
    to NAME`."""
    budget: int | None
    """Time limit of an instance's call, in microseconds."""
    bytes: int
    """Bytes of the binding's packets."""
    drops: int
    """Packets of the binding that the instance dropped."""
    gate: str
    """Name of the gate."""
    id: int
    """Number of the binding. No other binding gets it while the router runs, and older bindings have smaller
    numbers."""
    instance: str | None
    """Name of the instance, if the action is one."""
    lost_bytes: int
    """Bytes of the lost packets."""
    lost_packets: int
    """Packets dropped in queues or behind them, before a device took them."""
    match: str
    """Filter of the packets."""
    on_fault: str | None
    """Treatment of packets at which the instance fails; `null` without an instance."""
    packet_budget: int | None
    """Time limit for each packet of a call in microseconds, if there is one."""
    packets: int
    """Packets of the binding."""
    priority: int
    """Priority of the filter; of several filters that match, the highest priority wins."""
    queued_bytes: int
    """Bytes of the queued packets."""
    queued_packets: int
    """Packets given to the queues of ports; each copy and each fragment is one packet."""
    sent_bytes: int
    """Bytes of the sent packets."""
    sent_packets: int
    """Packets that went on to devices."""
    shadowed_by: NotRequired[list[NamedFilterView] | None]
    """Filters that precede a new binding so that it never wins; empty where the binding can win. Absent in
    lists."""
    unreached: NotRequired[str | None]
    """Reason why no arriving packet meets a new binding. Absent where packets can meet it, and in lists."""
    waiting_bytes: int
    """Bytes of the waiting packets."""
    waiting_packets: int
    """Packets waiting in queues."""


FiltersAdded: TypeAlias = 'FilterView | dict[str, Any]'
"""What was added."""


class FlowQueueView(TypedDict):
    """Queue of a flow."""
    dropped_bytes: int
    """Bytes of the dropped packets."""
    drops: dict[str, int]
    """Packets dropped, by cause."""
    flow: str | None
    """Filter that matches only the flow's packets; absent where the router has forgotten the flow or does not
    know it yet."""
    held_bytes: int
    """Bytes of the waiting packets."""
    held_packets: int
    """Packets waiting."""
    marked_packets: int
    """Packets marked (ECN) rather than dropped."""
    moved_bytes: int
    """Bytes of the moved packets."""
    moved_packets: int
    """Packets moved to another queue, because their flow got a queue of its own."""
    offered_bytes: int
    """Bytes of the arrived packets."""
    offered_packets: int
    """Packets that arrived: packets sent, moved, waiting or dropped."""
    peak_bytes: int
    """Peak of the waiting bytes."""
    peak_packets: int
    """Peak of the waiting packets, possibly at another moment than the peak of bytes."""
    quantum: int
    """Quantum in bytes for each round."""
    rate: int | None
    """Reserved rate in bits per second."""
    sent_bytes: int
    """Bytes of the sent packets."""
    sent_packets: int
    """Packets sent."""
    shared: bool
    """Whether the queue is the one shared by flows without a queue of their own."""
    threshold: int
    """Threshold in bytes above which arriving packets are dropped."""


class FlowStatesView(TypedDict):
    """State that plugins keep for flows."""
    bytes: int
    """Memory of the state in bytes."""
    flows: int
    """Number of flows with state."""
    refused: int
    """Number of flows so far whose state found no room: plugins see them without state."""


class FlowTableView(TypedDict):
    """Flow table."""
    displaced: int
    """Number of flows that other flows displaced."""
    expired: int
    """Number of flows that expired because no packet arrived for too long."""
    hits: int
    """Packets of known flows."""
    known: int
    """Number of known flows."""
    misses: int
    """Packets of unknown flows."""
    most: int
    """Most flows."""
    new: int
    """Number of known flows that have had only one packet."""
    reclassified: int
    """Number of flows that were classified again after a change."""
    rerouted: int
    """Number of flows whose route was looked up again after a change."""


class FlowView(TypedDict):
    """Flow."""
    age: float
    """Seconds since the router learned the flow."""
    bindings: list[str]
    """Bindings of the flow, in the order of the journey."""
    bit_rate: float | None
    """Bits per second, if rates were requested."""
    bytes: int
    """Bytes of the flow's packets, with link headers."""
    destination: str
    """Destination address."""
    destination_port: int
    """Destination port; 0 where the protocol has none."""
    flow: str
    """Filter that matches only the packets of the flow."""
    idle: float
    """Seconds since the last packet of the flow."""
    level: str
    """`driver` for an offloaded flow, else `worker`."""
    packet_rate: float | None
    """Packets per second, if requested."""
    packets: int
    """Packets since the router learned the flow."""
    placed: bool
    """Whether a placement determines the level of the flow."""
    port: str
    """Port at which the flow arrives; `-` for packets that the router creates."""
    protocol: str
    """IP protocol: its name, or its number."""
    route: str
    """Route of the flow."""
    source: str
    """Source address."""
    source_port: int
    """Source port; 0 where the protocol has none."""
    state: str
    """`new` while other new flows may displace the flow, then `established`; `reserved` while a reserved rate
    protects the flow from displacement."""
    why_not_driver: str | None
    """Reason why the flow is not offloaded; absent for an offloaded flow."""
    worker: int
    """Number of the worker that owns the flow; 0 where there is only one worker."""


class FlowsView(TypedDict):
    """List of flows."""
    flows: list[FlowView]
    """First of the matching flows."""
    found: int
    """Number of matching flows, including flows that are not listed."""


class Flushed(TypedDict):
    """What was forgotten."""
    flushed: int
    """How many flows."""


Forwarding: TypeAlias = Literal['on'] | Literal['kernel']
"""Condition under which kernel ports forward."""


class GateCheckView(TypedDict):
    """Findings about the filters of a gate."""
    ambiguous: list[AmbiguousView]
    """Pairs of filters of equal priority that overlap although neither contains the other; up to 100."""
    ambiguous_pairs: int
    """Number of such pairs."""
    below_routes: list[NamedFilterView]
    """Filters that compete with routes and lose to each route because of their priority."""
    filters: int
    """Number of filters of the gate."""
    gate: str
    """Name of the gate."""
    shadowed: list[ShadowedView]
    """Filters that never win."""
    undecided: list[NamedFilterView]
    """Filters that no single other filter covers. Whether several others cover them together would take too long
    to determine."""


class GateExplanationView(TypedDict):
    """Explanation of a packet's outcome at a gate with filters."""
    candidates: list[CandidateView]
    """Filters of the gate in the order in which they win: all that match the packet, and some that do not."""
    gate: str
    """Name of the gate."""
    left_out: int
    """Number of further filters that do not match."""
    position: str
    """Position of the gate in the journey."""


GateLinksView: TypeAlias = 'dict[str, Any]'
"""Links from the filters of one gate into the DAG of the next."""


class GateSettings(TypedDict):
    table: str


class GateView(TypedDict):
    """Gate."""
    bindings: list[BindingView]
    """Bindings at the gate."""
    links: GateLinksView | None
    """Links from the filters of the previous gate into this gate's table, where both tables are DAGs."""
    memory: int
    """Memory of the filter table in bytes."""
    moved: str | None
    """Reason why another kind of table is used at present."""
    name: str
    """Name of the gate."""
    position: str
    """Position of the gate in the journey."""
    table: str
    """Filter table of the gate: `linear`, `tuple-space`, `cutting-tree`, `dag`, `dag-patricia` or `dag-tree-
    bitmap`."""


class HardwarePortView(TypedDict):
    """Port, as hardware."""
    device: str | None
    """Kernel device of the port, if there is one."""
    driver: str
    """Name of the device's driver, or the kind of the port."""
    features: list[str]
    """XDP features that the driver announces."""
    mtu: int
    """Largest network packet in bytes."""
    name: str
    """Name of the port."""
    processor: str
    """Processor that manages the port: packets that arrive at the port go there first."""
    queueing_discipline: str | None
    """Queueing discipline of the kernel at the port, if it is no plain queue: packets of the router bypass it."""
    rx_queues: int
    """Receive queues in use."""
    sockets: str
    """Path of packets to a worker: `zero-copy` and `copy` (AF_XDP), `ring` (AF_PACKET), `call`, `in-process`."""
    speed: int | None
    """Speed of the link in bits per second, as the driver reports it."""
    tx_queues: int
    """Transmit queues in use."""
    why: str
    """Reason why the port works in no better mode; empty in the best mode."""
    why_no_redirects: str | None
    """Reason why the offload can redirect no packets to the port; absent where it can."""
    xdp: str
    """Mode of XDP: `driver`, `generic` behind the driver, or `none`."""


class HardwareView(TypedDict):
    """Processors, ports and switches (*VERA*, section 2.1) that packets can pass."""
    cpus: list[CpuView]
    """Processors of the machine."""
    ports: list[HardwarePortView]
    """Ports."""
    processors: list[ProcessorView]
    """Processors of the router, the highest level first. With `above` they form a tree whose leaves are the
    ports."""
    switches: list[SwitchView]
    """Switches between processors and ports."""


class HeldView(TypedDict):
    """Instance in quarantine at the next start: one of its calls ended the router, or it was freed in
    quarantine."""
    instance: str
    """Name of the instance."""
    is_here: bool
    """Whether this router has an instance of that name."""
    plugin: str
    """Name of the plugin."""
    since: str
    """Time of the quarantine entry: date and time, UTC."""
    why: str
    """Reason of the quarantine."""


class HostCompanionView(TypedDict):
    """Host companion of an instance."""
    down: MessagesView
    """Messages from the companion to the workers."""
    faults: dict[str, int]
    """Faults by kind."""
    health: str
    """Health of the companion: `well`, `pausing` after a fault, or `quarantined` after many."""
    last_fault: str | None
    """Text of the last fault."""
    plugin: str
    """Name of the companion's plugin."""
    suspensions: int
    """Number of calls suspended at the end of their slice."""
    up: MessagesView
    """Messages from the workers to the companion."""
    version: str
    """Version of the companion's plugin."""


class HostOutputView(TypedDict):
    """Output of the kernel itself by a port with a scheduler."""
    bytes: int
    """Bytes of the caught packets."""
    caught: bool
    """Whether the packets are caught and wait in the queues."""
    lost: int
    """Caught packets that were lost before they were read, or for which there was no memory."""
    packets: int
    """Packets caught."""
    setting: str
    """Treatment of the kernel's packets: `queue`, `filter` or `direct`."""
    weight: int
    """Most packets that a worker takes in an iteration."""
    why: str | None
    """Reason why the packets are not caught although they should be."""


class InstanceChange(TypedDict):
    name: NotRequired[str | None]
    """Its name from now on."""
    settings: NotRequired[dict[str, Any] | None]
    """Settings that change; `null` takes one away."""


class InstanceView(TypedDict):
    """Plugin instance."""
    bindings: list[BindingView]
    """Bindings of the instance."""
    counters: dict[str, int]
    """Counters of the plugin, by name."""
    drops: dict[str, Any]
    """Packets dropped, by the instance's own reasons."""
    faults: dict[str, int]
    """Faults by kind."""
    health: str
    """Health of the instance: `well`, `pausing` after a fault, or `quarantined` after many."""
    host_companion: HostCompanionView | None
    """Host companion of the instance; absent where the plugin has none."""
    last_fault: str | None
    """Text of the last fault."""
    level: str
    """Lowest level that processes the instance's packets: `xdp` where the plugin's eBPF variant is loaded there,
    else `worker`."""
    name: str
    """Name of the instance."""
    number: int
    """Number of the instance, by which plugins send packets to it."""
    packet_rate: float
    """Packets per second since the last request."""
    packets: int
    """Packets of the instance's bindings."""
    plugin: str
    """Name of the plugin."""
    settings: Any
    """Settings of the instance."""
    suspensions: int
    """Number of calls suspended at the end of their slice."""
    why_worker: str | None
    """Reason why the instance is not offloaded, where it isn't."""


class InterfaceView(TypedDict):
    """How the interface is served."""
    fingerprint: str | None
    """SHA-256 of the certificate that it is served with there."""
    listen: list[str]
    """Where it is served over TLS."""
    socket: str
    """The Unix socket."""
    threads: list[ThreadView]
    """The threads that speak with clients."""


class Keep(TypedDict):
    """Request to store the running configuration as a revision."""
    comment: NotRequired[str | None]
    """Reason; `saved` by default."""
    origin: NotRequired[str | None]
    """Name of the file, for the history."""
    text: NotRequired[str | None]
    """Text of a file equal to the running configuration; `None` takes the base with the changes since."""


class ListView(TypedDict):
    """The list of resources."""
    name: str
    """`millrace`."""
    resources: list[ResourceView]
    """What there is."""
    version: str
    """The version of the router."""


class LookupView(TypedDict):
    """Explanation of a packet's journey."""
    steps: list[StepView]
    """Steps of the journey, stage by stage."""
    verdict: str
    """Final outcome for the packet."""


class MapEntryView(TypedDict):
    """Entry of a map."""
    key: str
    """Key in hexadecimal digits."""
    value: str
    """Value in hexadecimal digits."""
    worker: int
    """Number of the worker whose instance wrote the entry, from 0 on."""


class MapShapeView(TypedDict):
    """Shared map as a plugin declares it."""
    entries: int
    """Most entries at each worker."""
    key: int
    """Bytes of each key."""
    memory: int
    """Memory of the map at each worker, in bytes."""
    name: str
    """Name of the map."""
    value: int
    """Bytes of each value."""


class MapView(TypedDict):
    """Shared map of an instance."""
    content: list[MapEntryView]
    """Entries of the map; only in the answer about a single map."""
    entries: int
    """Number of entries at all workers together."""
    key: int
    """Bytes of each key."""
    more: bool
    """Whether the map has more entries than those in `content`."""
    most: int
    """Most entries at each worker."""
    name: str
    """Name of the map."""
    refused: int
    """Number of new keys so far for which there was no room."""
    value: int
    """Bytes of each value."""


Map_of_AnyValue: TypeAlias = 'dict[str, Any]'


class MemoryView(TypedDict):
    """Packet memory."""
    frames: int
    """Number of all frames."""
    used: int
    """Frames in use."""


class Message(TypedDict):
    arguments: NotRequired[dict[str, Any]]
    companion: NotRequired[bool]
    """Whether it is for the host companion."""
    message: str


class MessagesView(TypedDict):
    """Messages in one direction between the workers and the companion."""
    heard: int
    """Messages received, by the instance of each worker."""
    lost: int
    """Messages lost: the queue was full, or the receiver was pausing."""
    sent: int
    """Messages sent."""


class MirrorView(TypedDict):
    """Statistics of the mirror of the kernel."""
    divergences_repaired: int
    """Number of differences that a comparison found and repaired."""
    dumps: int
    """Number of complete readings."""
    messages: int
    """Number of messages."""
    overruns: int
    """Number of overruns; after each one all tables were read again."""


class MissingRouteView(TypedDict):
    """Configured route that the kernel lacks."""
    to: str
    """Prefix of the route."""
    why: str
    """Reason why the kernel lacks the route."""


class MissingRoutesView(TypedDict):
    """Configured routes that the kernel should have and lacks, so that no packet takes them. The router gives
    them to the kernel again."""
    count: int
    """Number of missing routes."""
    first: list[MissingRouteView]
    """First of the missing routes, up to 10."""


class NamedFilterView(TypedDict):
    """Filter as other views refer to it."""
    action: str
    """Action of the filter."""
    id: int
    """Number of the filter."""
    match: str
    """Expression of the filter."""
    priority: int
    """Priority of the filter; of several filters that match, the highest priority wins."""


class NeighbourView(TypedDict):
    """Neighbour."""
    address: str
    """IP address of the neighbour."""
    mac: str | None
    """MAC address of the neighbour, if known."""
    port: str
    """Port of the neighbour."""
    state: str
    """State of the neighbour: the kernel's name for it; at ports without a kernel `known` or `incomplete`."""


class NewBinding(TypedDict):
    """Binding to create."""
    budget: NotRequired[str | None]
    """Time limit of a whole call: `"1ms"`."""
    filter: str
    """Filter of the packets."""
    gate: str
    """Name of the gate."""
    instance: str
    """Name of the instance."""
    on_fault: NotRequired[Literal['drop'] | Literal['bypass']]
    """Treatment of packets at which the instance fails."""
    packet_budget: NotRequired[str | None]
    """Time limit of a call for each of its packets: `"20us"`."""
    priority: NotRequired[int]
    """Priority of the binding; of several filters that match, the highest priority wins."""


class NewFilter(TypedDict):
    """Filter to add."""
    action: str
    """Action on the packets, as in the configuration."""
    gate: NotRequired[str | None]
    """Name of the gate; by default `route`, `tap` for copies, or `schedule` for queues."""
    match: str
    """Expression of the packets; `*` matches all packets."""
    priority: NotRequired[int]
    """Priority of the filter; of several filters that match, the highest priority wins."""


class NewGate(TypedDict):
    name: str
    position: str


class NewInstance(TypedDict):
    name: str
    plugin: str
    settings: NotRequired[dict[str, Any]]


class NewNeighbour(TypedDict):
    """Static neighbour to add."""
    address: str
    """IP address of the neighbour."""
    mac: str
    """MAC address of the neighbour."""
    port: str
    """Port of the neighbour, which has no kernel device."""


class NewPlacement(TypedDict):
    """Placement of flows at a level."""
    flow: str
    """Flows to place: a filter, or the name of an instance."""
    level: Literal['xdp'] | Literal['worker'] | Literal['auto']
    """Level of the flows."""


class NewPlugin(TypedDict):
    """Plugin to load."""
    allow_downgrade: NotRequired[bool]
    """Whether a signed version lower than one loaded before is accepted."""
    file: str
    """File of the plugin, on the router's machine."""


class NewRoute(TypedDict):
    """Route to add."""
    kind: NotRequired[Literal['forward'] | Literal['blackhole'] | Literal['unreachable'] | Literal['prohibit']]
    """Kind of the route."""
    port: NotRequired[str | None]
    """Port by which the packets leave."""
    to: str
    """Destination prefix."""
    via: NotRequired[list[str]]
    """Next hops."""


class NewToken(TypedDict):
    """Token to create."""
    expires: NotRequired[str | None]
    """Time until the token expires, 1 s to a hundred years: `12h`, `30d`; without it the token does not expire."""
    name: str
    """Name of the token: letters, digits, dots, hyphens and underscores, 64 at most."""
    role: Literal['viewer'] | Literal['operator'] | Literal['admin']
    """Role that the token grants."""


class NextHopView(TypedDict):
    """Next hop of a route."""
    port: str
    """Port by which the packets leave."""
    via: str | None
    """Address of the next hop; absent where the destinations are neighbours themselves."""
    weight: int
    """Weight among the route's next hops."""


class NodeRemoval(TypedDict):
    """Treatment of packets and filters of a removed scheduler node."""
    to: NotRequired[str | None]
    """Leaf that takes the queued packets, and the filters whose queue is removed; without it the packets are
    dropped."""
    with_filters: NotRequired[bool]
    """Whether filters whose queue is removed are removed as well."""


class OldBinding(TypedDict):
    """A binding is known by these three; of its priority nothing is left to say."""
    filter: str
    gate: str
    instance: str


class OldFilters(TypedDict):
    """Filters by their ids, or one by what it is."""
    action: NotRequired[str | None]
    gate: NotRequired[str | None]
    ids: NotRequired[list[int] | None]
    match: NotRequired[str | None]
    priority: NotRequired[int | None]
    """Its priority; any, where there is only one such filter."""


class OldNeighbour(TypedDict):
    """Static neighbour to remove."""
    address: str
    """IP address of the neighbour."""
    port: str
    """Port of the neighbour."""


class OldRoute(TypedDict):
    to: str


OnDeath: TypeAlias = Literal['kernel'] | Literal['drop']
"""Treatment of packets after the router's death."""


class OnDeathView(TypedDict):
    """Treatment of the kernel ports' packets after the router has died."""
    packets: str
    """Description of the treatment."""
    said: bool
    """Whether the configuration, `run` or `router set` states the treatment. Filters that drop, reject or police
    require the statement."""


Outcome: TypeAlias = Literal['done'] | Literal['refused'] | Literal['failed'] | Literal['abandoned']
"""Outcome of a request."""


class Packet(TypedDict):
    packet: str


class Pending(TypedDict):
    """Revision that waits for confirmation."""
    revision: int
    """Number of the revision."""
    seconds: int
    """Remaining seconds."""


class PlacementView(TypedDict):
    """Placement of flows, and the level of these flows."""
    driver: int
    """Number of these flows that are offloaded."""
    flow: str
    """Flows of the placement: a filter, or `instance NAME`."""
    level: str
    """Configured level: `xdp`, `worker`, or `auto` where the router chooses."""
    why_worker: dict[str, int]
    """Number of these flows at a worker, by reason."""
    worker: int
    """Number of these flows at a worker."""


class PlacementsView(TypedDict):
    """Placements, and the level of all flows."""
    budget: DriverBudgetView
    """Instruction budget of an XDP program for a packet."""
    driver: int
    """Number of offloaded flows."""
    placements: list[PlacementView]
    """Placements of flows; the first placement that matches a flow counts."""
    why_worker: dict[str, int]
    """Number of flows at a worker, by reason."""
    worker: int
    """Number of flows at a worker."""


class PluginDetailView(TypedDict):
    """Plugin with its whole description."""
    capabilities: list[str]
    """Capabilities that the plugin requests."""
    codes: dict[str, int]
    """Code of the plugin at each position (*Router Plugins*, section 4). The upper 16 bits hold the type, which
    stands for the position; the lower 16 bits hold the plugin's number."""
    counters: list[str]
    """Names of the plugin's counters."""
    driver_form: NotRequired[DriverFormView | None]
    """eBPF variant of the plugin."""
    features: list[str]
    """Features that the plugin needs of the interface to the router."""
    home: str
    """Runtime of the plugin, `built in`, `contained` or `trusted`, with an explanation."""
    host_companion: NotRequired[PluginDetailView | None]
    """Host companion of the plugin."""
    instances: list[str]
    """Names of the plugin's instances."""
    manual: str | None
    """Manual page of the plugin; absent for a plugin without one."""
    maps: list[MapShapeView]
    """Shared maps that the instances write."""
    messages: dict[str, str]
    """Control messages of the plugin, with their descriptions."""
    name: str
    """Name of the plugin."""
    positions: list[str]
    """Positions of the gates at which the plugin may be bound."""
    previous: str | None
    """Version that a rollback would restore; absent without an upgrade."""
    settings: dict[str, Any] | None
    """JSON Schema of the plugin's settings; absent for a plugin without settings."""
    signature: str | None
    """`signed by` and the key's id, or `unsigned`; absent for a built-in plugin."""
    state_version: int
    """Version of the state that the instances save."""
    summary: str
    """Summary of the plugin's function."""
    version: str
    """Version of the plugin."""


class PluginInterfaceView(TypedDict):
    """Interface that the router offers to plugins."""
    features: list[str]
    """Features of the interface at the workers."""
    version: int
    """Version of the interface."""


class PluginView(TypedDict):
    """Plugin of which instances can be created."""
    capabilities: list[str]
    """Capabilities that the plugin requests."""
    codes: dict[str, int]
    """Code of the plugin at each position (*Router Plugins*, section 4). The upper 16 bits hold the type, which
    stands for the position; the lower 16 bits hold the plugin's number."""
    counters: list[str]
    """Names of the plugin's counters."""
    features: list[str]
    """Features that the plugin needs of the interface to the router."""
    home: str
    """Runtime of the plugin, `built in`, `contained` or `trusted`, with an explanation."""
    messages: dict[str, str]
    """Control messages of the plugin, with their descriptions."""
    name: str
    """Name of the plugin."""
    positions: list[str]
    """Positions of the gates at which the plugin may be bound."""
    signature: str | None
    """`signed by` and the key's id, or `unsigned`; absent for a built-in plugin."""
    summary: str
    """Summary of the plugin's function."""
    version: str
    """Version of the plugin."""


PollMode: TypeAlias = Literal['poll'] | Literal['interrupt'] | Literal['adaptive']
"""Mode in which the worker waits for packets."""


class PortClassView(TypedDict):
    """Counts of a class at a port."""
    dropped: int
    """Packets dropped because they exceeded the rate."""
    passed: int
    """Packets passed."""


class PortRatesView(TypedDict):
    """What the counters of a port grew by in a second."""
    drop_rate: float
    """Frames dropped."""
    name: str
    """The port."""
    rx_bits: float
    """Bits received."""
    rx_rate: float
    """Frames received."""
    tx_bits: float
    """Bits sent."""
    tx_rate: float
    """Frames sent."""


class PortView(TypedDict):
    """Port with its counters."""
    addresses: list[str]
    """Addresses of the port."""
    batched_packets: int
    """Sent frames that a worker sent in batches, bypassing its socket."""
    device: str | None
    """Kernel device of the port, if there is one."""
    device_drops: int
    """Frames that the router or the kernel gave to the device and the device did not send, as the kernel counts
    them. Frames of the router also count as sent."""
    driver: str
    """Driver of the port: `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`, `vlan`."""
    driver_packets: int
    """Received frames that the offload forwarded."""
    drops: dict[str, int]
    """Frames dropped, by reason."""
    held: int
    """Frames held inside the port and its queue."""
    input_weight: int
    """Most packets that a worker takes from the port in an iteration."""
    mac: str
    """MAC address of the port."""
    mode: str
    """Mode of the driver: `zero-copy`, `native`, `generic`, `ring`, `call`, `in-process`."""
    mtu: int
    """Largest network packet in bytes."""
    name: str
    """Name of the port."""
    on_death: str | None
    """Treatment of the port's packets after the router has died: `kernel` or `drop`."""
    queueing_discipline: str | None
    """Queueing discipline of the kernel at the port, if it is no plain queue: packets of the router bypass it."""
    reverse_path: str
    """Reverse-path check of packets from the port: `off`, `strict` or `loose`."""
    rx_bits: float
    """Bits received per second since the last request."""
    rx_bytes: int
    """Bytes received."""
    rx_packets: int
    """Frames received, including frames that the kernel kept."""
    rx_rate: float
    """Frames received per second since the last request."""
    state: str
    """State of the link: `up` or `down`."""
    to_host: int
    """Frames passed to the kernel or to the router's own stack."""
    tx_bits: float
    """Bits sent per second since the last request."""
    tx_bytes: int
    """Bytes sent."""
    tx_packets: int
    """Frames sent by the router."""
    tx_rate: float
    """Frames sent per second since the last request."""
    why: str
    """Reason why the driver works in no better mode; empty in the best mode."""


class Problem(TypedDict):
    """Why something was not done (RFC 9457)."""
    current: NotRequired[Any]
    """What is there, where something else was expected."""
    detail: str
    """One sentence for people: what is wrong, where, and what would be right."""
    errors: NotRequired[list[WrongEntry]]
    """The first of them, up to 100."""
    needs: NotRequired[Role | None]
    """The role that is needed."""
    status: int
    """The status."""
    title: str
    """The status in words."""
    type: str
    """`about:blank`: no more is known than the status says."""
    wrong: NotRequired[int | None]
    """How many entries of a list are wrong, or things in a configuration."""


class ProcessorView(TypedDict):
    """Processor of the router, which processes packets at one level."""
    above: str | None
    """Processor that gets the packets that this one does not process; absent for the highest."""
    cpus: str
    """Machine processors that may run it; empty where any processor that receives the packet does."""
    level: int
    """Level of the processor: 0 offload, 1 worker, 2 host."""
    name: str
    """Name of the processor: `host`, `worker 0`, `xdp r1`."""
    treats: str
    """Packets that it processes."""
    why_not: str | None
    """Reason why it processes no flows by itself; absent where it does."""


class QueueChanged(TypedDict):
    """What was changed of a queue."""
    changes: Map_of_AnyValue
    """What was said."""
    flow: str | None
    """The flow in it, if it was that."""
    port: str
    """The port."""
    queue: str
    """The queue."""


class QueueChanges(TypedDict):
    """Changes of a queue, or of a flow's."""
    flow: NotRequired[str | None]


class QueueView(TypedDict):
    """Queue of a port: a leaf of its scheduler."""
    delivered: int
    """Bits per second on the wire that the node sent since the last request."""
    dropped_bytes: int
    """Bytes of the dropped packets."""
    drops: dict[str, int]
    """Packets dropped at or below the node, by cause."""
    flows: list[FlowQueueView]
    """Queues of flows in the queue; only in the answer about a single queue."""
    held_bytes: int
    """Bytes of the waiting packets."""
    held_packets: int
    """Packets waiting at or below the node."""
    id: int
    """Number by which plugins name the node as a queue."""
    kind: str
    """Kind of the node."""
    marked_packets: int
    """Packets marked (ECN) at or below the node, rather than dropped."""
    name: str
    """Name of the node."""
    offered_bytes: int
    """Bytes of the arrived packets."""
    offered_packets: int
    """Packets that arrived: packets sent, waiting or dropped."""
    peak_bytes: int
    """Peak of the waiting bytes."""
    peak_packets: int
    """Peak of the waiting packets, possibly at another moment than the peak of bytes."""
    port: str
    """Name of the port."""
    promised: int | None
    """Bits per second on the wire that the node gets when all others send as much as they can; absent where that
    is not bounded."""
    queues: int
    """Queues in use."""
    sent_bytes: int
    """Bytes of the sent packets."""
    sent_packets: int
    """Packets sent."""
    sent_wire_bytes: int
    """Bytes of the sent packets on the wire, with the overhead of the link."""
    settings: dict[str, Any]
    """Settings of the node, with underscores where a file has hyphens."""
    under: str | None
    """Name of the parent."""


class RatesView(TypedDict):
    """What the counters grew by in a second."""
    ports: list[PortRatesView]
    """The ports."""
    seconds: float
    """Seconds between the two looks."""
    time: str
    """When: date and time, UTC."""


class ReleaseView(TypedDict):
    """Instance released from quarantine."""
    instance: str
    """Name of the instance."""
    is_here: bool
    """Whether this router has the instance, so that it runs now."""


class RemovedNodeView(TypedDict):
    """Removed node of a scheduler, with all nodes below it."""
    filters: list[BindingView]
    """Filters whose queue was removed, in their former state."""
    node: str
    """Name of the node."""
    port: str
    """Name of the port."""
    to: str | None
    """Leaf that took the packets; absent if the packets were dropped."""
    with_filters: bool
    """Whether the filters were removed; if not, they name the leaf `to` now."""


class ResourceView(TypedDict):
    """A resource as the list shows it."""
    methods: list[str]
    """The methods that it takes."""
    path: str
    """Its path."""
    roles: list[Role]
    """The role that each of them needs."""
    summary: str
    """What they do, in their order."""


class Return(TypedDict):
    """Where to go back to, and why."""
    comment: NotRequired[str | None]
    confirm: NotRequired[str | None]
    if_revision: NotRequired[int | None]
    revision: NotRequired[int | None]


class Revision(TypedDict):
    """Revision without its text."""
    changes: int
    """Number of changes, counted in commands."""
    comment: str | None
    """Comment of the originator."""
    number: int
    """Number of the revision: the first is 1, each next one is higher by 1."""
    origin: str
    """Origin of the text: a file's name, or the revision that was restored."""
    router: str | None
    """Socket of the router that the revision belongs to; none if it was not recorded."""
    state: State
    """State of the revision."""
    time: int
    """Time of the application, in seconds since 1970."""
    who: Who
    """Originator of the application."""


class RevisionTextView(TypedDict):
    """Revision with its text."""
    changes: int
    """Number of changes, counted in commands."""
    comment: str | None
    """Comment of the originator."""
    number: int
    """Number of the revision: the first is 1, each next one is higher by 1."""
    origin: str
    """Origin of the text: a file's name, or the revision that was restored."""
    router: str | None
    """Socket of the router that the revision belongs to; none if it was not recorded."""
    state: State
    """State of the revision."""
    text: str
    """Text of the configuration file."""
    time: int
    """Time of the application, in seconds since 1970."""
    who: Who
    """Originator of the application."""


class RevisionView(TypedDict):
    """Revision in a list."""
    changes: int
    """Number of changes, counted in commands."""
    comment: str | None
    """Comment of the originator."""
    number: int
    """Number of the revision: the first is 1, each next one is higher by 1."""
    origin: str
    """Origin of the text: a file's name, or the revision that was restored."""
    router: str | None
    """Socket of the router that the revision belongs to; none if it was not recorded."""
    runs: bool
    """Whether the revision was applied last, and not withdrawn. It runs, with the later changes of single
    commands."""
    state: State
    """State of the revision."""
    time: int
    """Time of the application, in seconds since 1970."""
    who: Who
    """Originator of the application."""


Role: TypeAlias = Literal['viewer'] | Literal['operator'] | Literal['admin']
"""Rights of a client; each role includes the rights of the roles before it."""


class RouteView(TypedDict):
    """Route."""
    kind: str
    """Kind of the route: `forward`, `local`, `kernel`, `broadcast`, `blackhole`, `unreachable`, `prohibit`."""
    lost_bytes: NotRequired[int]
    """Bytes of the lost packets."""
    lost_packets: NotRequired[int]
    """Packets dropped in queues or behind them, before a device took them."""
    missing: NotRequired[str | None]
    """Reason why the kernel lacks the configured route, so that no packet takes it. Absent where the kernel has
    the route."""
    next_hops: list[NextHopView]
    """Next hops; empty unless the route forwards."""
    protocol: str
    """Origin of the route, in the kernel's names: `static`, `kernel`, `bgp`…; `millrace` for the router's own
    routes."""
    queued_bytes: NotRequired[int]
    """Bytes of the queued packets."""
    queued_packets: NotRequired[int]
    """Packets given to the queues of ports; each copy and each fragment is one packet."""
    sent_bytes: NotRequired[int]
    """Bytes of the sent packets."""
    sent_packets: NotRequired[int]
    """Packets that went on to devices."""
    source: str
    """Source of the route: `kernel` for mirrored routes, else `millrace`."""
    to: str
    """Destination prefix."""
    waiting_bytes: NotRequired[int]
    """Bytes of the waiting packets."""
    waiting_packets: NotRequired[int]
    """Packets waiting in queues."""


class Router(TypedDict):
    """Settings of the whole router."""
    boot: Boot
    """Source of the configuration at the start: the file, or the last good revision if there is one. Default
    `file`."""
    driver_flows: int
    """Maximum number of offloaded flows; 0 turns offload off."""
    flow_idle: str
    """Idle time after which a flow record is evicted, 1 s to 24 h. Default 30 s."""
    flows_max: int
    """Capacity of the flow table, 1,024 to 16,777,216 flows. Default 1,048,576. With 0 there is no flow table:
    filters and routes are looked up for each packet, instances keep no state of flows, and no flow is
    offloaded."""
    forward_class_e: bool
    """Whether to forward 240.0.0.0/4. Default false."""
    forward_link_local: bool
    """Whether to forward 169.254.0.0/16. Default false."""
    forward_zero_net: bool
    """Whether to forward 0.0.0.0/8. Default false."""
    forwarding: Forwarding
    """Whether kernel ports forward always, or as the kernel's forwarding switches say. Default `on`."""
    frames: int
    """Frames of packet memory of each worker, 2,048 bytes each: 1,024 to 4,194,304. Default 32,768 (64 MiB)."""
    icmp_burst: int
    """Burst of ICMP errors of one type. Default 50."""
    icmp_dscp: int
    """DSCP of ICMP errors, 0 to 63. Default 48 (CS6)."""
    icmp_rate: int
    """ICMP errors per second and type. Default 1,000."""
    ignore_kernel_policy: bool
    """Whether to forward although nftables, policy rules, xfrm or tc apply to a port and will be bypassed."""
    mode: PollMode
    """Mode in which the worker waits for packets. Default `adaptive`."""
    new_flows: int
    """Maximum number of new flows classified in a batch of 256 packets under overload, 1 to 256; packets of
    further new flows are dropped. Default 128."""
    on_death: OnDeath | None
    """Forwarding after the router's death, for ports without their own setting: `kernel` or `drop`. Without
    bindings the default is `kernel`; with bindings it must be given."""
    plugin_weight: int
    """Maximum number of packets generated by instances that the worker takes per iteration, 1 to 256, like
    `input-weight` of a port. Default 256."""
    redirects: bool
    """Whether ICMP redirects inform hosts of a better first hop. Default true."""
    route_priority: int
    """Priority of all routes: to override a route, a filter at a gate of the position `route` needs at least
    this priority. Default 0."""
    router_id: str
    """Source address of ICMP errors sent by a port without an IPv4 address. Default 192.0.0.8."""
    workers: int
    """Number of worker threads, 1 to 16: flows are spread over them, and each worker has its own devices.
    Default 1."""


RoutesAdded: TypeAlias = 'RouteView | dict[str, Any]'
"""What was added."""


RoutesRemoved: TypeAlias = 'RouteView | dict[str, Any]'
"""What was removed."""


class Save(TypedDict):
    """Request to write the running configuration into a file."""
    force: NotRequired[bool]
    """Whether to write even if entries of the file are lost that were neither applied nor saved."""
    origin: NotRequired[str | None]
    """Name of the file, for messages."""
    text: NotRequired[str | None]
    """Text of the file; `None` takes the configuration last applied or saved."""


class Saved(TypedDict):
    """A file with what runs in it."""
    text: str
    """Its text."""


class SchedulerNode(TypedDict):
    """Node of a scheduler. The valid settings depend on its kind, and on the kind of its parent."""
    burst: NotRequired[str | None]
    """Of a `token-bucket`: burst in bytes. Default 3,076, two Ethernet frames."""
    ecn: NotRequired[bool | None]
    """Of `red`, `codel` and `fq-codel`: whether packets of ECN-capable senders are marked rather than dropped.
    Default true."""
    gentle: NotRequired[bool | None]
    """Of `red`: whether the share of dropped packets rises gradually above `maximum`, up to all at twice
    `maximum`. Default true."""
    interval: NotRequired[str | None]
    """Of `codel` and `fq-codel`: time for which the delay may exceed `target`: `"100ms"`. Default 100 ms."""
    kind: Literal['fifo'] | Literal['flow-queues'] | Literal['fq-codel'] | Literal['priority'] | Literal['deficit-round-robin'] | Literal['hfsc'] | Literal['token-bucket']
    """Scheduling discipline of the node."""
    level: NotRequired[int | None]
    """Under `priority`: level of the node, the lowest first, 0 to 65,535."""
    limit: NotRequired[int | None]
    """Of `fq-codel`: maximum number of packets in it. Default 10,240."""
    link_sharing: NotRequired[str | None]
    """Under `hfsc`: service curve by which the node shares excess bandwidth."""
    manage: NotRequired[Literal['tail-drop'] | Literal['red'] | Literal['codel'] | None]
    """Of a queue: queue management. Default `tail-drop`."""
    maximum: NotRequired[str | int | None]
    """Of `red`: average length above which all packets are dropped; with `gentle`, above twice this length.
    Default half the threshold; with `unit = "packets"`, half the threshold in packets of 1,000 bytes."""
    minimum: NotRequired[str | int | None]
    """Of `red`: average length below which no packet is dropped. Default a quarter of `maximum`."""
    name: str
    """Name of the node. The name of a leaf is also the name of its queue in filters: `queue NAME`."""
    probability: NotRequired[float | None]
    """Of `red`: share of packets dropped when the average is at `maximum`, above 0 and up to 1. Default 0.1."""
    quantum: NotRequired[str | None]
    """Under `deficit-round-robin`: bytes in each round. For `flow-queues` and `fq-codel`: bytes of each flow in
    each round."""
    queues: NotRequired[int | None]
    """Of `flow-queues` and `fq-codel`: number of queues."""
    rate: NotRequired[str | None]
    """Of a `token-bucket`: rate at which it releases packets. Of `flow-queues`: rate at which it is served."""
    real_time: NotRequired[str | None]
    """Under `hfsc`: guaranteed service, `"RATE"` or `"RATE TIME RATE"`: the first rate for that time, then the
    second."""
    target: NotRequired[str | None]
    """Of `codel` and `fq-codel`: acceptable queueing delay: `"5ms"`. Default 5 ms."""
    threshold: NotRequired[str | None]
    """Of a queue: bytes above which it drops arriving packets. Default 262,144."""
    under: NotRequired[str | None]
    """Parent node; the root has none."""
    unit: NotRequired[Literal['bytes'] | Literal['packets'] | None]
    """Of `red`: unit of `minimum` and `maximum`. Default `bytes`."""
    upper_limit: NotRequired[str | None]
    """Under `hfsc`: maximum service of the node."""
    weight: NotRequired[float | None]
    """Of `red`: weight of the newest length in the average, above 0 and up to 1. Default 0.002."""


class SchedulerNodeView(TypedDict):
    """Node of a scheduler."""
    delivered: int
    """Bits per second on the wire that the node sent since the last request."""
    dropped_bytes: int
    """Bytes of the dropped packets."""
    drops: dict[str, int]
    """Packets dropped at or below the node, by cause."""
    held_bytes: int
    """Bytes of the waiting packets."""
    held_packets: int
    """Packets waiting at or below the node."""
    id: int
    """Number by which plugins name the node as a queue."""
    kind: str
    """Kind of the node."""
    marked_packets: int
    """Packets marked (ECN) at or below the node, rather than dropped."""
    name: str
    """Name of the node."""
    peak_bytes: int
    """Peak of the waiting bytes."""
    peak_packets: int
    """Peak of the waiting packets, possibly at another moment than the peak of bytes."""
    promised: int | None
    """Bits per second on the wire that the node gets when all others send as much as they can; absent where that
    is not bounded."""
    queues: int
    """Queues in use."""
    sent_bytes: int
    """Bytes of the sent packets."""
    sent_packets: int
    """Packets sent."""
    sent_wire_bytes: int
    """Bytes of the sent packets on the wire, with the overhead of the link."""
    settings: dict[str, Any]
    """Settings of the node, with underscores where a file has hyphens."""
    under: str | None
    """Name of the parent."""


class SchedulerView(TypedDict):
    """Scheduler of a port."""
    default: str | None
    """Queue of packets without another queue."""
    held: int
    """Packets waiting."""
    held_bytes: int
    """Bytes of the waiting packets."""
    host: HostOutputView | None
    """Output of the kernel itself by the port; absent at ports without a kernel device."""
    link: int | None
    """Speed of the link in bits per second, where the kernel knows it; absent for virtual devices."""
    most_queues: int
    """Most queues."""
    nodes: list[SchedulerNodeView]
    """Nodes of the scheduler, each behind its parent."""
    overhead: str
    """Overhead that the link adds to each packet, as in the configuration."""
    port: str
    """Name of the port."""
    queues: int
    """Queues in use, including queues of flows."""
    rate: int | None
    """Most bits per second that the port sends; absent where its rate is unlimited."""
    room_bytes: int
    """Most bytes that may wait in all queues."""
    room_packets: int
    """Most packets that may wait in all queues, from the room in packet memory; a single leaf gets half of it."""
    warning: str | None
    """Warning about promises that exceed the link, and about leaf limits that exceed the packet memory."""


Severity: TypeAlias = Literal['information'] | Literal['warning'] | Literal['error']
"""Severity of an event."""


class ShadowView(TypedDict):
    """Outcome of the trial of a new version on copies of packets."""
    different: int
    """Packets that the versions treated differently."""
    fault: str | None
    """Fault of the new version."""
    first: str | None
    """Description of the first difference."""
    packets: int
    """Packets that both versions processed."""


class ShadowedView(TypedDict):
    """Filter that never wins."""
    by: list[NamedFilterView]
    """Preceding filters that together match all packets of the filter; none of them can be left out."""
    filter: NamedFilterView
    """Filter."""


State: TypeAlias = Literal['good'] | Literal['waiting'] | Literal['withdrawn']
"""State of a revision."""


class StatusAnswer(TypedDict):
    """The daemon, and how it is asked."""
    applying: NotRequired[ApplyingView | None]
    """Progress of the configuration, or of the list of changes, that is being applied; absent when there is
    none."""
    crashes: NotRequired[list[CrashView] | None]
    """Crashes of workers whose captures are kept, the oldest first; absent when there are none."""
    driver_flows: DriverFlowsView | None
    """Offloaded flows; absent without a flow cache."""
    flow_states: FlowStatesView
    """State that plugins keep for flows."""
    flows: FlowTableView
    """Flow table."""
    interface: InterfaceView
    """How the interface is served."""
    leftover_objects: NotRequired[int | None]
    """Number of copies of shared objects that no instance uses any longer and that stay in memory; absent when
    there are none."""
    memory: MemoryView
    """Packet memory."""
    mirror: MirrorView | None
    """Statistics of the mirror of the kernel."""
    missing_routes: NotRequired[MissingRoutesView | None]
    """Configured routes that the kernel should have and lacks; absent when there are none."""
    mode: str
    """Poll mode of the workers: `poll`, `interrupt` or `adaptive`."""
    on_death: NotRequired[OnDeathView | None]
    """Treatment of packets after the router has died; absent without kernel ports."""
    pending: NotRequired[Pending | None]
    """Applied revision that waits for its confirmation; absent when there is none."""
    pid: int
    """Process id."""
    plugin_interface: PluginInterfaceView
    """Interface that the router offers to plugins."""
    routes: int
    """Number of routes in the forwarding table."""
    sleeps: int
    """Number of times that workers slept."""
    turns: TurnsView
    """Iterations of the workers."""
    uptime: float
    """Seconds since the start."""
    version: str
    """Version of the daemon."""
    worker_cpu: list[float]
    """Processor time of each worker in seconds."""
    workers: int
    """Number of worker threads."""


class StepView(TypedDict):
    """Stage of a packet's journey."""
    stage: str
    """Name of the stage."""
    text: str
    """Outcome at the stage, and its reason."""


class SummaryView(TypedDict):
    """Packet totals of the router."""
    consumed: int
    """Packets consumed by plugins."""
    created: int
    """Packets that the router created."""
    created_by: dict[str, int]
    """Packets created, by reason."""
    dropped: int
    """Packets dropped."""
    dropped_by: dict[str, int]
    """Packets dropped, by reason."""
    held: int
    """Packets held inside the router."""
    imbalance: int
    """Unaccounted packets: received + created less all the others, 0 when no packet was lost or invented. While
    packets flow, the packets that pass between two readings may show here."""
    received: int
    """Packets received, including packets that the kernel kept at a port."""
    received_from_host: int
    """Received packets that the kernel itself sent by ports with a scheduler."""
    to_host: int
    """Packets passed to the kernel and to the router's own stack."""
    transmitted: int
    """Packets sent."""


SwitchView: TypeAlias = 'dict[str, Any]'
"""Path of packets between two processors, or from a processor to a port."""


class ThreadView(TypedDict):
    """A thread that speaks with clients."""
    confined: bool | None
    """Whether it has given away all capabilities, and its system calls are filtered; nothing where the system
    doesn't say."""
    name: str
    """Its name."""
    thread: int
    """Its number."""


class TokenView(TypedDict):
    """API token without its secret, which is not kept."""
    created: str
    """Time of creation: date and time, UTC."""
    created_by: Who
    """Creator of the token."""
    expired: bool
    """Whether the token has expired."""
    expires: str | None
    """Time of expiry; absent for a token that does not expire."""
    name: str
    """Name of the token."""
    role: Role
    """Role that the token grants."""
    used: str | None
    """Time of the last use, as far as it is known; absent for an unused token."""
    used_from: str | None
    """Address of the last use."""


class TraceStepView(TypedDict):
    """Step of a journey."""
    action: NotRequired[str | None]
    """At a gate: action of the filter."""
    binding: NotRequired[int | None]
    """At a gate: number of the filter or binding."""
    cycles: int | None
    """Cycles of the step; `null` where they are unknown because the step was shared with other packets."""
    filter: NotRequired[str | None]
    """At a gate: expression of the filter."""
    gate: NotRequired[str | None]
    """At a gate: name of the gate."""
    instance: NotRequired[str | None]
    """At a gate: name of the bound instance, if there is one."""
    next_hop: NotRequired[str | None]
    """Of a route: neighbour that gets the packet."""
    port: NotRequired[str | None]
    """Port of the step, where it has one."""
    prefix: NotRequired[str | None]
    """Of a route: prefix of the route."""
    reason: NotRequired[str | None]
    """Of a drop: drop reason."""
    stage: str
    """Stage: `receive`, `worker`, `parse`, `classify`, `gate`, `copy`, `route`, `error`, `rewrite`, `fragment`,
    `queue`, `wait`, `transmit`, `host`, `own`, `plugin` or `drop`."""
    text: str
    """Outcome of the step, and its reason."""
    verdict: NotRequired[str | None]
    """Decision: at gates `pass`, `drop`, `consume`, `hold`, `queue`, `send` or `classify`; at the flow table
    `hit`, `checked`, `rerouted`, `reclassified`, `miss` or `none`."""
    worker: int
    """Number of the worker."""


class TraceView(TypedDict):
    """Journey of a traced packet."""
    cycles: int | None
    """Sum of the known cycles of all steps, on the processor's time-stamp counter."""
    frame: str
    """First bytes of the packet at arrival, up to 128, in hexadecimal."""
    is_over: bool
    """Whether the end of the journey was seen; the packet may still be held."""
    length: int
    """Length of the packet in bytes, with the link header."""
    level: str
    """Level that processed the packet: `worker 0` is the first worker."""
    number: int
    """Number of the packet in the trace, from 1."""
    port: str
    """Port of arrival."""
    reason: str | None
    """Drop reason, if the packet was dropped."""
    steps: list[TraceStepView]
    """Steps of the journey, stage by stage."""
    time: str
    """Time of arrival: date and time, UTC."""
    verdict: str
    """Final outcome for the packet."""


class TurnsView(TypedDict):
    """Iterations of the workers."""
    busy: int
    """Iterations that found packets."""
    empty: int
    """Iterations that found no packets."""
    longest_change: int
    """Microseconds of the longest iteration in which a worker handled a command; packets waited that long."""


class Upgrade(TypedDict):
    """Upgrade of a plugin to another version."""
    accept_differences: NotRequired[bool]
    """Whether the new version is put in place although it treats packets differently."""
    allow_downgrade: NotRequired[bool]
    """Whether a signed version lower than one loaded before is accepted."""
    file: str
    """File of the new version."""
    shadow: NotRequired[int | None]
    """Number of packets on which the new version first runs as a shadow."""
    without_state: NotRequired[bool]
    """Whether the new instances start without the state of the old instances."""


UpgradeView: TypeAlias = 'dict[str, Any]'
"""Outcome of a plugin upgrade."""


class Who(TypedDict):
    """Originator of a request, as the kernel identifies the peer of the socket."""
    name: str
    """Name of the user, or the user id if the user has no name."""
    uid: int | None
    """User id; `None` for the router itself and for plugins."""


class WrongEntry(TypedDict):
    """An entry of a list that is wrong, or something in a configuration."""
    column: NotRequired[int | None]
    """The column in it, from 1."""
    detail: str
    """What is wrong, and what would be right."""
    entry: NotRequired[int | None]
    """The number of an entry, from 0."""
    file: NotRequired[str | None]
    """Where a configuration comes from."""
    line: NotRequired[int | None]
    """The line in it, from 1."""
