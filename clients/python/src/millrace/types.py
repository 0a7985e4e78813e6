"""What is sent and answered.

Made by tools/python-client: change what the router says of itself, and make it again.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

class AmbiguousView(TypedDict):
    """Two filters of which it is hard to see which wins."""
    decided_by: str
    """The field in which the winner is more specific; `age` when it is only older."""
    loser: NamedFilterView
    """The other one."""
    winner: NamedFilterView
    """The one that wins."""


class AppliedView(TypedDict):
    """What was applied."""
    changes: list[str]
    """The commands that would have done the same."""
    confirm: str | None
    """Time after which it goes back, unless it is confirmed: `60s`."""
    origin: str
    """Where it came from."""
    revision: int | None
    """Its revision; none where nothing changed, and what runs was the newest revision already, or where what ran
    before runs again."""
    shadowed: list[ShadowedView]
    """Filters and bindings that never win, each with those that come before it; empty where nothing changed."""


class Apply(TypedDict):
    """A configuration to be applied."""
    comment: NotRequired[str | None]
    """Why it is applied."""
    confirm: NotRequired[str | None]
    """Time after which what ran before runs again, unless it is confirmed by then: `60s`, `10m`."""
    if_revision: NotRequired[int | None]
    """The revision that has to run, and nothing beside it: where something else does, nothing is applied."""
    origin: NotRequired[str | None]
    """The file's name, for messages and for the history."""
    text: str
    """Its text, as it stands in a file."""


class ApplyingView(TypedDict):
    """Changes that are being made together."""
    made: int
    """How many are made."""
    of: int
    """How many there are; 0 as long as that isn't known."""


AuditEntry: TypeAlias = 'dict[str, Any]'
"""Something that was asked for."""


class BindingView(TypedDict):
    """A binding of an instance, or of another action, to flows."""
    action: str
    """What is done with the packets: `instance NAME`, `drop`, `reject`, `host`, `port NAME`, `ports NAME,NAME`
    or `copy-to NAME`."""
    budget: int | None
    """Microseconds that a call of the instance may take."""
    bytes: int
    """Their bytes."""
    drops: int
    """Packets of these that the instance dropped."""
    filter: str
    """Which packets."""
    gate: str
    """The gate."""
    id: int
    """Its number, which no other one ever has while the router runs: the smaller is the older."""
    instance: str | None
    """The instance, if the action is one."""
    lost_bytes: int
    """Their bytes."""
    lost_packets: int
    """Packets that were dropped in queues or behind, before a device took them."""
    on_fault: str | None
    """What becomes of packets that the instance fails at; `null` where there is none."""
    packet_budget: int | None
    """The same for each packet of a call, if that is less."""
    packets: int
    """Packets that it got."""
    priority: int
    """Of several filters that match, the highest priority wins."""
    queued_bytes: int
    """Their bytes."""
    queued_packets: int
    """Packets that were given to the queues of ports; each copy and each fragment is one."""
    sent_bytes: int
    """Their bytes."""
    sent_packets: int
    """Packets that went on to devices."""
    shadowed_by: NotRequired[list[NamedFilterView] | None]
    """In the answer to one that is new: filters that come before it, so that it never wins. Empty where it can
    win; absent in lists."""
    unreached: NotRequired[str | None]
    """In the answer to one that is new: why no packet that arrives meets it. Absent where packets can, and in
    lists."""
    waiting_bytes: int
    """Their bytes."""
    waiting_packets: int
    """Packets that wait."""


Boot: TypeAlias = Literal['file'] | Literal['last-good']
"""From what a router starts."""


class CandidateView(TypedDict):
    """A filter beside others, for a packet."""
    action: str
    """What it does."""
    chosen: bool
    """Whether the packet is treated by it."""
    id: int
    """Its number."""
    match: str
    """Which packets."""
    outcome: str
    """Why it was chosen or not."""
    priority: int
    """Of several filters that match, the highest priority wins."""


class Cleared(TypedDict):
    """That counters begin anew."""
    cleared: bool
    """Always true."""


class Compared(TypedDict):
    """A text, or what was last applied."""
    origin: NotRequired[str | None]
    text: NotRequired[str | None]


class ConfigurationView(TypedDict):
    """What runs."""
    origin: str
    """The file that was applied last, or that the router was started with."""
    pending: Pending | None
    """What waits to be confirmed."""
    store: str | None
    """Where revisions are kept; nowhere, where they end with the router."""
    text: str
    """As a file would say it."""


class Confirm(TypedDict):
    """What is confirmed."""
    revision: NotRequired[int | None]
    """The revision that has to wait: where another one does, nothing is confirmed."""


class Confirmed(TypedDict):
    """What was confirmed."""
    revision: int
    """Its revision."""


ControlClassView: TypeAlias = 'dict[str, Any]'
"""A class of packets for the router itself."""


class ControlPlaneView(TypedDict):
    """How much of what is for the router itself gets there."""
    classes: list[ControlClassView]
    """The classes, each with its rate."""
    police: bool
    """Whether it is policed at all."""


class CpuView(TypedDict):
    """A processor of the machine."""
    core: int | None
    """Its core: processors with the same one, in the same package, share it."""
    cpu: int
    """Its number in Linux."""
    node: int | None
    """The node of memory that is near to it."""
    package: int | None
    """Its package."""


class CrashView(TypedDict):
    """A crash whose capture is kept."""
    capture: str
    """The frames of the last batch; the report stands beside, as `.json`."""
    instance: NotRequired[str | None]
    """The instance whose call it was; nothing where it was none."""
    location: str
    """File, line and column of the panic."""
    message: str
    """The message of the panic."""
    time: str
    """When it happened, UTC."""
    version: str
    """The version of the router."""


class CreatedTokenView(TypedDict):
    """A token that was just made."""
    created: str
    """When it was made: date and time, UTC."""
    created_by: Who
    """Who made it."""
    expired: bool
    """Whether it has ended."""
    expires: str | None
    """When it ends; nothing where it doesn't by itself."""
    name: str
    """Its name."""
    role: Role
    """What who has it may do."""
    token: str
    """The token itself. It is told this once."""
    used: str | None
    """When it was last used, as far as is known; nothing where it never was."""
    used_from: str | None
    """From which address that was."""


class DifferenceView(TypedDict):
    """What makes one configuration of what runs."""
    changes: list[str]
    """The commands that would make it so."""
    origin: str
    """The configuration's name."""
    restart: list[str]
    """What only a restart can change."""


class DriverBudgetView(TypedDict):
    """The static budget of the driver's level, in instructions for each packet."""
    ask: int
    """What asking the form of a plugin is taken to add, beside what the form itself takes."""
    form: int
    """What the form of a plugin may take."""
    forward: int
    """What forwarding is taken to cost, or dropping."""
    instructions: int
    """What a flow may take."""
    longest_way: int | None
    """Instructions of the longest way through the program as it was compiled, without a token bucket and beside
    completing a checksum."""
    police: int
    """What a token bucket is taken to add."""


