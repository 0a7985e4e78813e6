"""Types of requests and answers.

Made by tools/python-client: change what the router says of itself, and make it again.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

class AmbiguousView(TypedDict):
    """Two overlapping filters whose winner is hard to predict."""
    decided_by: str
    """Field in which the winner is more specific; `age` where the winner is only older."""
    loser: NamedFilterView
    """Filter that loses."""
    winner: NamedFilterView
    """Filter that wins."""


class AppliedView(TypedDict):
    """Outcome of applying a configuration."""
    changes: list[str]
    """Changes made, as commands."""
    confirm: str | None
    """Time until the change is rolled back unless it is confirmed: `60s`. Absent if no confirmation is needed."""
    origin: str
    """Origin of the configuration: name of a file or revision."""
    revision: int | None
    """Number of the new revision. Absent if nothing changed and the newest revision already ran, or if the
    router returned to the previous revision."""
    shadowed: list[ShadowedView]
    """Filters and bindings that never win, each with the filters that shadow it; empty if nothing changed."""


class Apply(TypedDict):
    """Applies a configuration atomically."""
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
    """Progress of a transaction."""
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
    """Time limit of the instance's call in microseconds; `null` without an instance."""
    bytes: int
    """Bytes of the binding's packets."""
    drops: int
    """Packets of the binding that the instance dropped."""
    filter: str
    """Filter of the packets."""
    gate: str
    """Name of the gate."""
    id: int
    """Number of the binding. It is not reused while the router runs, and newer bindings have larger numbers."""
    instance: str | None
    """Name of the instance, if the action is one."""
    lost_bytes: int
    """Bytes of the lost packets."""
    lost_packets: int
    """Packets dropped in a queue, or after it but before a device took them."""
    on_fault: str | None
    """Treatment of a packet when the instance's call fails; `null` without an instance."""
    packet_budget: int | None
    """Time limit of the call for each of its packets, in microseconds; `null` without one."""
    packets: int
    """Number of packets that chose the binding."""
    priority: int
    """Priority of the filter; of several filters that match, the highest priority wins."""
    queued_bytes: int
    """Bytes of the queued packets."""
    queued_packets: int
    """Packets that entered queues; each copy and each fragment counts as a packet."""
    sent_bytes: int
    """Bytes of the sent packets."""
    sent_packets: int
    """Packets handed to devices."""
    shadowed_by: NotRequired[list[NamedFilterView] | None]
    """Filters that shadow a new binding, so that it never wins; empty if it can win. Absent in lists, and if the
    gate has too many filters to compare."""
    unreached: NotRequired[str | None]
    """Reason why no received packet meets a new binding. Absent if packets can meet it, and in lists."""
    waiting_bytes: int
    """Bytes of the waiting packets."""
    waiting_packets: int
    """Packets waiting in queues."""


Boot: TypeAlias = Literal['file'] | Literal['last-good']
"""Source of the configuration at the start."""


class CandidateView(TypedDict):
    """Filter in an explanation."""
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
    """Result of clearing the counters."""
    cleared: bool
    """Always `true`."""


class Compared(TypedDict):
    """Configuration to compare with the running one; without a text, the base is compared."""
    origin: NotRequired[str | None]
    text: NotRequired[str | None]


class ConfigurationView(TypedDict):
    """Running configuration."""
    origin: str
    """Origin of the base configuration: name of a file or revision."""
    pending: Pending | None
    """Revision that waits for its confirmation."""
    store: str | None
    """File of the revisions; `null` if revisions are lost when the router ends."""
    text: str
    """Text of the configuration, as a file."""


class Confirm(TypedDict):
    """Confirms the waiting revision, and returns its number."""
    revision: NotRequired[int | None]
    """Revision that must be waiting; if another one waits, nothing is confirmed."""


class Confirmed(TypedDict):
    """Confirmed revision."""
    revision: int
    """Number of the revision."""


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
    """Number of the core. Processors of the same package with the same core are its hardware threads."""
    cpu: int
    """Number of the processor in Linux."""
    node: int | None
    """Number of the NUMA node."""
    package: int | None
    """Number of the package (socket)."""


class CrashView(TypedDict):
    """Worker panic with a stored capture."""
    capture: str
    """Path of the capture with the frames of the last batch; the report is beside it, as `.json`."""
    instance: NotRequired[str | None]
    """Instance whose call panicked; absent if no call was running."""
    location: str
    """File, line and column of the panic."""
    message: str
    """Message of the panic."""
    time: str
    """Time of the crash, UTC."""
    version: str
    """Version of the router."""


class CreateGate(TypedDict):
    """Creates a gate, the last at its position."""
    name: str
    """Name of the gate."""
    position: str
    """Position in the packet's path."""


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
    """Secret token; it is shown only this once."""
    used: str | None
    """Time of the last use; absent if no use is known."""
    used_from: str | None
    """Client address of the last use."""


class DetailPart(TypedDict):
    """Part of a detail: text, or the key of a setting."""
    key: NotRequired[str | None]
    """Key of a setting, as in JSON."""
    text: NotRequired[str | None]
    """Text."""


class DifferenceView(TypedDict):
    """Changes from the running configuration to another one."""
    changes: list[str]
    """Changes as commands."""
    origin: str
    """Name of the other configuration."""
    restart: list[str]
    """Settings that differ and need a restart."""


class DriverBudgetView(TypedDict):
    """Instruction budget of the XDP program for a packet."""
    ask: int
    """Assumed additional instructions for calling the eBPF variant of a plugin, not counting the variant itself."""
    form: int
    """Maximum number of instructions of a plugin's eBPF variant."""
    forward: int
    """Assumed instructions for forwarding or dropping."""
    instructions: int
    """Maximum number of instructions for a packet of a flow."""
    longest_way: int | None
    """Instructions on the longest path through the compiled program, without token bucket and checksum
    completion."""
    police: int
    """Assumed additional instructions for a token bucket."""


