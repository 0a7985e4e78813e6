//! Levels of flows, placements of flows, and reasons why flows stay at a worker.

use millrace_classify::CompiledSelection;
use millrace_packet::FlowKey;
use millrace_plugin::OffloadRefusal;
use millrace_units::PortId;

/// Level that a placement may assign to flows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// XDP program of the ingress port.
    Offload,
    /// Worker.
    Worker,
}

/// Placement of flows at a level.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Selection of the flows. A flow is placed if some of its packets may match.
    pub flows: CompiledSelection,
    /// Level of the flows.
    pub level: Level,
}

/// List of placements; the first one that matches a flow applies.
#[derive(Debug, Default)]
pub(crate) struct Placements(Vec<Placement>);

impl Placements {
    pub fn new(placements: Vec<Placement>) -> Self {
        Self(placements)
    }

    /// Returns whether there is no placement.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the level of a flow's placement; `None` without one.
    pub fn of(&self, key: &FlowKey) -> Option<Level> {
        self.0.iter().find(|one| one.flows.may_match_flow(key)).map(|one| one.level)
    }
}

/// Reason why a flow stays at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StaysUp {
    /// The router itself makes the packets.
    Own,
    /// A placement keeps the flow at the worker.
    Placed,
    /// The router has no flow cache.
    NoCache,
    /// A capture records packets of the flow.
    Captured,
    /// A trace observes the flow.
    Traced,
    /// The XDP program of the ingress port doesn't look up flows.
    Arrival(PortId),
    /// The XDP program can't send out of the egress port.
    Departure(PortId),
    /// The egress port of the flow is its ingress port.
    SamePort,
    /// A scheduler at the given egress port decides when the packets leave.
    Scheduler(PortId),
    /// The port has a VLAN tag.
    Tagged(PortId),
    /// The port is down.
    Down(PortId),
    /// A filter distinguishes packets of the flow by varying fields.
    Varying,
    /// A filter on the path has an action that only a worker supports.
    Path(OffloadRefusal),
    /// The treatment exceeds the instruction budget of the XDP program.
    Budget,
    /// A filter prescribes the route.
    Sent,
    /// The flow is not forwarded.
    NotForwarded,
    /// The MAC address of the neighbour is unknown.
    Neighbour,
    /// The protocol is neither TCP nor UDP nor ICMP.
    Protocol,
    /// The flow had too many upcalls while it was offloaded.
    ComesUp,
    /// The flow cache has no room for the flow or its token bucket.
    Full,
    /// The flow can be offloaded, but has no entry yet, because it has few packets so far or a change has
    /// just ended its entry.
    Soon,
}
