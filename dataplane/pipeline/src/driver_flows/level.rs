//! At which level a flow is, and why it is not lower: for who places flows, and for people.

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

/// A wish where flows are to be.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The flows: those of which some packet may match.
    pub flows: CompiledSelection,
    /// Where.
    pub level: Level,
}

/// Wishes, of which the first that concerns a flow counts. There are few.
#[derive(Debug, Default)]
pub(crate) struct Placements(Vec<Placement>);

impl Placements {
    pub fn new(placements: Vec<Placement>) -> Self {
        Self(placements)
    }

    /// Whether nothing is said of any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where a flow is to be; `None` where nothing is said of it.
    pub fn of(&self, key: &FlowKey) -> Option<Level> {
        self.0.iter().find(|one| one.flows.may_match_flow(key)).map(|one| one.level)
    }
}

/// Why a flow is at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StaysUp {
    /// The router itself makes its packets.
    Own,
    /// It was placed there.
    Placed,
    /// There is no flow cache.
    NoCache,
    /// Somebody captures, and sees every packet.
    Captured,
    /// A trace asks for it.
    Traced,
    /// The driver of the port that it comes in by looks no flows up.
    Arrival(PortId),
    /// The driver can't send by the port that it leaves by.
    Departure(PortId),
    /// It leaves by the port that it comes in by.
    SamePort,
    /// A scheduler decides when its packets leave by this port.
    Scheduler(PortId),
    /// The port has a tag.
    Tagged(PortId),
    /// The port is down.
    Down(PortId),
    /// A filter tells its packets apart by fields that vary.
    Varying,
    /// A filter has its packets treated by something that is a worker's.
    Form(DriverRefusal),
    /// Its treatment takes more instructions than a program in the driver has for a packet.
    Budget,
    /// A filter sends it somewhere.
    Sent,
    /// It is not forwarded.
    NotForwarded,
    /// Its neighbour is not known.
    Neighbour,
    /// It is neither TCP, nor UDP, nor ICMP.
    Protocol,
    /// The driver had it, and could not treat its packets: they came up.
    ComesUp,
    /// There is no place left for its token bucket, or it.
    Full,
    /// It may go down, and has not yet: few packets came so far, or something has just changed.
    Soon,
}