class DriverFlowsView(TypedDict):
    """Offloaded flows."""
    evicted: int
    """Number of flows evicted in favour of heavier or placed flows."""
    evicted_rate: float
    """Flows evicted in favour of others per second since the last request."""
    flows: int
    """Number of flows in the flow cache."""
    idle: int
    """Number of flows evicted because they were idle."""
    idle_rate: float
    """Flows evicted as idle per second since the last request."""
    inserted: int
    """Number of flows offloaded so far."""
    inserted_rate: float
    """Flows offloaded per second since the last request."""
    most: int
    """Maximum number of flows in the flow cache."""
    refused: int
    """Number of flows for which the flow cache had no room; each flow counts once."""
    refused_rate: float
    """Flows that found no room, per second since the last request."""
    renewed: int
    """Number of flow cache entries renewed after a change."""


class DriverFormView(TypedDict):
    """eBPF variant of a plugin."""
    bytes: int
    """Size of its object file in bytes."""
    counters: int
    """Number of counter words for each processor."""
    settings: int
    """Number of setting words."""


class DropView(TypedDict):
    """Drops for one reason."""
    ether_types: dict[str, int]
    """Number of packets by EtherType, only for the reason `ether_type`; up to 64 EtherTypes."""
    meaning: str
    """Meaning of the reason."""
    packets: int
    """Number of packets."""
    ports: dict[str, int]
    """Number of packets by port; `-` if the port is unknown."""
    rate: float
    """Packets per second since the last request."""
    reason: str
    """Drop reason."""


class DroppedView(TypedDict):
    """Dropped packet."""
    binding: int | None
    """Number of the filter or binding that dropped the packet, if known."""
    by: str | None
    """Filter or instance that dropped the packet, as text; several ones joined by `or` if any of them may have
    done it."""
    filter: str | None
    """Expression of that filter."""
    frame: str
    """First 128 bytes of the packet, in hexadecimal."""
    instance: str | None
    """Instance that dropped the packet, if known."""
    length: int
    """Length of the packet in bytes."""
    out_port: str | None
    """Egress port; absent if none was chosen yet."""
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
    """Time limit of the instance's call in microseconds; `null` without an instance."""
    bytes: int
    """Bytes of the binding's packets."""
    drops: int
    """Packets of the binding that the instance dropped."""
    gate: str
    """Name of the gate."""
    id: int
    """Number of the binding. It is not reused while the router runs, and newer bindings have larger numbers."""
    instance: str | None
    """Name of the instance, if the action is one."""
    lost_bytes: int
    """Bytes of the lost packets."""
    lost_packets: int
    """Packets dropped in a queue, or after it but before a device took them."""
    match: str
    """Filter of the packets."""
    on_fault: str | None
    """Treatment of a packet when the instance's call fails; `null` without an instance."""
    packet_budget: int | None
    """Time limit of the call for each of its packets, in microseconds; `null` without one."""
    packets: int
    """Number of packets that chose the binding."""
    priority: int
    """Priority of the filter; of several filters that match, the highest priority wins."""
    queued_bytes: int
    """Bytes of the queued packets."""
    queued_packets: int
    """Packets that entered queues; each copy and each fragment counts as a packet."""
    sent_bytes: int
    """Bytes of the sent packets."""
    sent_packets: int
    """Packets handed to devices."""
    shadowed_by: NotRequired[list[NamedFilterView] | None]
    """Filters that shadow a new binding, so that it never wins; empty if it can win. Absent in lists, and if the
    gate has too many filters to compare."""
    unreached: NotRequired[str | None]
    """Reason why no received packet meets a new binding. Absent if packets can meet it, and in lists."""
    waiting_bytes: int
    """Bytes of the waiting packets."""
    waiting_packets: int
    """Packets waiting in queues."""


FiltersAdded: TypeAlias = 'FilterView | dict[str, Any]'
"""Result of adding filters."""


class FlowQueueView(TypedDict):
    """Queue of a flow."""
    dropped_bytes: int
    """Bytes of the dropped packets."""
    drops: dict[str, int]
    """Packets dropped, by cause."""
    flow: str | None
    """Filter that matches only the flow's packets; absent for the shared queue, and if the router doesn't know
    the flow."""
    held_bytes: int
    """Bytes of the waiting packets."""
    held_packets: int
    """Packets waiting."""
    marked_packets: int
    """Packets marked (ECN) instead of dropped."""
    moved_bytes: int
    """Bytes of the moved packets."""
    moved_packets: int
    """Packets moved to another queue, because their flow got its own."""
    offered_bytes: int
    """Bytes of the offered packets."""
    offered_packets: int
    """Packets offered to the queue: sent, moved, waiting or dropped."""
    peak_bytes: int
    """Maximum of the waiting bytes so far."""
    peak_packets: int
    """Maximum of the waiting packets so far, possibly at another time than that of the bytes."""
    quantum: int
    """Quantum in bytes per round."""
    rate: int | None
    """Reserved rate in bits per second."""
    sent_bytes: int
    """Bytes of the sent packets."""
    sent_packets: int
    """Packets sent."""
    shared: bool
    """Whether this is the queue shared by flows without their own."""
    threshold: int
    """Discard threshold in bytes: new packets are dropped above it."""


class FlowStatesView(TypedDict):
    """State that plugins keep for flows."""
    bytes: int
    """Memory of the state in bytes."""
    flows: int
    """Number of flows with state."""
    refused: int
    """Number of flows whose state found no room, so far. Plugins see these flows without state."""