class DriverFlowsView(TypedDict):
    """Flows that the driver forwards by itself."""
    evicted: int
    """Flows that were taken back because heavier ones, or such as somebody wants there, asked for their places."""
    evicted_rate: float
    """Flows that were taken back per second since then for others."""
    flows: int
    """Flows that the driver knows."""
    idle: int
    """Flows that were taken back because no packet came for a time."""
    idle_rate: float
    """Flows that were taken back per second since then because no packet came."""
    inserted: int
    """Flows that it was told of."""
    inserted_rate: float
    """Flows that it was told of per second since the last look."""
    most: int
    """Most that it can know."""
    refused: int
    """Flows that found no room, each once."""
    refused_rate: float
    """Flows that found no room per second since then."""
    renewed: int
    """Flows that it was told of again after a change."""


class DriverFormView(TypedDict):
    """The form of a plugin for the driver."""
    bytes: int
    """Bytes of its object file."""
    counters: int
    """Words that it counts, on each processor."""
    settings: int
    """Words of settings that it is given."""


class DropView(TypedDict):
    """What was dropped."""
    ether_types: dict[str, int]
    """How many by EtherType, for the reason `ether_type`: up to 64 of them."""
    meaning: str
    """What it means."""
    packets: int
    """How many packets."""
    ports: dict[str, int]
    """How many by port; `-` stands for none."""
    rate: float
    """How many per second since the last look."""
    reason: str
    """The reason."""


class DroppedView(TypedDict):
    """A packet that was dropped."""
    binding: int | None
    """The number of the filter or binding that dropped it, where it is known."""
    by: str | None
    """What dropped it, in words; where several instances may have, which."""
    filter: str | None
    """What that matches."""
    frame: str
    """Its first bytes, up to 128, in hexadecimal."""
    instance: str | None
    """The instance that dropped it, where it is known."""
    length: int
    """Its length."""
    out_port: str | None
    """The port that it was to leave by, if that was decided."""
    port: str
    """The port that it came in by; `-` for the router's own."""
    reason: str
    """Why."""
    summary: str
    """Its headers in a line."""
    time: str
    """When: date and time, UTC."""
    worker: int
    """The number of the worker."""


class Event(TypedDict):
    """Something that happened."""
    count: int
    """How many there were."""
    details: dict[str, Any]
    """What the sentence says, for programs."""
    kind: EventKind
    """What kind of thing."""
    number: int
    """Its number: the first of a router is 1, each one more than the one before."""
    severity: Severity
    """How much it matters."""
    subject: str
    """What it happened to."""
    text: str
    """One sentence for people; of several, about the last."""
    time: str
    """When it happened, or the last of several: date and time, UTC."""


EventKind: TypeAlias = Literal['router-started'] | Literal['worker-panicked'] | Literal['link-up'] | Literal['link-down'] | Literal['device-gone'] | Literal['device-back'] | Literal['queueing-passed-by'] | Literal['queueing-gone'] | Literal['neighbour-learned'] | Literal['neighbour-changed'] | Literal['neighbour-lost'] | Literal['neighbour-failed'] | Literal['address-conflict'] | Literal['route-missing'] | Literal['route-back'] | Literal['plugin-loaded'] | Literal['plugin-unloaded'] | Literal['plugin-upgraded'] | Literal['plugin-rolled-back'] | Literal['plugin-fault'] | Literal['instance-restarted'] | Literal['instance-quarantined'] | Literal['instance-released'] | Literal['configuration-applied'] | Literal['configuration-refused'] | Literal['configuration-confirmed'] | Literal['configuration-rolled-back'] | Literal['configuration-saved'] | Literal['reservation-set'] | Literal['reservation-removed'] | Literal['threshold-exceeded'] | Literal['threshold-cleared'] | Literal['handler-panicked'] | Literal['audit-failed']
"""What kind of thing happened."""


class EventPage(TypedDict):
    """Events out of those that there are."""
    events: list[Event]
    """The events, the oldest first."""
    missed: int
    """Events that were asked for and are not kept any more, of whatever kind."""
    newest: int
    """The number of the newest event that there is."""
    next: int
    """What to ask for as `since` to get those that follow these."""


class FilterView(TypedDict):
    """A binding of an instance, or of another action, to flows."""
    action: str
    """What is done with the packets: `instance NAME`, `drop`, `reject`, `host`, `port NAME`, `ports NAME,NAME`
    or `copy-to NAME`."""
    budget: int | None
    """Microseconds that a call of the instance may take."""
    bytes: int
    """Their bytes."""
    drops: int
    """Packets of these that the instance dropped."""
    gate: str
    """The gate."""
    id: int
    """Its number, which no other one ever has while the router runs: the smaller is the older."""
    instance: str | None
    """The instance, if the action is one."""
    lost_bytes: int
    """Their bytes."""
    lost_packets: int
    """Packets that were dropped in queues or behind, before a device took them."""
    match: str
    """Which packets."""
    on_fault: str | None
    """What becomes of packets that the instance fails at; `null` where there is none."""
    packet_budget: int | None
    """The same for each packet of a call, if that is less."""
    packets: int
    """Packets that it got."""
    priority: int
    """Of several filters that match, the highest priority wins."""
    queued_bytes: int
    """Their bytes."""
    queued_packets: int
    """Packets that were given to the queues of ports; each copy and each fragment is one."""
    sent_bytes: int
    """Their bytes."""
    sent_packets: int
    """Packets that went on to devices."""
    shadowed_by: NotRequired[list[NamedFilterView] | None]
    """In the answer to one that is new: filters that come before it, so that it never wins. Empty where it can
    win; absent in lists."""
    unreached: NotRequired[str | None]
    """In the answer to one that is new: why no packet that arrives meets it. Absent where packets can, and in
    lists."""
    waiting_bytes: int
    """Their bytes."""
    waiting_packets: int
    """Packets that wait."""


FiltersAdded: TypeAlias = 'FilterView | dict[str, Any]'
"""What was added."""


class FlowQueueView(TypedDict):
    """The queue of a flow."""
    dropped_bytes: int
    """Their bytes."""
    drops: dict[str, int]
    """Packets that were dropped, by cause."""
    flow: str | None
    """The filter that only the flow's packets match; none when the router knows it no longer, or does not yet."""
    held_bytes: int
    """Their bytes."""
    held_packets: int
    """Packets that wait."""
    marked_packets: int
    """Packets that were marked (ECN) rather than dropped."""
    moved_bytes: int
    """Their bytes."""
    moved_packets: int
    """Packets that went to another queue: those of a flow that got one of its own."""
    offered_bytes: int
    """Their bytes."""
    offered_packets: int
    """Packets that arrived: those that were sent, moved, wait or were dropped."""
    peak_bytes: int
    """The most bytes that ever waited."""
    peak_packets: int
    """The most packets that ever waited, not always at the same moment."""
    quantum: int
    """Bytes in each round."""
    rate: int | None
    """Bits in a second that are reserved for it."""
    sent_bytes: int
    """Their bytes."""
    sent_packets: int
    """Packets that were sent."""
    shared: bool
    """Whether flows share it that have no queue of their own."""
    threshold: int
    """Bytes above which what arrives is dropped."""


class FlowStatesView(TypedDict):
    """What plugins keep for flows."""
    bytes: int
    """Bytes of memory for it."""
    flows: int
    """Flows that have state."""
    refused: int
    """Flows so far that found no room for theirs: plugins see them without state."""


