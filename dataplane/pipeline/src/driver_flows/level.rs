//! Levels of flows, their placements, and the reasons that keep flows at a worker.

use millrace_classify::CompiledSelection;
use millrace_packet::FlowKey;
use millrace_plugin::DriverRefusal;
use millrace_units::PortId;

/// A level that flows can be placed at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// In the driver.
    Driver,
    /// At a worker.
    Worker,
}

/// Placement of flows at a level.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Selection of the flows; a flow is placed if some packet of it may match.
    pub flows: CompiledSelection,
    /// Level of the flows.
    pub level: Level,
}

/// A few placements; the first one that concerns a flow counts.
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

/// Reason that keeps a flow at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StaysUp {
    /// The router itself makes its packets.
    Own,
    /// It was placed there.
    Placed,
    /// There is no flow cache.
    NoCache,
    /// A capture sees each of its packets.
    Captured,
    /// A trace observes it.
    Traced,
    /// The XDP program of the ingress port looks no flows up.
    Arrival(PortId),
    /// The XDP program can't send by the egress port.
    Departure(PortId),
    /// It leaves by its ingress port.
    SamePort,
    /// A scheduler decides when its packets leave by this port.
    Scheduler(PortId),
    /// The port has a tag.
    Tagged(PortId),
    /// The port is down.
    Down(PortId),
    /// A filter tells its packets apart by fields that vary.
    Varying,
    /// A filter on its path has an action that only a worker has.
    Form(DriverRefusal),
    /// Its treatment takes more instructions than a program in the driver has for a packet.
    Budget,
    /// A filter determines its route.
    Sent,
    /// It is not forwarded.
    NotForwarded,
    /// Its neighbour is not known.
    Neighbour,
    /// It is neither TCP, nor UDP, nor ICMP.
    Protocol,
    /// It had many upcalls while it was offloaded.
    ComesUp,
    /// The flow cache has no room for the flow or its token bucket.
    Full,
    /// It can be offloaded, and has no entry yet: it has few packets so far, or a change has just ended its entry.
    Soon,
}