class FlowTableView(TypedDict):
    """Flow table."""
    displaced: int
    """Number of flows that other flows displaced."""
    expired: int
    """Number of flows that expired because no packet arrived for too long."""
    hits: int
    """Packets whose flow was known."""
    known: int
    """Number of known flows."""
    misses: int
    """Packets whose flow was unknown."""
    most: int
    """Maximum number of flows."""
    new: int
    """Number of known flows that have had only one packet."""
    reclassified: int
    """Number of known flows that were classified again after a change."""
    rerouted: int
    """Number of known flows whose route was looked up again after a change."""


class FlowView(TypedDict):
    """Flow."""
    age: float
    """Seconds since the router learned the flow."""
    bindings: list[str]
    """Bindings that the flow's packets meet, in order."""
    bit_rate: float | None
    """Bits per second; absent unless flows are ordered by rate."""
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
    """Packets per second; absent unless flows are ordered by rate."""
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
    """`new` while other new flows may displace the flow, `established` afterwards, or `reserved` if a reserved
    rate protects the flow from displacement."""
    why_not_driver: str | None
    """Reason why the flow is not offloaded; absent for an offloaded flow."""
    worker: int
    """Number of the worker that owns the flow, from 0."""


class FlowsView(TypedDict):
    """List of flows."""
    flows: list[FlowView]
    """First of the matching flows, in the requested order."""
    found: int
    """Number of matching flows, including flows that are not listed."""


class Flushed(TypedDict):
    """Result of flushing flows."""
    flushed: int
    """Number of flushed flows."""


Forwarding: TypeAlias = Literal['on'] | Literal['kernel']
"""Condition under which kernel ports forward."""


class GateCheckView(TypedDict):
    """Findings about the filters of a gate."""
    ambiguous: list[AmbiguousView]
    """Pairs of filters of equal priority that overlap, although neither contains the other. Up to 100 pairs."""
    ambiguous_pairs: int
    """Number of all such pairs."""
    below_routes: list[NamedFilterView]
    """Filters whose priority is below that of routes, so that every route wins against them."""
    filters: int
    """Number of filters of the gate."""
    gate: str
    """Name of the gate."""
    shadowed: list[ShadowedView]
    """Filters that never win."""
    undecided: list[NamedFilterView]
    """Filters that no single other filter shadows, but maybe several together; determining that would take too
    long."""


class GateExplanationView(TypedDict):
    """Explanation of which filter a packet chooses at a gate."""
    candidates: list[CandidateView]
    """Filters of the gate in the order in which they win: all that match the packet, and some others."""
    gate: str
    """Name of the gate."""
    left_out: int
    """Number of omitted filters, none of which matches."""
    position: str
    """Position of the gate in the pipeline."""


GateLinksView: TypeAlias = 'dict[str, Any]'
"""Links from the filters of one gate into the DAG of the next."""


class GateSettings(TypedDict):
    """Settings of a gate to change."""
    table: str


class GateView(TypedDict):
    """Gate."""
    bindings: list[BindingView]
    """Bindings at the gate."""
    links: GateLinksView | None
    """Links from the filters of the previous gate into this gate's table; `null` unless both tables are DAGs."""
    memory: int
    """Memory of the filter table in bytes."""
    moved: str | None
    """Reason why the gate uses a table of another kind than configured; `null` if it doesn't."""
    name: str
    """Name of the gate."""
    position: str
    """Position of the gate in the pipeline."""
    table: str
    """Kind of the gate's filter table: `linear`, `tuple-space`, `cutting-tree`, `dag`, `dag-patricia` or `dag-
    tree-bitmap`."""


class HardwarePortView(TypedDict):
    """Port, as hardware."""
    device: str | None
    """Kernel device of the port, if there is one."""
    driver: str
    """Name of the device's driver, or the kind of the port."""
    features: list[str]
    """XDP features that the driver announces."""
    mtu: int
    """MTU of the port in bytes."""
    name: str
    """Name of the port."""
    processor: str
    """Processor of the port, which gets its packets first."""
    queueing_discipline: str | None
    """Queueing discipline of the kernel at the port, which the router's packets bypass; absent for a plain
    queue."""
    rx_queues: int
    """Receive queues in use."""
    sockets: str
    """Transfer of packets to a worker: `zero-copy` or `copy` (AF_XDP), `ring` (AF_PACKET), `call` or `in-
    process`."""
    speed: int | None
    """Link speed in bits per second, as the driver reports it; absent if it doesn't."""
    tx_queues: int
    """Transmit queues in use."""
    why: str
    """Reason for the mode; empty if it is the best mode."""
    why_no_redirects: str | None
    """Reason why the offload can't redirect packets to the port; absent if it can."""
    xdp: str
    """XDP mode: `native` (in the driver), `generic` (behind the driver), or `none`."""


class HardwareView(TypedDict):
    """Processors, ports and switches on the paths of packets (*VERA*, section 2.1)."""
    cpus: list[CpuView]
    """Processors of the machine."""
    ports: list[HardwarePortView]
    """Ports."""
    processors: list[ProcessorView]
    """Processors of the router, the highest level first. `above` makes them a tree, whose leaves are the ports."""
    switches: list[SwitchView]
    """Switches between processors and ports."""


class HeldView(TypedDict):
    """Quarantine entry for the next start: a call of the instance ended the router, or it was freed in
    quarantine."""
    instance: str
    """Name of the instance."""
    is_here: bool
    """Whether this router has an instance of that name and plugin."""
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
    """Number of times that a call was suspended at the end of its slice."""
    up: MessagesView
    """Messages from the workers to the companion."""
    version: str
    """Version of the companion's plugin."""