class FlowTableView(TypedDict):
    """The flow table."""
    displaced: int
    """Flows that were displaced by others."""
    expired: int
    """Flows that were forgotten because no packet came for too long."""
    hits: int
    """Packets whose flow was known."""
    known: int
    """Flows."""
    misses: int
    """Packets whose flow was not."""
    most: int
    """Most flows that there may be."""
    new: int
    """Of these, those whose second packet is still awaited."""
    reclassified: int
    """Flows that were classified again after a change."""
    rerouted: int
    """Flows whose route was looked up again after a change."""


class FlowView(TypedDict):
    """A flow."""
    age: float
    """Seconds since the router came to know it."""
    bindings: list[str]
    """What it is bound to, in the order of the journey."""
    bit_rate: float | None
    """Bits per second, where the rate was asked for."""
    bytes: int
    """Their bytes, link headers included."""
    destination: str
    """Destination address."""
    destination_port: int
    """Destination port; 0 where the protocol has none."""
    flow: str
    """The filter that only its packets match."""
    idle: float
    """Seconds since its last packet."""
    level: str
    """`driver` where the driver forwards it by itself, else `worker`."""
    packet_rate: float | None
    """Packets per second, where that was asked for."""
    packets: int
    """Packets since the router came to know it."""
    placed: bool
    """Whether somebody has said where it is to be."""
    port: str
    """The port that it comes in by; `-` for packets of the router's own."""
    protocol: str
    """IP protocol: its name, or its number."""
    route: str
    """Where it goes."""
    source: str
    """Source address."""
    source_port: int
    """Source port; 0 where the protocol has none."""
    state: str
    """`new` while it may be displaced by other new flows, then `established`; `reserved` while a rate is
    reserved for it, so that no other displaces it."""
    why_not_driver: str | None
    """Why it is not in the driver; nothing when it is."""
    worker: int
    """The number of the worker that it belongs to: 0 where there is only one."""


class FlowsView(TypedDict):
    """Flows out of those that there are."""
    flows: list[FlowView]
    """The first of them."""
    found: int
    """How many there are, those that are not shown included."""


class Flushed(TypedDict):
    """What was forgotten."""
    flushed: int
    """How many flows."""


Forwarding: TypeAlias = Literal['on'] | Literal['kernel']
"""Whether kernel ports forward."""


class GateCheckView(TypedDict):
    """What is odd about the filters of a gate."""
    ambiguous: list[AmbiguousView]
    """Pairs of filters of one priority, neither a special case of the other, that some packets match both; up to
    100."""
    ambiguous_pairs: int
    """How many such pairs there are."""
    below_routes: list[NamedFilterView]
    """Filters that compete with routes, and lose against each for their priority."""
    filters: int
    """How many filters it has."""
    gate: str
    """The gate."""
    shadowed: list[ShadowedView]
    """Filters that never win."""
    undecided: list[NamedFilterView]
    """Filters that no other outdoes, and of which it would take too long to find out whether several do
    together."""


class GateExplanationView(TypedDict):
    """What becomes of a packet at a gate with filters."""
    candidates: list[CandidateView]
    """Its filters in the order in which they win: all that match, and some that don't."""
    gate: str
    """The gate."""
    left_out: int
    """How many more don't match."""
    position: str
    """Its position in the journey."""


GateLinksView: TypeAlias = 'dict[str, Any]'
"""Links from the filters of one gate into the DAG of the next."""


class GateSettings(TypedDict):
    table: str


class GateView(TypedDict):
    """A gate."""
    bindings: list[BindingView]
    """What is bound there."""
    links: GateLinksView | None
    """What leads from the filters of the gate before into its table, where both are DAGs."""
    memory: int
    """Bytes that its filters take, in the form in which they are searched."""
    moved: str | None
    """Why they are searched in another way for now."""
    name: str
    """Its name."""
    position: str
    """Its position in the journey."""
    table: str
    """How its filters are searched: `linear`, `tuple-space`, `cutting-tree`, `dag`, `dag-patricia` or `dag-tree-
    bitmap`."""


class HardwarePortView(TypedDict):
    """A port, as hardware."""
    device: str | None
    """The kernel device, if there is one."""
    driver: str
    """The driver of that device, as it calls itself, or the kind of the port."""
    features: list[str]
    """XDP features that the driver announces."""
    mtu: int
    """Largest network packet in bytes."""
    name: str
    """Its name."""
    processor: str
    """The processor that manages it: what comes in by it goes there first."""
    queueing_discipline: str | None
    """The kernel's queueing discipline there, where that is no plain queue: no packet of the router passes it."""
    rx_queues: int
    """Receive queues in use."""
    sockets: str
    """How packets get to a worker: `zero-copy` and `copy` (AF_XDP), `ring` (AF_PACKET), `call`, `in-process`."""
    speed: int | None
    """Bits per second of its link, as the driver says."""
    tx_queues: int
    """Transmit queues in use."""
    why: str
    """Why it works in no better mode; empty when it is the best."""
    why_no_redirects: str | None
    """Why no packet can be redirected to it in the driver; none where that works."""
    xdp: str
    """Where XDP runs: `driver`, `generic` behind it, or `none`."""


class HardwareView(TypedDict):
    """Processors, ports and switches (*VERA*, section 2.1): what there is for packets to pass."""
    cpus: list[CpuView]
    """The machine's own processors."""
    ports: list[HardwarePortView]
    """The ports."""
    processors: list[ProcessorView]
    """The router's processors, the highest level first: with `above` they are a tree, whose leaves are the
    ports."""
    switches: list[SwitchView]
    """By which ways packets get from one to the other."""


class HeldView(TypedDict):
    """An instance in quarantine, because a call of it has ended the router."""
    instance: str
    """Its name."""
    is_here: bool
    """Whether this router has an instance of that name."""
    plugin: str
    """Its plugin."""
    since: str
    """When it happened: date and time, UTC."""
    why: str
    """What happened."""


class HostCompanionView(TypedDict):
    """The host companion of an instance."""
    down: MessagesView
    """Messages that it sent itself."""
    faults: dict[str, int]
    """Faults by kind."""
    health: str
    """`well`, `pausing` after a fault, or `quarantined` after many."""
    last_fault: str | None
    """What happened last."""
    plugin: str
    """Its plugin."""
    suspensions: int
    """How often it was stopped in the middle, for others to have their turn."""
    up: MessagesView
    """Messages that the half at the workers sent."""
    version: str
    """The version of that."""


class HostOutputView(TypedDict):
    """What the kernel itself sends by a port that has a scheduler."""
    bytes: int
    """Their bytes."""
    caught: bool
    """Whether it is caught, and waits in the queues."""
    lost: int
    """Packets of these that were lost before they were read, or for which there was no memory."""
    packets: int
    """Packets that were caught."""
    setting: str
    """What becomes of it: `queue`, `filter` or `direct`."""
    weight: int
    """Packets that are taken in a round, at most."""
    why: str | None
    """Why it is not, although it should be."""


class InstanceChange(TypedDict):
    name: NotRequired[str | None]
    """Its name from now on."""
    settings: NotRequired[dict[str, Any] | None]
    """Settings that change; `null` takes one away."""


