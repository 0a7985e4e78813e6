//! What is written down of a packet's journey: events of fixed size, without names.

use std::fmt;
use std::net::IpAddr;

use millrace_classify::Candidate;
use millrace_forward::IcmpError;
use millrace_packet::{DropReason, Packet};
use millrace_plugin::{BindingId, Direction};
use millrace_units::{GateId, Instant, PortId, QueueId};
use millrace_wire::MacAddr;

/// First bytes of a frame: the headers, as a rule.
#[derive(Clone, Copy)]
pub struct Head {
    length: u8,
    bytes: [u8; Self::MOST],
}

impl Head {
    /// Bytes that are kept at most.
    pub const MOST: usize = 128;

    /// None.
    pub(super) const NONE: Self = Self { length: 0, bytes: [0; Self::MOST] };

    /// Those of a packet.
    pub fn of(packet: &Packet) -> Self {
        let mut head = Self::NONE;
        head.take(packet);
        head
    }

    /// Takes those of a packet in place of what is here.
    pub(super) fn take(&mut self, packet: &Packet) {
        let first = packet.data();
        self.length = match first.len() {
            // As most: in one frame, or all of it in the first.
            length if length >= Self::MOST || packet.is_linear() => {
                let length = length.min(Self::MOST);
                if let (Some(place), Some(bytes)) = (self.bytes.get_mut(..length), first.get(..length)) {
                    place.copy_from_slice(bytes);
                }
                length as u8
            }
            _ => packet.read(0, &mut self.bytes) as u8,
        };
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or(&self.bytes)
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

/// One step of the journey of a packet.
#[derive(Debug)]
pub struct TraceEvent {
    /// The packet's number: no two packets inside at a time have the same.
    pub mark: u16,
    /// The number of the worker.
    pub worker: u8,
    /// When its turn began, by the worker's clock.
    pub at: Instant,
    /// The processor's time-stamp counter; `None` where there is none.
    pub counter: Option<u64>,
    /// Cycles of that counter since the step before, without those of writing it down.
    pub cycles: Option<u64>,
    /// What happened.
    pub step: TraceStep,
    /// How its frame began when it came in, or left. Workers write these apart: most events have none, and are short so.
    pub head: Option<Box<Head>>,
}

impl TraceStep {
    /// Whether the first bytes of the packet are written down with it.
    pub(super) fn has_head(&self) -> bool {
        matches!(self, Self::Arrived(..) | Self::End(TraceEnd::Sent(..)))
    }
}

/// What happened to a packet at a stage.
#[derive(Clone, Copy, Debug)]
pub enum TraceStep {
    /// It came in by a port, so long.
    Arrived(PortId, u32),
    /// The worker took it over from the one that received it, or that its flow belongs to.
    TakenOver,
    /// Its headers were read.
    Parsed(Candidate),
    /// Its flow was looked up.
    Classified {
        /// How it was found.
        found: FlowFound,
        /// Bindings of its path.
        bindings: u8,
        /// Whether the driver forwards its flow while it is not traced.
        in_driver: bool,
    },
    /// A stage of its path treated it.
    Gate(GateId, BindingId, StageOutcome),
    /// Copies were made of it.
    Copied(u32),
    /// It was decided where it leaves.
    Routed(RouteTaken),
    /// It is dropped, and its source is to be told.
    Refused(IcmpError),
    /// It is longer than the MTU of the port, so it leaves in fragments.
    Fragmented(u16),
    /// It came to the queue of a port.
    Queued {
        /// The port.
        port: PortId,
        /// The leaf of the scheduler; `None` where there is none.
        leaf: Option<QueueId>,
        /// Packets that waited there before it.
        before: u32,
    },
    /// Another worker goes on with it.
    HandedOver,
    /// It waits.
    Waits(Waits),
    /// It goes on after it has waited.
    GoesOn,
    /// It is classified anew.
    Again,
    /// Its journey is over, or that of one of its fragments.
    End(TraceEnd),
}

/// How a packet found its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowFound {
    /// It was known.
    Hit,
    /// It was known; since then something has changed, which does not concern it.
    Checked,
    /// It was known; its route was looked up anew after a change.
    Rerouted,
    /// It was known; all was looked up anew after a change.
    Reclassified,
    /// It was not known.
    Miss,
    /// It was dropped or taken elsewhere before, or no flows are remembered.
    NotAsked,
}

/// What came of a stage of a path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum StageOutcome {
    /// The packet goes on.
    Passed,
    /// It goes on, and waits in this queue later.
    Queue(QueueId),
    /// It goes on, and is sent there.
    Sent(Direction),
    /// It is dropped.
    Dropped(DropReason),
    /// It is used up.
    Consumed,
    /// It is kept.
    Kept,
    /// It is classified anew.
    Again,
}

/// Where a packet leaves.
#[derive(Clone, Copy, Debug)]
pub enum RouteTaken {
    /// There is no route.
    None,
    /// It ends at a route of this kind, of the table or of a filter.
    Ends(&'static str),
    /// It is sent on.
    Sent {
        /// Whether a filter or an instance says so, not the route table.
        by_filter: bool,
        /// How many next hops the route has.
        hops: u8,
        /// The port.
        port: PortId,
        /// The neighbour that gets it.
        neighbour: IpAddr,
        /// Its link address, where it is known.
        mac: Option<MacAddr>,
        /// Whether the way was taken as it is noted with the flow, without looking it up.
        noted: bool,
    },
    /// It leaves as the frame that the kernel made, by this port.
    Framed(PortId),
}

/// What a packet waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// The link address of this neighbour at a port.
    Neighbour(PortId, IpAddr),
    /// An instance.
    Instance,
}

/// How a journey ends.
#[derive(Clone, Copy, Debug)]
pub enum TraceEnd {
    /// A port's device was given it, so long.
    Sent(PortId, u32),
    /// It was dropped.
    Dropped(DropReason),
    /// The kernel gets it.
    Host,
    /// The router's own stack got it.
    Own,
    /// A plugin used it up.
    Consumed,
}