class HostOutputView(TypedDict):
    """Host output: the kernel's own packets, sent out of a port with a scheduler."""
    bytes: int
    """Bytes of the redirected packets."""
    caught: bool
    """Whether the packets are redirected into the queues at present."""
    lost: int
    """Redirected packets that were lost before the worker read them, or for lack of packet memory."""
    packets: int
    """Packets redirected."""
    setting: str
    """Treatment of the kernel's packets: `queue`, `filter` or `direct`."""
    weight: int
    """Maximum number of these packets that a worker takes in an iteration."""
    why: str | None
    """Reason why the packets are not redirected as configured; absent if they are."""


class InstanceChange(TypedDict):
    name: NotRequired[str | None]
    """New name of the instance."""
    settings: NotRequired[dict[str, Any] | None]
    """Settings to change; `null` removes a setting."""


class InstanceView(TypedDict):
    """Plugin instance."""
    bindings: list[BindingView]
    """Bindings of the instance."""
    counters: dict[str, int]
    """Counters of the plugin, by name."""
    drops: dict[str, Any]
    """Packets dropped, by the number of the instance's own drop reason."""
    faults: dict[str, int]
    """Faults by kind."""
    health: str
    """Health of the instance: `well`, `pausing` after a fault, or `quarantined` after many."""
    host_companion: HostCompanionView | None
    """Host companion of the instance; absent where the plugin has none."""
    last_fault: str | None
    """Text of the last fault."""
    level: str
    """Lowest level at which the instance treats packets: `xdp` if the plugin's eBPF variant is loaded and may be
    called, else `worker`."""
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
    """Number of times that a call was suspended at the end of its slice."""
    why_worker: str | None
    """Reason why packets of the instance are not offloaded; absent if they may be."""


class InterfaceView(TypedDict):
    """Status of the interface."""
    fingerprint: str | None
    """SHA-256 fingerprint of the TLS certificate; absent without TLS, or if the certificate has expired."""
    listen: list[str]
    """Addresses at which the interface listens with TLS."""
    socket: str
    """Path of the Unix socket."""
    threads: list[ThreadView]
    """Client threads."""


class Keep(TypedDict):
    """Stores the running configuration as a revision for the next start. Returns the newest good revision
    instead if its text is the same."""
    comment: NotRequired[str | None]
    """Reason; `saved` by default."""
    origin: NotRequired[str | None]
    """Name of the file, for the history."""
    text: NotRequired[str | None]
    """Text of a file equal to the running configuration; `None` for the base configuration with the later
    changes written into it."""


class ListView(TypedDict):
    """List of resources."""
    name: str
    """`millrace`."""
    resources: list[ResourceView]
    """All resources."""
    version: str
    """Version of the router."""


class Lookup(TypedDict):
    """Explains how the router would treat a packet."""
    packet: str
    """Description of the packet: a filter without wildcards for the addresses."""


class LookupView(TypedDict):
    """Explanation of how the router would treat a packet."""
    steps: list[StepView]
    """Steps of the journey, stage by stage."""
    verdict: str
    """Result for the packet: where it goes, or why it is dropped."""


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
    """Maximum number of entries at each worker."""
    key: int
    """Length of each key in bytes."""
    memory: int
    """Memory of the map at each worker, in bytes."""
    name: str
    """Name of the map."""
    value: int
    """Length of each value in bytes."""


class MapView(TypedDict):
    """Shared map of an instance."""
    content: list[MapEntryView]
    """Entries of the map; only in the answer about a single map."""
    entries: int
    """Number of entries at all workers together."""
    key: int
    """Length of each key in bytes."""
    more: bool
    """Whether the map has entries that are missing in `content`."""
    most: int
    """Maximum number of entries at each worker."""
    name: str
    """Name of the map."""
    refused: int
    """Number of new keys that found the map full, so far."""
    value: int
    """Length of each value in bytes."""


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
    """Whether the message is for the host companion."""
    message: str


class MessagesView(TypedDict):
    """Messages in one direction between the workers and the companion."""
    heard: int
    """Messages received, counted at the instance of each worker."""
    lost: int
    """Messages lost because the queue was full or the receiver was paused."""
    sent: int
    """Messages sent."""


class MirrorView(TypedDict):
    """Statistics of the mirror of the kernel."""
    divergences_repaired: int
    """Number of differences from the kernel that a comparison found and repaired."""
    dumps: int
    """Number of complete readings of the kernel's tables."""
    messages: int
    """Number of netlink messages received."""
    overruns: int
    """Number of overruns of the netlink socket; after each, all tables are read again."""


class MissingRouteView(TypedDict):
    """Configured route that the kernel lacks."""
    to: str
    """Prefix of the route."""
    why: str
    """Reason why the kernel lacks the route."""


class MissingRoutesView(TypedDict):
    """Configured routes that the kernel should have but lacks, so that packets don't use them. The router
    installs them again."""
    count: int
    """Number of missing routes."""
    first: list[MissingRouteView]
    """First of the missing routes, up to 10."""


class NamedFilterView(TypedDict):
    """Filter, identified for other views."""
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
    """State of the neighbour, with the kernel's name; `known` or `incomplete` at ports without a kernel device."""


class NewBinding(TypedDict):
    """Binding to create."""
    budget: NotRequired[str | None]
    """Time limit of a whole call: `"1ms"`."""
    filter: str
    """Filter that selects the flows of the binding."""
    gate: str
    """Name of the gate."""
    instance: str
    """Name of the instance."""
    on_fault: NotRequired[Literal['drop'] | Literal['bypass']]
    """Treatment of a packet when the instance's call fails."""
    packet_budget: NotRequired[str | None]
    """Time limit of a call for each packet in it: `"20us"`."""
    priority: NotRequired[int]
    """Priority of the binding; of several filters that match, the highest priority wins."""