class InstanceView(TypedDict):
    """A plugin instance."""
    bindings: list[BindingView]
    """Where it is bound."""
    counters: dict[str, int]
    """Its plugin's own counters, by name."""
    drops: dict[str, Any]
    """Packets that it dropped, by its own reasons."""
    faults: dict[str, int]
    """Faults by kind."""
    health: str
    """`well`, `pausing` after a fault, or `quarantined` after many."""
    host_companion: HostCompanionView | None
    """Its host companion; nothing where its plugin has none."""
    last_fault: str | None
    """What happened last."""
    level: str
    """The lowest level at which its packets are treated: `xdp` where its form for the driver is loaded there,
    `worker` otherwise."""
    name: str
    """Its name."""
    number: int
    """Its number, by which plugins send packets to it."""
    packet_rate: float
    """The same per second, since the last time that somebody asked."""
    packets: int
    """Packets that its bindings got."""
    plugin: str
    """Its plugin."""
    settings: Any
    """Its settings."""
    suspensions: int
    """How often it was stopped in the middle, for others to have their turn."""
    why_worker: str | None
    """Why it is not in the driver, where it isn't."""


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
    """What runs is to be a revision."""
    comment: NotRequired[str | None]
    """Why; `saved`, if nothing is said."""
    origin: NotRequired[str | None]
    """The file's name, for the history."""
    text: NotRequired[str | None]
    """The text of a file that says what runs; without it, what was last applied or saved, with what has changed
    since."""


class ListView(TypedDict):
    """The list of resources."""
    name: str
    """`millrace`."""
    resources: list[ResourceView]
    """What there is."""
    version: str
    """The version of the router."""


class LookupView(TypedDict):
    """What would happen to a packet."""
    steps: list[StepView]
    """Stage by stage."""
    verdict: str
    """What becomes of it in the end."""


class MapEntryView(TypedDict):
    """An entry of a map."""
    key: str
    """The key, in hexadecimal digits."""
    value: str
    """The value, in hexadecimal digits."""
    worker: int
    """The worker whose instance wrote it, from 0 on."""


class MapShapeView(TypedDict):
    """A map as a plugin declares it."""
    entries: int
    """Entries at most, at each worker."""
    key: int
    """Bytes of each key."""
    memory: int
    """Bytes of memory that it takes at each worker."""
    name: str
    """Its name."""
    value: int
    """Bytes of each value."""


class MapView(TypedDict):
    """A map of an instance."""
    content: list[MapEntryView]
    """What stands there; only where one map was asked for."""
    entries: int
    """Entries that there are, at all workers together."""
    key: int
    """Bytes of each key."""
    more: bool
    """Whether there is more than what is shown."""
    most: int
    """Entries that there may be, at each worker."""
    name: str
    """Its name."""
    refused: int
    """New keys so far for which there was no room."""
    value: int
    """Bytes of each value."""


Map_of_AnyValue: TypeAlias = 'dict[str, Any]'


class MemoryView(TypedDict):
    """Packet memory."""
    frames: int
    """All frames."""
    used: int
    """Frames in use."""


class Message(TypedDict):
    arguments: NotRequired[dict[str, Any]]
    companion: NotRequired[bool]
    """Whether it is for the host companion."""
    message: str


class MessagesView(TypedDict):
    """Messages from one half to the other."""
    heard: int
    """Heard, by the instance of each worker."""
    lost: int
    """Lost: too many waited, or who should hear was pausing."""
    sent: int
    """Sent."""


class MirrorView(TypedDict):
    """What the mirror of the kernel saw."""
    divergences_repaired: int
    """Differences that a comparison found and repaired."""
    dumps: int
    """Complete readings."""
    messages: int
    """Messages."""
    overruns: int
    """Overruns, after each of which everything was read again."""


class MissingRouteView(TypedDict):
    """A configured route that the kernel does not have."""
    to: str
    """Its prefix."""
    why: str
    """Why it doesn't have it."""


class MissingRoutesView(TypedDict):
    """Configured routes that the kernel is to have, and does not: no packet takes them. It is given them again."""
    count: int
    """How many."""
    first: list[MissingRouteView]
    """The first of them, up to 10."""


class NamedFilterView(TypedDict):
    """A filter as it is spoken of."""
    action: str
    """What it does."""
    id: int
    """Its number."""
    match: str
    """Which packets."""
    priority: int
    """Of several filters that match, the highest priority wins."""


class NeighbourView(TypedDict):
    """A neighbour."""
    address: str
    """Its address."""
    mac: str | None
    """Its MAC address, if known."""
    port: str
    """The port it is behind."""
    state: str
    """The state: the kernel's word for it, or `own`."""


class NewBinding(TypedDict):
    """An instance to be bound."""
    budget: NotRequired[str | None]
    """Time that a call may take in all: `"1ms"`."""
    filter: str
    """Which packets."""
    gate: str
    """The gate."""
    instance: str
    """The instance."""
    on_fault: NotRequired[Literal['drop'] | Literal['bypass']]
    """What becomes of packets that the instance fails at."""
    packet_budget: NotRequired[str | None]
    """Time that a call may take for each of its packets: `"20us"`."""
    priority: NotRequired[int]
    """Of several filters that match, the highest priority wins."""


class NewFilter(TypedDict):
    """A filter to be added."""
    action: str
    """What is done with them, as in the configuration."""
    gate: NotRequired[str | None]
    """The gate; `route`, `tap` for copies, or `schedule` for queues, if none is named."""
    match: str
    """Which packets; `*` is all."""
    priority: NotRequired[int]
    """Of several filters that match, the highest priority wins."""


class NewGate(TypedDict):
    name: str
    position: str


class NewInstance(TypedDict):
    name: str
    plugin: str
    settings: NotRequired[dict[str, Any]]


class NewNeighbour(TypedDict):
    """A neighbour that is to be known for good."""
    address: str
    """Its address."""
    mac: str
    """Its MAC address."""
    port: str
    """The port it is behind, which has no kernel device."""


class NewPlacement(TypedDict):
    """Where flows are to be treated."""
    flow: str
    """Which flows: a filter, or the name of an instance."""
    level: Literal['xdp'] | Literal['worker'] | Literal['auto']
    """Where."""


class NewPlugin(TypedDict):
    """A plugin to be loaded."""
    allow_downgrade: NotRequired[bool]
    """Load it also when it is signed and older than one that was loaded before."""
    file: str
    """Its file, on the router's machine."""


class NewRoute(TypedDict):
    """A route to be added."""
    kind: NotRequired[Literal['forward'] | Literal['blackhole'] | Literal['unreachable'] | Literal['prohibit']]
    """What the route does."""
    port: NotRequired[str | None]
    """Port to leave by."""
    to: str
    """Destination prefix."""
    via: NotRequired[list[str]]
    """Next hops."""


class NewToken(TypedDict):
    """A token to be made."""
    expires: NotRequired[str | None]
    """Time until it ends, 1 s to a hundred years: `12h`, `30d`; without this it doesn't by itself."""
    name: str
    """Its name: letters, digits, dots, hyphens and underscores, 64 at most."""
    role: Literal['viewer'] | Literal['operator'] | Literal['admin']
    """What who has it may do."""


class NextHopView(TypedDict):
    """A next hop of a route."""
    port: str
    """The port to leave by."""
    via: str | None
    """Its address; none when the destinations are neighbours themselves."""
    weight: int
    """Its share among the route's next hops."""


class NodeRemoval(TypedDict):
    """What becomes of packets and filters of a scheduler's node that is removed."""
    to: NotRequired[str | None]
    """The leaf that gets what waits there, and is named by filters whose queue is gone; without it packets are
    dropped."""
    with_filters: NotRequired[bool]
    """Whether filters whose queue is gone are removed as well."""


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
    """A neighbour that was known for good."""
    address: str
    """Its address."""
    port: str
    """The port it is behind."""


class OldRoute(TypedDict):
    to: str


OnDeath: TypeAlias = Literal['kernel'] | Literal['drop']
"""What happens to packets when the router has died."""


class OnDeathView(TypedDict):
    """What becomes of packets of the kernel's ports when the router has died."""
    packets: str
    """In words."""
    said: bool
    """Whether the configuration, `run` or `router set` says so. Filters that drop, reject or police need that."""


Outcome: TypeAlias = Literal['done'] | Literal['refused'] | Literal['failed'] | Literal['abandoned']
"""What came of what was asked for."""


class Packet(TypedDict):
    packet: str


class Pending(TypedDict):
    """A revision that waits to be confirmed."""
    revision: int
    """Its number."""
    seconds: int
    """Seconds that are left."""


class PlacementView(TypedDict):
    """Where some flows are wanted, and where they are."""
    driver: int
    """Those that are in the driver."""
    flow: str
    """Which flows: a filter, or `instance NAME`."""
    level: str
    """Where they are wanted: `xdp`, `worker`, or `auto` where that is left to the router."""
    why_worker: dict[str, int]
    """How many of these, for which reason."""
    worker: int
    """Those that are at a worker."""


class PlacementsView(TypedDict):
    """Where flows are wanted, and where all of them are."""
    budget: DriverBudgetView
    """How many instructions a program in the driver may spend on a packet."""
    driver: int
    """All flows that are in the driver."""
    placements: list[PlacementView]
    """What was said of flows; the first that concerns a flow counts."""
    why_worker: dict[str, int]
    """How many of these, for which reason."""
    worker: int
    """All flows that are at a worker."""


class PluginDetailView(TypedDict):
    """A plugin, and all that it says of itself."""
    capabilities: list[str]
    """The capabilities that it asks for."""
    codes: dict[str, int]
    """Its code at each of them (*Router Plugins*, section 4): the type, which stands for the position, in the
    upper 16 bits, and the plugin's number in the lower."""
    counters: list[str]
    """The names of its counters."""
    driver_form: NotRequired[DriverFormView | None]
    """Its form for the driver."""
    features: list[str]
    """What it needs of the interface between plugins and router."""
    home: str
    """`built in`, `contained` or `trusted`, and what that is."""
    host_companion: NotRequired[PluginDetailView | None]
    """Its host companion."""
    instances: list[str]
    """The instances of it."""
    manual: str | None
    """Its manual page; nothing where it has none."""
    maps: list[MapShapeView]
    """The maps that its instances write."""
    messages: dict[str, str]
    """Its control messages."""
    name: str
    """Its name."""
    positions: list[str]
    """Positions of the gates that it may be bound at."""
    previous: str | None
    """The version to which a rollback would go back; nothing when it was not upgraded."""
    settings: dict[str, Any] | None
    """The JSON Schema of its settings; nothing when it takes none."""
    signature: str | None
    """`signed by` and the key's id, or `unsigned`; nothing for what is built in."""
    state_version: int
    """The version of what its instances save."""
    summary: str
    """What it does."""
    version: str
    """Its version."""


class PluginInterfaceView(TypedDict):
    """The interface that plugins are offered."""
    features: list[str]
    """Its features at the workers."""
    version: int
    """Its version."""


class PluginView(TypedDict):
    """A plugin that instances can be made of."""
    capabilities: list[str]
    """The capabilities that it asks for."""
    codes: dict[str, int]
    """Its code at each of them (*Router Plugins*, section 4): the type, which stands for the position, in the
    upper 16 bits, and the plugin's number in the lower."""
    counters: list[str]
    """The names of its counters."""
    features: list[str]
    """What it needs of the interface between plugins and router."""
    home: str
    """`built in`, `contained` or `trusted`, and what that is."""
    messages: dict[str, str]
    """Its control messages."""
    name: str
    """Its name."""
    positions: list[str]
    """Positions of the gates that it may be bound at."""
    signature: str | None
    """`signed by` and the key's id, or `unsigned`; nothing for what is built in."""
    summary: str
    """What it does."""
    version: str
    """Its version."""


PollMode: TypeAlias = Literal['poll'] | Literal['interrupt'] | Literal['adaptive']
"""How the worker waits for packets."""


class PortClassView(TypedDict):
    """What became of a class at a port."""
    dropped: int
    """Packets that were dropped because more came."""
    passed: int
    """Packets that got through."""


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
    """A port and its counters."""
    addresses: list[str]
    """Its addresses."""
    batched_packets: int
    """Of the frames sent, those that a worker sent in batches, past its socket."""
    device: str | None
    """The kernel device below, if there is one."""
    device_drops: int
    """Frames that the device did not send although it was given them, by the router, where they count as sent,
    or the kernel; as the kernel counts."""
    driver: str
    """`af_xdp`, `af_packet`, `tap`, `pcap`, `memory`, `vlan`."""
    driver_packets: int
    """Of the frames received, those that the driver forwarded by itself."""
    drops: dict[str, int]
    """Frames dropped, by reason."""
    held: int
    """Frames that wait inside the port and its queue."""
    input_weight: int
    """Packets that are taken from it in a round, at most."""
    mac: str
    """Its MAC address."""
    mode: str
    """How the driver works here: `zero-copy`, `native`, `generic`, `ring`, `call`, `in-process`."""
    mtu: int
    """Largest network packet in bytes."""
    name: str
    """Its name."""
    on_death: str | None
    """`kernel` or `drop`: what happens to its packets when the router has died."""
    queueing_discipline: str | None
    """The kernel's queueing discipline there, where that is no plain queue: no packet of the router passes it."""
    reverse_path: str
    """`off`, `strict` or `loose`: whether the way back to a packet's source is looked at."""
    rx_bits: float
    """Bits received per second since the last look."""
    rx_bytes: int
    """Their bytes."""
    rx_packets: int
    """Frames received, those that the kernel kept included."""
    rx_rate: float
    """Frames received per second since the last look."""
    state: str
    """`up` or `down`."""
    to_host: int
    """Frames that the kernel or the router's own stack got."""
    tx_bits: float
    """Bits sent per second since the last look."""
    tx_bytes: int
    """Their bytes."""
    tx_packets: int
    """Frames sent by the router."""
    tx_rate: float
    """Frames sent per second since the last look."""
    why: str
    """Why it works in no better mode; empty when it is the best."""


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
    """A processor of the router: a place where packets are treated."""
    above: str | None
    """The processor that gets what this one leaves to others; none for the highest."""
    cpus: str
    """The processors of the machine that it may run on; empty where that is whichever receives the packet."""
    level: int
    """0 in the driver, 1 a worker, 2 the host."""
    name: str
    """`host`, `worker 0`, `xdp r1`."""
    treats: str
    """What it treats."""
    why_not: str | None
    """Why it treats no flows by itself; none where it does."""


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
    """A queue of a port: a leaf of its scheduler."""
    delivered: int
    """Bits in a second on the wire that it sent since it was last asked for."""
    dropped_bytes: int
    """Their bytes."""
    drops: dict[str, int]
    """Packets dropped at or below it, by cause."""
    flows: list[FlowQueueView]
    """The queues of flows in it; only where one queue was asked for."""
    held_bytes: int
    """Their bytes."""
    held_packets: int
    """Packets that wait at or below it."""
    id: int
    """The number by which plugins name it as a queue."""
    kind: str
    """What it does."""
    marked_packets: int
    """Packets that were marked (ECN) at or below it, rather than dropped."""
    name: str
    """Its name."""
    offered_bytes: int
    """Their bytes."""
    offered_packets: int
    """Packets that arrived: those that were sent, wait or were dropped."""
    peak_bytes: int
    """The most bytes that ever waited."""
    peak_packets: int
    """The most packets that ever waited, not always at the same moment."""
    port: str
    """The port."""
    promised: int | None
    """Bits in a second on the wire that it gets when all others send as much as they can, as far as that is
    bounded."""
    queues: int
    """Queues in use."""
    sent_bytes: int
    """Their bytes."""
    sent_packets: int
    """Packets sent."""
    sent_wire_bytes: int
    """What they took on the wire: their bytes and what the link adds."""
    settings: dict[str, Any]
    """Its settings, with underscores where a file has hyphens."""
    under: str | None
    """The node above."""