class NewFilter(TypedDict):
    """Filter to add."""
    action: str
    """Action on the packets, as in the configuration."""
    gate: NotRequired[str | None]
    """Name of the gate; by default `route`, `tap` for copies, or `schedule` for queues."""
    match: str
    """Filter expression; `*` matches all packets."""
    priority: NotRequired[int]
    """Priority of the filter; of several filters that match, the highest priority wins."""


class NewInstance(TypedDict):
    """Creates an instance of a plugin."""
    name: str
    """Name of the instance."""
    plugin: str
    """Name of the plugin."""
    settings: NotRequired[dict[str, Any]]
    """Settings of the instance; those left out have their defaults."""


class NewNeighbour(TypedDict):
    """Static neighbour to add."""
    address: str
    """IP address of the neighbour."""
    mac: str
    """MAC address of the neighbour."""
    port: str
    """Port of the neighbour; it must be a port without a kernel device."""


class NewPlacement(TypedDict):
    """Placement of flows at a level."""
    flow: str
    """Flows to place: a filter, or the name of an instance."""
    level: Literal['xdp'] | Literal['worker'] | Literal['auto']
    """Level of the flows."""


class NewPlugin(TypedDict):
    """Plugin to load."""
    allow_downgrade: NotRequired[bool]
    """Whether to accept a signed version below the highest one loaded before."""
    file: str
    """File of the plugin, on the router's machine."""


class NewRoute(TypedDict):
    """Route to add."""
    kind: NotRequired[Literal['forward'] | Literal['blackhole'] | Literal['unreachable'] | Literal['prohibit']]
    """Kind of the route."""
    port: NotRequired[str | None]
    """Egress port; by default the port whose subnet contains the next hop."""
    to: str
    """Destination prefix."""
    via: NotRequired[list[str]]
    """Next hops; empty for a directly connected prefix."""


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
    """Egress port."""
    via: str | None
    """Address of the gateway; absent if the destinations are neighbours themselves."""
    weight: int
    """Weight among the route's next hops."""


class NodeRemoval(TypedDict):
    """Treatment of the packets and filters of a removed scheduler node."""
    to: NotRequired[str | None]
    """Leaf that gets the waiting packets, and the filters whose queue is removed. Without it, the packets are
    dropped."""
    with_filters: NotRequired[bool]
    """Whether filters whose queue is removed are removed as well."""


class OldFilters(TypedDict):
    """Filters to remove: by their ids, or one by its content."""
    action: NotRequired[str | None]
    gate: NotRequired[str | None]
    ids: NotRequired[list[int] | None]
    match: NotRequired[str | None]
    priority: NotRequired[int | None]
    """Priority of the filter; may be absent if only one filter has the other fields."""


class OldNeighbour(TypedDict):
    """Static neighbour to remove."""
    address: str
    """IP address of the neighbour."""
    port: str
    """Port of the neighbour."""


OnDeath: TypeAlias = Literal['kernel'] | Literal['drop']
"""Treatment of packets after the router's death."""


class OnDeathView(TypedDict):
    """Treatment of the kernel ports' packets after the router has died."""
    packets: str
    """Description of the treatment."""
    said: bool
    """Whether the treatment is configured explicitly, by configuration, `run` or `router set`. Bindings and
    filters require that."""


Outcome: TypeAlias = Literal['done'] | Literal['refused'] | Literal['failed'] | Literal['abandoned']
"""Outcome of a request."""


class Pending(TypedDict):
    """Revision that waits for confirmation."""
    revision: int
    """Number of the revision."""
    seconds: int
    """Remaining seconds."""


class PlacementView(TypedDict):
    """Placement of flows, with the number of these flows at each level."""
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
    """Placements, and the number of flows at each level."""
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
    """Code of the plugin at each position: the position's type in the upper 16 bits, the plugin's number in the
    lower (*Router Plugins*, section 4)."""
    counters: list[str]
    """Names of the plugin's counters."""
    driver_form: NotRequired[DriverFormView | None]
    """eBPF variant of the plugin."""
    features: list[str]
    """Features of the plugin interface that the plugin needs."""
    host_companion: NotRequired[PluginDetailView | None]
    """Host companion of the plugin."""
    instances: list[str]
    """Names of the plugin's instances."""
    manual: str | None
    """Manual page of the plugin; absent if it has none."""
    maps: list[MapShapeView]
    """Shared maps that instances of the plugin write."""
    messages: dict[str, str]
    """Control messages of the plugin, with their descriptions."""
    name: str
    """Name of the plugin."""
    positions: list[str]
    """Positions of the gates at which the plugin may be bound."""
    previous: str | None
    """Version that a rollback restores; absent if the plugin was not upgraded."""
    runtime: str
    """Runtime of the plugin, `built in`, `sandboxed` or `trusted`, with an explanation."""
    settings: dict[str, Any] | None
    """JSON Schema of the plugin's settings; absent if it has none."""
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
    """Code of the plugin at each position: the position's type in the upper 16 bits, the plugin's number in the
    lower (*Router Plugins*, section 4)."""
    counters: list[str]
    """Names of the plugin's counters."""
    features: list[str]
    """Features of the plugin interface that the plugin needs."""
    messages: dict[str, str]
    """Control messages of the plugin, with their descriptions."""
    name: str
    """Name of the plugin."""
    positions: list[str]
    """Positions of the gates at which the plugin may be bound."""
    runtime: str
    """Runtime of the plugin, `built in`, `sandboxed` or `trusted`, with an explanation."""
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
    """Rates of a port's counters, per second."""
    drop_rate: float
    """Frames dropped per second."""
    name: str
    """Name of the port."""
    rx_bits: float
    """Bits received per second."""
    rx_rate: float
    """Frames received per second."""
    tx_bits: float
    """Bits sent per second."""
    tx_rate: float
    """Frames sent per second."""