class RatesView(TypedDict):
    """What the counters grew by in a second."""
    ports: list[PortRatesView]
    """The ports."""
    seconds: float
    """Seconds between the two looks."""
    time: str
    """When: date and time, UTC."""


class ReleaseView(TypedDict):
    """An instance that was let out of quarantine."""
    instance: str
    """Its name."""
    is_here: bool
    """Whether this router has it, so that it runs now."""


class RemovedNodeView(TypedDict):
    """A node of a scheduler that was removed, with all below it."""
    filters: list[BindingView]
    """Filters whose queue is gone, as they were."""
    node: str
    """Its name."""
    port: str
    """The port."""
    to: str | None
    """The leaf that has its packets now; none, if they were dropped."""
    with_filters: bool
    """Whether the filters were removed; if not, they name the leaf now."""


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
    """A revision without its text."""
    changes: int
    """Number of changes, counted in commands."""
    comment: str | None
    """Why, as that said."""
    number: int
    """Its number: the first is 1, each one more than the one before."""
    origin: str
    """Where its text came from: a file's name, or the revision that was returned to."""
    router: str | None
    """The router that it is of: its socket. Nothing where none was noted."""
    state: State
    """What became of it."""
    time: int
    """When it was applied, in seconds since 1970."""
    who: Who
    """Who applied it."""


class RevisionTextView(TypedDict):
    """A revision and its text."""
    changes: int
    """Number of changes, counted in commands."""
    comment: str | None
    """Why, as that said."""
    number: int
    """Its number: the first is 1, each one more than the one before."""
    origin: str
    """Where its text came from: a file's name, or the revision that was returned to."""
    router: str | None
    """The router that it is of: its socket. Nothing where none was noted."""
    state: State
    """What became of it."""
    text: str
    """The file's text."""
    time: int
    """When it was applied, in seconds since 1970."""
    who: Who
    """Who applied it."""


class RevisionView(TypedDict):
    """A revision in a list of them."""
    changes: int
    """Number of changes, counted in commands."""
    comment: str | None
    """Why, as that said."""
    number: int
    """Its number: the first is 1, each one more than the one before."""
    origin: str
    """Where its text came from: a file's name, or the revision that was returned to."""
    router: str | None
    """The router that it is of: its socket. Nothing where none was noted."""
    runs: bool
    """Whether it was applied last, and not withdrawn: it runs, with what single commands have changed since."""
    state: State
    """What became of it."""
    time: int
    """When it was applied, in seconds since 1970."""
    who: Who
    """Who applied it."""


Role: TypeAlias = Literal['viewer'] | Literal['operator'] | Literal['admin']
"""What somebody may do. Each may also do what the one before may."""


class RouteView(TypedDict):
    """A route."""
    kind: str
    """`forward`, `local`, `kernel`, `broadcast`, `blackhole`, `unreachable`, `prohibit`."""
    lost_bytes: NotRequired[int]
    """Their bytes."""
    lost_packets: NotRequired[int]
    """Packets that were dropped in queues or behind, before a device took them."""
    missing: NotRequired[str | None]
    """Why the kernel doesn't have it, though it is configured: no packet takes it. Left out where it has."""
    next_hops: list[NextHopView]
    """Next hops; empty unless it forwards."""
    protocol: str
    """Who made it, in the kernel's words: `static`, `kernel`, `bgp`…; `millrace` for ours."""
    queued_bytes: NotRequired[int]
    """Their bytes."""
    queued_packets: NotRequired[int]
    """Packets that were given to the queues of ports; each copy and each fragment is one."""
    sent_bytes: NotRequired[int]
    """Their bytes."""
    sent_packets: NotRequired[int]
    """Packets that went on to devices."""
    source: str
    """`kernel` for mirrored routes, else `millrace`."""
    to: str
    """Destination prefix."""
    waiting_bytes: NotRequired[int]
    """Their bytes."""
    waiting_packets: NotRequired[int]
    """Packets that wait."""


class Router(TypedDict):
    """What holds for the whole router."""
    boot: Boot
    """From what the router starts: from this file, or from the last revision that counts, if there is one.
    Default `file`."""
    driver_flows: int
    """Plain flows that the driver forwards by itself, at most; 0 to have all flows forwarded by the worker."""
    flow_idle: str
    """Time without a packet after which a flow is forgotten, 1 s to 24 h. Default 30 s."""
    flows_max: int
    """Flows that the flow table holds, 1,024 to 16,777,216. Default 1,048,576. With 0 there is none: filters and
    routes are looked up for each packet, instances keep nothing of flows, and the driver forwards none."""
    forward_class_e: bool
    """Forward 240.0.0.0/4. Default false."""
    forward_link_local: bool
    """Forward 169.254.0.0/16. Default false."""
    forward_zero_net: bool
    """Forward 0.0.0.0/8. Default false."""
    forwarding: Forwarding
    """Whether kernel ports forward: always, or as the kernel's forwarding switches say. Default `on`."""
    frames: int
    """Frames of packet memory of each worker, 2,048 bytes each: 1,024 to 4,194,304. Default 32,768 (64 MiB)."""
    icmp_burst: int
    """ICMP errors of one type that may go out at once. Default 50."""
    icmp_dscp: int
    """DSCP of ICMP errors, 0 to 63. Default 48 (CS6)."""
    icmp_rate: int
    """ICMP errors per second and type. Default 1,000."""
    ignore_kernel_policy: bool
    """Forward although nftables, policy rules, xfrm or tc apply to a port and will be passed by."""
    mode: PollMode
    """How the worker waits for packets. Default `adaptive`."""
    new_flows: int
    """New flows that are classified in a batch of 256 packets while more comes than the router bears, 1 to 256;
    packets of others are dropped then. Default 128."""
    on_death: OnDeath | None
    """What forwards when the router has died: `kernel` or `drop`, for ports that don't say. Without bindings the
    default is `kernel`; with bindings it must be said."""
    plugin_weight: int
    """Packets of those that instances made which are taken up in a round, at most, 1 to 256: like `input-weight`
    of a port. Default 256."""
    redirects: bool
    """Whether hosts are told of a better first hop. Default true."""
    route_priority: int
    """The one priority of all routes: where a packet has a route, filters at gates of the position `route` need
    at least this one. Default 0."""
    router_id: str
    """Source of ICMP errors that leave by a port without an IPv4 address. Default 192.0.0.8."""
    workers: int
    """Threads that forward, 1 to 16: flows are spread over them, and each has devices of its own. Default 1."""


RoutesAdded: TypeAlias = 'RouteView | dict[str, Any]'
"""What was added."""


RoutesRemoved: TypeAlias = 'RouteView | dict[str, Any]'
"""What was removed."""


class Save(TypedDict):
    """A request to write the running configuration into a file."""
    force: NotRequired[bool]
    """Also where the file has entries that were neither applied nor saved, and are lost then."""
    origin: NotRequired[str | None]
    """Its name, for messages."""
    text: NotRequired[str | None]
    """Its text as it is; without it, what was last applied or saved."""


class Saved(TypedDict):
    """A file with what runs in it."""
    text: str
    """Its text."""


class SchedulerNode(TypedDict):
    """A node of a scheduler. Which settings it takes depends on its kind, and on the kind of the node above."""
    burst: NotRequired[str | None]
    """Of a `token-bucket`: bytes that may go at once. Default 3,076, two Ethernet frames."""
    ecn: NotRequired[bool | None]
    """Of `red`, `codel` and `fq-codel`: whether packets are marked rather than dropped where their senders
    understand it. Default true."""
    gentle: NotRequired[bool | None]
    """Of `red`: whether above `maximum` more and more is dropped, up to all at twice as much, rather than all at
    once. Default true."""
    interval: NotRequired[str | None]
    """Of `codel` and `fq-codel`: time for which they may wait longer: `"100ms"`. Default 100 ms."""
    kind: Literal['fifo'] | Literal['flow-queues'] | Literal['fq-codel'] | Literal['priority'] | Literal['deficit-round-robin'] | Literal['hfsc'] | Literal['token-bucket']
    """What it does."""
    level: NotRequired[int | None]
    """Under `priority`: its level, the lowest first, 0 to 65,535."""
    limit: NotRequired[int | None]
    """Of `fq-codel`: packets that it holds at most. Default 10,240."""
    link_sharing: NotRequired[str | None]
    """Under `hfsc`: how it shares what is left."""
    manage: NotRequired[Literal['tail-drop'] | Literal['red'] | Literal['codel'] | None]
    """Of a queue: how it keeps itself short. Default `tail-drop`."""
    maximum: NotRequired[str | int | None]
    """Of `red`: the average length above which all is dropped, or with `gentle` above twice as much. Default
    half the threshold, in packets that of packets of 1,000 bytes."""
    minimum: NotRequired[str | int | None]
    """Of `red`: the average length below which nothing is dropped. Default a quarter of `maximum`."""
    name: str
    """Its name. A leaf's is that of a queue, which filters name: `queue NAME`."""
    probability: NotRequired[float | None]
    """Of `red`: the share of packets that is dropped when the average is at `maximum`, above 0 and up to 1.
    Default 0.1."""
    quantum: NotRequired[str | None]
    """Under `deficit-round-robin`: bytes in each round. For `flow-queues` and `fq-codel`: those of each flow."""
    queues: NotRequired[int | None]
    """Of `flow-queues` and `fq-codel`: how many queues there are."""
    rate: NotRequired[str | None]
    """Of a `token-bucket`: how fast it lets packets go. Of `flow-queues`: what it is served with."""
    real_time: NotRequired[str | None]
    """Under `hfsc`: what it is guaranteed, `"RATE"` or `"RATE TIME RATE"`: the first rate for that time, then
    the second."""
    target: NotRequired[str | None]
    """Of `codel` and `fq-codel`: time that packets may wait: `"5ms"`. Default 5 ms."""
    threshold: NotRequired[str | None]
    """Of a queue: bytes above which what arrives is dropped. Default 262,144."""
    under: NotRequired[str | None]
    """The node above; without it this is the root."""
    unit: NotRequired[Literal['bytes'] | Literal['packets'] | None]
    """Of `red`: what `minimum` and `maximum` are counted in. Default `bytes`."""
    upper_limit: NotRequired[str | None]
    """Under `hfsc`: what it must not exceed."""
    weight: NotRequired[float | None]
    """Of `red`: the weight of the newest length in the average, above 0 and up to 1. Default 0.002."""


class SchedulerNodeView(TypedDict):
    """A node of a scheduler."""
    delivered: int
    """Bits in a second on the wire that it sent since it was last asked for."""
    dropped_bytes: int
    """Their bytes."""
    drops: dict[str, int]
    """Packets dropped at or below it, by cause."""
    held_bytes: int
    """Their bytes."""
    held_packets: int
    """Packets that wait at or below it."""
    id: int
    """The number by which plugins name it as a queue."""
    kind: str
    """What it does."""
    marked_packets: int
    """Packets that were marked (ECN) at or below it, rather than dropped."""
    name: str
    """Its name."""
    peak_bytes: int
    """The most bytes that ever waited."""
    peak_packets: int
    """The most packets that ever waited, not always at the same moment."""
    promised: int | None
    """Bits in a second on the wire that it gets when all others send as much as they can, as far as that is
    bounded."""
    queues: int
    """Queues in use."""
    sent_bytes: int
    """Their bytes."""
    sent_packets: int
    """Packets sent."""
    sent_wire_bytes: int
    """What they took on the wire: their bytes and what the link adds."""
    settings: dict[str, Any]
    """Its settings, with underscores where a file has hyphens."""
    under: str | None
    """The node above."""


class SchedulerView(TypedDict):
    """The scheduler of a port."""
    default: str | None
    """The queue of packets that nothing else is said of."""
    held: int
    """Packets that wait."""
    held_bytes: int
    """Their bytes."""
    host: HostOutputView | None
    """What the kernel itself sends by the port; none at ports without a kernel device."""
    link: int | None
    """Bits in a second that its link carries, where the kernel knows: that of no virtual device."""
    most_queues: int
    """Queues that there may be."""
    nodes: list[SchedulerNodeView]
    """Its nodes, each behind the one above it."""
    overhead: str
    """What its link adds to each packet, as the configuration has it."""
    port: str
    """The port."""
    queues: int
    """Queues in use, those of flows included."""
    rate: int | None
    """Bits in a second that it sends at most; none if it sends as fast as it can."""
    room_bytes: int
    """Bytes that may wait in all its queues."""
    room_packets: int
    """Packets that may wait in all its queues, by the room in packet memory; one leaf alone gets half of it."""
    warning: str | None
    """What the link can't carry of what is promised, and memory not hold of what was said of leaves."""


Severity: TypeAlias = Literal['information'] | Literal['warning'] | Literal['error']
"""How much an event matters."""