class PortView(TypedDict):
    """Port with its counters."""
    addresses: list[str]
    """Addresses of the port."""
    batched_packets: int
    """Frames sent by batch sending, bypassing the worker's socket."""
    device: str | None
    """Kernel device of the port, if there is one."""
    device_drops: int
    """Frames that the device dropped on transmit, as the kernel counts them. Those of the router also count as
    sent."""
    driver: str
    """Driver of the port: `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`, `vlan`."""
    driver_packets: int
    """Frames received here that the offload forwarded."""
    drops: dict[str, int]
    """Frames dropped, by reason."""
    held: int
    """Frames held inside the port and its queue."""
    input_weight: int
    """Maximum number of packets that a worker takes from the port in an iteration."""
    mac: str
    """MAC address of the port."""
    mode: str
    """Mode of the driver: `zero-copy`, `native`, `generic`, `ring`, `call`, `in-process`."""
    mtu: int
    """MTU of the port in bytes."""
    name: str
    """Name of the port."""
    on_death: str | None
    """Treatment of the port's packets after the router has died: `kernel` or `drop`. Absent without a kernel
    device."""
    queueing_discipline: str | None
    """Queueing discipline of the kernel at the port, which the router's packets bypass; absent for a plain
    queue."""
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
    """Reason for the mode; empty if it is the best mode."""


class Problem(TypedDict):
    """Reason why a request failed (RFC 9457)."""
    current: NotRequired[Any]
    """Current state, if the request expected another one."""
    detail: str
    """Problem, its place and the remedy, as one sentence for people."""
    errors: NotRequired[list[WrongEntry]]
    """First of these errors, up to 100."""
    needs: NotRequired[Role | None]
    """Role that the operation needs, if the caller lacks it."""
    parts: NotRequired[list[DetailPart]]
    """Parts of `detail`, if it names settings: a client may spell their keys in its own way."""
    status: int
    """HTTP status."""
    title: str
    """Name of the HTTP status."""
    type: str
    """Always `about:blank`: the status tells the kind of problem."""
    wrong: NotRequired[int | None]
    """Number of invalid entries of a list, or of errors in a configuration."""


class ProcessorView(TypedDict):
    """Processor of the router: the part that treats packets at one level."""
    above: str | None
    """Name of the processor to which this one punts packets; absent for the highest."""
    cpus: str
    """Machine processors on which it may run; empty if it runs on whichever receives the packet."""
    level: int
    """Level of the processor: 0 offload, 1 worker, 2 host."""
    name: str
    """Name of the processor: `host`, `worker 0`, `xdp r1`."""
    treats: str
    """Packets that it treats."""
    why_not: str | None
    """Reason why it treats no flows by itself; absent if it does."""


class QueueChanged(TypedDict):
    """Result of changing a queue."""
    changes: Map_of_AnyValue
    """Changed settings, as requested."""
    flow: str | None
    """Flow whose queue was changed, if one was given."""
    port: str
    """Name of the port."""
    queue: str
    """Name of the queue."""


class QueueChanges(TypedDict):
    """Changed settings of a queue, or of a flow's queue in it."""
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
    """Packets at or below the node that were marked (ECN) instead of dropped."""
    name: str
    """Name of the node."""
    offered_bytes: int
    """Bytes of the offered packets."""
    offered_packets: int
    """Packets offered to the queue: sent, waiting or dropped."""
    peak_bytes: int
    """Maximum of the waiting bytes so far."""
    peak_packets: int
    """Maximum of the waiting packets so far, possibly at another time than that of the bytes."""
    port: str
    """Name of the port."""
    promised: int | None
    """Bits per second on the wire that the node gets when all others send at their maximum; absent if the rate
    is unlimited."""
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
    """Rates of all ports between two samples."""
    ports: list[PortRatesView]
    """Rates of each port."""
    seconds: float
    """Seconds between the samples."""
    time: str
    """Time of the later sample: date and time, UTC."""


class ReleaseView(TypedDict):
    """Instance released from quarantine."""
    instance: str
    """Name of the instance."""
    is_here: bool
    """Whether this router has the instance, which therefore runs again."""


class RemoveRoute(TypedDict):
    """Removes a configured route. When the operation has succeeded, no further packet uses the route."""
    to: str
    """Destination prefix."""


class RemovedNodeView(TypedDict):
    """Removed node of a scheduler, with all nodes below it."""
    filters: list[BindingView]
    """Filters whose queue was removed, as they were before."""
    node: str
    """Name of the node."""
    port: str
    """Name of the port."""
    to: str | None
    """Leaf that got the packets; absent if they were dropped."""
    with_filters: bool
    """Whether the filters were removed; otherwise they now name leaf `to`."""


class ResourceView(TypedDict):
    """Resource in the list of resources."""
    methods: list[str]
    """Methods of the resource."""
    path: str
    """Path of the resource."""
    roles: list[Role]
    """Role that each method needs, in the order of the methods."""
    summary: str
    """Summaries of the methods, in the same order."""


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
    """Whether the revision was applied last, and not withdrawn. Single commands may have changed the running
    configuration since."""
    state: State
    """State of the revision."""
    time: int
    """Time of the application, in seconds since 1970."""
    who: Who
    """Originator of the application."""


Role: TypeAlias = Literal['viewer'] | Literal['operator'] | Literal['admin']
"""Rights of a client; each role includes the rights of the roles before it."""


class RollBack(TypedDict):
    """Applies a revision again, as a new one."""
    comment: NotRequired[str | None]
    """Reason for the rollback."""
    confirm: NotRequired[str | None]
    """Time until an unconfirmed configuration is rolled back: `60s`, `10m`."""
    if_revision: NotRequired[int | None]
    """Revision that must be running without later changes; otherwise nothing is changed."""
    revision: NotRequired[int | None]
    """Number of the revision. Without it, withdraws the waiting revision, or else applies the newest good
    revision that differs from the running configuration."""


class RouteView(TypedDict):
    """Route."""
    kind: str
    """Kind of the route: `forward`, `local`, `kernel`, `broadcast`, `blackhole`, `unreachable`, `prohibit`."""
    lost_bytes: NotRequired[int]
    """Bytes of the lost packets."""
    lost_packets: NotRequired[int]
    """Packets dropped in a queue, or after it but before a device took them."""
    missing: NotRequired[str | None]
    """Reason why the kernel lacks the configured route, so that packets don't use it. Absent if the kernel has
    it."""
    next_hops: list[NextHopView]
    """Next hops; empty unless the route forwards."""
    protocol: str
    """Protocol of the route, with the kernel's name: `static`, `kernel`, `bgp`, …; `millrace` for the router's
    own routes."""
    queued_bytes: NotRequired[int]
    """Bytes of the queued packets."""
    queued_packets: NotRequired[int]
    """Packets that entered queues; each copy and each fragment counts as a packet."""
    sent_bytes: NotRequired[int]
    """Bytes of the sent packets."""
    sent_packets: NotRequired[int]
    """Packets handed to devices."""
    source: str
    """Origin of the route: `kernel` for mirrored routes, `millrace` for static routes of the router."""
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
"""Result of adding routes."""


RoutesRemoved: TypeAlias = 'RouteView | dict[str, Any]'
"""Result of removing routes."""


class Save(TypedDict):
    """Returns the running configuration, written into the text of a file whose comments stay."""
    force: NotRequired[bool]
    """Whether to write even if this deletes entries of the file that were neither applied nor saved."""
    origin: NotRequired[str | None]
    """Name of the file, for messages."""
    text: NotRequired[str | None]
    """Text of the file; `None` for the base configuration."""


class Saved(TypedDict):
    """File with the running configuration written into it."""
    text: str
    """Text of the file."""


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
    """Packets at or below the node that were marked (ECN) instead of dropped."""
    name: str
    """Name of the node."""
    peak_bytes: int
    """Maximum of the waiting bytes so far."""
    peak_packets: int
    """Maximum of the waiting packets so far, possibly at another time than that of the bytes."""
    promised: int | None
    """Bits per second on the wire that the node gets when all others send at their maximum; absent if the rate
    is unlimited."""
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
    """Queue of packets that no filter assigns to a queue."""
    held: int
    """Packets waiting."""
    held_bytes: int
    """Bytes of the waiting packets."""
    host: HostOutputView | None
    """Output of the kernel's own packets; absent without a kernel device."""
    link: int | None
    """Link speed in bits per second; absent if the kernel doesn't know it, and for virtual devices."""
    most_queues: int
    """Maximum number of queues."""
    nodes: list[SchedulerNodeView]
    """Nodes of the scheduler, each after its parent."""
    overhead: str
    """Overhead that the link adds to each packet, as in the configuration."""
    port: str
    """Name of the port."""
    queues: int
    """Queues in use, including queues of flows."""
    rate: int | None
    """Rate of the port in bits per second; absent if it is unlimited."""
    room_bytes: int
    """Maximum number of bytes that may wait in all queues."""
    room_packets: int
    """Maximum number of packets that may wait in all queues, from the size of packet memory. A single leaf may
    use half of it."""
    warning: str | None
    """Warning about promises above the link speed, or leaf limits above the packet memory; absent if there is
    none."""


Severity: TypeAlias = Literal['information'] | Literal['warning'] | Literal['error']
"""Severity of an event."""


class ShadowView(TypedDict):
    """Result of a trial of the new version, on copies of packets."""
    different: int
    """Packets that the versions treated differently."""
    fault: str | None
    """Fault of the new version; absent if it had none."""
    first: str | None
    """Description of the first difference."""
    packets: int
    """Packets that both versions processed."""


class ShadowedView(TypedDict):
    """Filter that never wins."""
    by: list[NamedFilterView]
    """Filters with precedence that together match all packets of the filter. Each of them is necessary for that."""
    filter: NamedFilterView
    """Filter."""


State: TypeAlias = Literal['good'] | Literal['waiting'] | Literal['withdrawn']
"""State of a revision."""