class ShadowView(TypedDict):
    """What came of the trial of a new version on copies of packets."""
    different: int
    """Packets of these that they treated differently."""
    fault: str | None
    """What the new version did wrong."""
    first: str | None
    """The first of those, in a sentence."""
    packets: int
    """Packets that both versions had."""


class ShadowedView(TypedDict):
    """A filter that never wins."""
    by: list[NamedFilterView]
    """Those that come before it, and match whatever it matches: one, or several together, of which none can be
    left out."""
    filter: NamedFilterView
    """The filter."""


State: TypeAlias = Literal['good'] | Literal['waiting'] | Literal['withdrawn']
"""What became of a revision."""


class StatusAnswer(TypedDict):
    """The daemon, and how it is asked."""
    applying: NotRequired[ApplyingView | None]
    """How far a configuration is that is being applied, or a list of changes; nothing when there is none."""
    crashes: NotRequired[list[CrashView] | None]
    """Crashes of workers whose captures are kept, the oldest first; nothing where there are none."""
    driver_flows: DriverFlowsView | None
    """Flows in the driver; nothing where the driver forwards none."""
    flow_states: FlowStatesView
    """What plugins keep for flows."""
    flows: FlowTableView
    """The flow table."""
    interface: InterfaceView
    """How the interface is served."""
    leftover_objects: NotRequired[int | None]
    """Copies of shared objects that no instance uses any longer, which stay in memory; nothing where there are
    none."""
    memory: MemoryView
    """Packet memory."""
    mirror: MirrorView | None
    """What the mirror of the kernel saw."""
    missing_routes: NotRequired[MissingRoutesView | None]
    """Configured routes that the kernel is to have, and does not; nothing when there are none."""
    mode: str
    """`poll`, `interrupt` or `adaptive`."""
    on_death: NotRequired[OnDeathView | None]
    """What becomes of packets when the router has died; nothing where no port is the kernel's."""
    pending: NotRequired[Pending | None]
    """What was applied and waits to be confirmed; nothing when there is none."""
    pid: int
    """Its process."""
    plugin_interface: PluginInterfaceView
    """The interface that plugins are offered."""
    routes: int
    """Routes in the forwarding table."""
    sleeps: int
    """How often the worker slept."""
    turns: TurnsView
    """Rounds of the workers."""
    uptime: float
    """Seconds since it started."""
    version: str
    """Its version."""
    worker_cpu: list[float]
    """Seconds that each of them has run on a processor."""
    workers: int
    """Threads that forward."""


class StepView(TypedDict):
    """A stage of a packet's journey."""
    stage: str
    """The stage."""
    text: str
    """What happens there, and why."""


class SummaryView(TypedDict):
    """What became of all packets."""
    consumed: int
    """Packets used up by plugins."""
    created: int
    """Packets that the router made."""
    created_by: dict[str, int]
    """Packets made, by reason."""
    dropped: int
    """Packets dropped."""
    dropped_by: dict[str, int]
    """Packets dropped, by reason."""
    held: int
    """Packets inside the router."""
    imbalance: int
    """received + created less all the others: 0 when nothing was lost or invented. While packets flow it may be
    off by those that pass between two readings."""
    received: int
    """Packets received, those that the kernel kept at a port included."""
    received_from_host: int
    """Of these, packets that the kernel itself sent by ports that have a scheduler."""
    to_host: int
    """Packets for the kernel and for the router's own stack."""
    transmitted: int
    """Packets sent."""


SwitchView: TypeAlias = 'dict[str, Any]'
"""A way between two processors, or from one to a port."""


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
    """A token, without its secret, which nobody keeps."""
    created: str
    """When it was made: date and time, UTC."""
    created_by: Who
    """Who made it."""
    expired: bool
    """Whether it has ended."""
    expires: str | None
    """When it ends; nothing where it doesn't by itself."""
    name: str
    """Its name."""
    role: Role
    """What who has it may do."""
    used: str | None
    """When it was last used, as far as is known; nothing where it never was."""
    used_from: str | None
    """From which address that was."""


class TraceStepView(TypedDict):
    """A step of the journey."""
    action: NotRequired[str | None]
    """At a gate: what is done with what it matches."""
    binding: NotRequired[int | None]
    """At a gate: the number of the filter or binding."""
    cycles: int | None
    """Cycles that it took; `null` where that is not known, as it was done for others too."""
    filter: NotRequired[str | None]
    """At a gate: what the filter matches."""
    gate: NotRequired[str | None]
    """At a gate: its name."""
    instance: NotRequired[str | None]
    """At a gate: the instance that is bound, if one is."""
    next_hop: NotRequired[str | None]
    """Of a route: the neighbour that gets the packet."""
    port: NotRequired[str | None]
    """The port, where the step is at one."""
    prefix: NotRequired[str | None]
    """Of a route: its prefix."""
    reason: NotRequired[str | None]
    """Of a drop: why."""
    stage: str
    """The stage: `receive`, `worker`, `parse`, `classify`, `gate`, `copy`, `route`, `error`, `rewrite`,
    `fragment`, `queue`, `wait`, `transmit`, `host`, `own`, `plugin` or `drop`."""
    text: str
    """What happened, and why."""
    verdict: NotRequired[str | None]
    """What was decided: at gates `pass`, `drop`, `consume`, `hold`, `queue`, `send` or `classify`; at the flow
    table `hit`, `checked`, `rerouted`, `reclassified`, `miss` or `none`."""
    worker: int
    """The number of the worker."""


class TraceView(TypedDict):
    """The journey of a packet that was traced."""
    cycles: int | None
    """Cycles of all steps of which it is known, on the processor's time-stamp counter."""
    frame: str
    """Its first bytes as they came, up to 128, in hexadecimal."""
    is_over: bool
    """Whether its end was seen; it may still wait for something."""
    length: int
    """Its length, link header included."""
    level: str
    """The level that treated it: `worker 0` is the first worker."""
    number: int
    """Its number in the trace, from 1."""
    port: str
    """The port that it came in by."""
    reason: str | None
    """Why it was dropped, if it was."""
    steps: list[TraceStepView]
    """Stage by stage."""
    time: str
    """When it came: date and time, UTC."""
    verdict: str
    """What became of it in the end."""


class TurnsView(TypedDict):
    """Rounds of the workers."""
    busy: int
    """Those that found packets."""
    empty: int
    """Those that found none."""
    longest_change: int
    """Microseconds of the longest one in which a worker was told of a change, or asked: packets waited for it as
    long."""


class Upgrade(TypedDict):
    """A plugin to be replaced by another version of itself."""
    accept_differences: NotRequired[bool]
    """Whether it takes the place although it treats packets differently."""
    allow_downgrade: NotRequired[bool]
    """Whether it takes the place also when it is signed and older than one that was loaded before."""
    file: str
    """The file of the new version."""
    shadow: NotRequired[int | None]
    """How many packets it is to be tried out on before."""
    without_state: NotRequired[bool]
    """Whether its instances begin without what the old ones know."""


UpgradeView: TypeAlias = 'dict[str, Any]'
"""What became of a plugin that was replaced by another version."""


class Who(TypedDict):
    """Who applied it, as the kernel says of the other end of the socket."""
    name: str
    """The user's name, or the number where it has none."""
    uid: int | None
    """The user's number; `None` for the router itself and for plugins."""


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