class StatusAnswer(TypedDict):
    """Status of the daemon and of its interface."""
    applying: NotRequired[ApplyingView | None]
    """Progress of the running transaction; absent if none runs."""
    crashes: NotRequired[list[CrashView] | None]
    """Worker panics with a stored capture, the oldest first; absent if there are none."""
    driver_flows: DriverFlowsView | None
    """Offloaded flows; absent without a flow cache."""
    flow_states: FlowStatesView
    """State that plugins keep for flows."""
    flows: FlowTableView
    """Flow table."""
    interface: InterfaceView
    """Status of the interface."""
    leftover_objects: NotRequired[int | None]
    """Number of copies of shared objects that no instance uses any more but that stay in memory; absent if there
    are none."""
    memory: MemoryView
    """Packet memory."""
    mirror: MirrorView | None
    """Statistics of the mirror of the kernel; absent without kernel ports."""
    missing_routes: NotRequired[MissingRoutesView | None]
    """Configured routes that the kernel should have but lacks; absent if there are none."""
    mode: str
    """Poll mode of the workers: `poll`, `interrupt` or `adaptive`."""
    on_death: NotRequired[OnDeathView | None]
    """Treatment of packets after the router has died; absent without kernel ports."""
    pending: NotRequired[Pending | None]
    """Revision that waits for confirmation; absent if none waits."""
    pid: int
    """Process id."""
    plugin_interface: PluginInterfaceView
    """Interface that the router offers to plugins."""
    routes: int
    """Number of routes in the forwarding table."""
    sleeps: int
    """Number of times that workers slept."""
    turns: TurnsView
    """Iterations of all workers."""
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
    """Result of the stage, and its reason."""


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
    received: int
    """Packets received, including packets that the kernel kept at a port."""
    received_from_host: int
    """Packets received from the kernel: its own packets, sent by ports with a scheduler."""
    to_host: int
    """Packets passed to the kernel and to the router's own stack."""
    transmitted: int
    """Packets sent."""
    unaccounted: int
    """Unaccounted packets: received + created - transmitted - to_host - consumed - dropped - held; 0 if no
    packet is lost. While packets flow, those between two readings may appear here."""


SwitchView: TypeAlias = 'dict[str, Any]'
"""Switch: connection that carries packets between two processors, or from a processor to a port."""


class ThreadView(TypedDict):
    """Client thread."""
    confined: bool | None
    """Whether the thread has no capabilities and its system calls are filtered; absent if the system doesn't
    report it."""
    name: str
    """Name of the thread."""
    thread: int
    """Id of the thread."""


class TokenView(TypedDict):
    """API token without its secret, which is not stored."""
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
    """Time of the last use; absent if no use is known."""
    used_from: str | None
    """Client address of the last use."""


class TraceStepView(TypedDict):
    """Step of a journey."""
    action: NotRequired[str | None]
    """Action of the filter, at a gate."""
    binding: NotRequired[int | None]
    """Number of the filter or binding, at a gate."""
    cycles: int | None
    """Cycles of the step; `null` if unknown, because other packets shared the step."""
    filter: NotRequired[str | None]
    """Expression of the filter, at a gate."""
    gate: NotRequired[str | None]
    """Name of the gate, at steps of stage `gate`."""
    instance: NotRequired[str | None]
    """Name of the bound instance, at a gate with one."""
    next_hop: NotRequired[str | None]
    """Neighbour that gets the packet, at the step of its route."""
    port: NotRequired[str | None]
    """Port of the step, where it has one."""
    prefix: NotRequired[str | None]
    """Prefix of the route, at its step."""
    reason: NotRequired[str | None]
    """Drop reason, at a drop."""
    stage: str
    """Stage: `receive`, `worker`, `parse`, `classify`, `gate`, `copy`, `route`, `error`, `rewrite`, `fragment`,
    `queue`, `wait`, `transmit`, `host`, `own`, `plugin` or `drop`."""
    text: str
    """Outcome of the step, and its reason."""
    verdict: NotRequired[str | None]
    """Decision at a gate (`pass`, `drop`, `consume`, `hold`, `queue`, `send`, `classify`), or at the flow table
    (`hit`, `checked`, `rerouted`, `reclassified`, `miss`, `none`)."""
    worker: int
    """Number of the worker."""


class TraceView(TypedDict):
    """Journey of a traced packet."""
    cycles: int | None
    """Sum of the known cycles of all steps, from the time-stamp counter; absent if none is known."""
    frame: str
    """First 128 bytes of the packet at arrival, in hexadecimal."""
    is_over: bool
    """Whether the end of the journey was recorded; otherwise the packet may still be held."""
    length: int
    """Length of the packet in bytes, with the link header."""
    level: str
    """Level that treated the packet: `worker 0` is the first worker."""
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
    """Result for the packet: where it went, or why it was dropped."""


class TurnsView(TypedDict):
    """Iterations of the workers."""
    busy: int
    """Iterations that found packets."""
    empty: int
    """Iterations that found no packets."""
    longest_change: int
    """Duration in microseconds of the longest iteration with a command; packets waited that long."""


class Unbind(TypedDict):
    """Removes all bindings of an instance to a filter at a gate, whatever their priority. When the operation is
    done, no further packet meets them."""
    filter: str
    """Filter that selects the flows of the bindings."""
    gate: str
    """Name of the gate."""
    instance: str
    """Name of the instance."""


class Upgrade(TypedDict):
    """Upgrade of a plugin to another version."""
    accept_differences: NotRequired[bool]
    """Whether the upgrade happens even if the trial found differences."""
    allow_downgrade: NotRequired[bool]
    """Whether to accept a signed version below the highest one loaded before."""
    file: str
    """File of the new version."""
    shadow: NotRequired[int | None]
    """Number of packets on which the new version is tried as a shadow first; without it there is no trial."""
    without_state: NotRequired[bool]
    """Whether the new instances start without the old instances' state."""


UpgradeView: TypeAlias = 'dict[str, Any]'
"""Outcome of a plugin upgrade."""


class Who(TypedDict):
    """Originator of a request, as the kernel identifies the peer of the socket."""
    name: str
    """Name of the user, or the user id if the user has no name."""
    uid: int | None
    """User id; `None` for the router itself and for plugins."""


class WrongEntry(TypedDict):
    """Invalid entry of a list, or error in a configuration."""
    column: NotRequired[int | None]
    """Column in the configuration, from 1."""
    detail: str
    """Problem and remedy."""
    entry: NotRequired[int | None]
    """Number of the list entry, from 0."""
    file: NotRequired[str | None]
    """Origin of the configuration."""
    line: NotRequired[int | None]
    """Line in the configuration, from 1."""
