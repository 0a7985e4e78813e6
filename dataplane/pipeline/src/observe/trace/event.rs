//! Events of a packet's journey, of fixed size. They hold numbers in place of names.

use std::fmt;
use std::net::IpAddr;

use millrace_classify::Candidate;
use millrace_forward::IcmpError;
use millrace_packet::{DropReason, Packet};
use millrace_plugin::{BindingId, Direction, ProcessorWait};
use millrace_units::{GateId, Instant, PortId, PrincipalId, QueueId};
use millrace_wire::MacAddr;

/// First bytes of a frame, usually all headers.
#[derive(Clone, Copy)]
pub struct Head {
    length: u8,
    bytes: [u8; Self::MOST],
}

impl Head {
    /// Maximum number of bytes.
    pub const MOST: usize = 128;

    /// Head without bytes.
    pub(super) const NONE: Self = Self { length: 0, bytes: [0; Self::MOST] };

    /// Returns the first bytes of a packet.
    pub fn of(packet: &Packet) -> Self {
        let mut head = Self::NONE;
        head.take(packet);
        head
    }

    /// Overwrites the bytes with the first bytes of a packet.
    pub(super) fn take(&mut self, packet: &Packet) {
        let first = packet.data();
        self.length = match first.len() {
            // The common case: the first memory frame contains all bytes.
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

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or(&self.bytes)
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

/// Recorded step of a traced packet's journey.
#[derive(Debug)]
pub struct TraceEvent {
    /// Trace number of the packet, unique among the packets inside the router.
    pub mark: u16,
    /// Number of the worker.
    pub worker: u8,
    /// Start of the worker's iteration, by the worker's clock.
    pub at: Instant,
    /// Value of the processor's time-stamp counter; `None` if the processor has none.
    pub counter: Option<u64>,
    /// Cycles of the time-stamp counter since the previous step, without the cycles spent on writing events.
    pub cycles: Option<u64>,
    /// Step of the journey.
    pub step: TraceStep,
    /// First bytes of the frame, on arrival and departure only. Workers write them to a separate ring,
    /// because most events have none.
    pub head: Option<Box<Head>>,
}

impl TraceStep {
    /// Returns whether the first bytes of the packet are recorded with this step.
    pub(super) fn has_head(&self) -> bool {
        matches!(self, Self::Arrived(..) | Self::End(TraceEnd::Sent(..)))
    }
}

/// Result of a stage for a packet.
#[derive(Clone, Copy, Debug)]
pub enum TraceStep {
    /// The packet arrived at this port, with this length in bytes.
    Arrived(PortId, u32),
    /// This worker took the packet over from another worker: the one that received it, or the owner of its
    /// flow.
    TakenOver,
    /// The headers were parsed.
    Parsed(Candidate),
    /// The flow was looked up.
    Classified {
        /// Result of the lookup.
        found: FlowFound,
        /// Number of bindings on the path.
        bindings: u8,
        /// Whether the flow would be offloaded if no trace observed it.
        is_offloaded: bool,
    },
    /// A binding of the packet's path treated the packet at a gate.
    Gate {
        /// Gate.
        gate: GateId,
        /// Binding.
        binding: BindingId,
        /// Treatment of the packet.
        outcome: StageOutcome,
        /// Principal that is charged for the call, which ran in line.
        charged: Option<PrincipalId>,
    },
    /// Number of copies made of the packet.
    Copied(u32),
    /// The route was determined.
    Routed(RouteTaken),
    /// The packet is dropped, and its source should get this ICMP error.
    Refused(IcmpError),
    /// The packet exceeds the MTU of its egress port, and leaves in this number of fragments.
    Fragmented(u16),
    /// The packet entered the queue of a port.
    Queued {
        /// Egress port.
        port: PortId,
        /// Leaf of the scheduler that holds the packet; `None` without a scheduler.
        leaf: Option<QueueId>,
        /// Number of packets ahead of it in that leaf or queue.
        before: u32,
    },
    /// The packet was handed over to another worker.
    HandedOver,
    /// The packet waits.
    Waits(Waits),
    /// The packet continues after a wait, or is about to be classified again.
    GoesOn,
    /// The packet is classified again.
    Again,
    /// The journey of the packet, or of one of its fragments, has ended.
    End(TraceEnd),
}

/// Result of a flow lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowFound {
    /// The flow record was current.
    Hit,
    /// The flow record was older than a change that does not affect it.
    Checked,
    /// The flow record existed; its route was looked up again after a change.
    Rerouted,
    /// The flow record existed; path and route were looked up again after a change.
    Reclassified,
    /// No flow record existed.
    Miss,
    /// There was no lookup: the packet was dropped or punted before, or the router has no flow table.
    NotAsked,
}

/// Treatment of a packet by a binding of its path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum StageOutcome {
    /// The packet passes.
    Passed,
    /// The packet passes, and enters this queue of its egress port.
    Queue(QueueId),
    /// The packet passes, and an instance has directed it to a port.
    Sent(Direction),
    /// The packet is dropped.
    Dropped(DropReason),
    /// The packet is consumed by the instance.
    Consumed,
    /// The packet is kept by the instance.
    Kept,
    /// The packet is classified again.
    Again,
}

/// Route of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteTaken {
    /// The packet has no route.
    None,
    /// The route does not forward.
    Ends(RouteEnd),
    /// The packet is forwarded.
    Sent {
        /// Whether a filter or an instance determined the route instead of the FIB.
        by_filter: bool,
        /// Number of next hops of the route.
        hops: u8,
        /// Egress port.
        port: PortId,
        /// Neighbour that receives the packet.
        neighbour: IpAddr,
        /// Link address of the neighbour, if known.
        mac: Option<MacAddr>,
        /// Whether the packet took the fast path: its adjacency came from its flow record or its route
        /// number.
        noted: bool,
    },
    /// The kernel made the frame, and it leaves unchanged by this port.
    Framed(PortId),
}

/// Kind of a route that does not forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteEnd {
    /// A filter drops the packet.
    FilterDrop,
    /// A filter drops the packet, and the router sends its source an ICMP error.
    FilterReject,
    /// A filter delivers the packet to this host.
    FilterHost,
    /// The route of the FIB has this kind, such as blackhole.
    Fib(&'static str),
}

impl RouteEnd {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::FilterDrop => "drop",
            Self::FilterReject => "reject",
            Self::FilterHost => "host",
            Self::Fib(kind) => kind,
        }
    }

    /// Returns whether a filter chose the route.
    pub fn is_filter(self) -> bool {
        !matches!(self, Self::Fib(_))
    }
}

/// Reason of a packet's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// The MAC address of this neighbour at this port is unknown.
    Neighbour(PortId, IpAddr),
    /// An instance keeps the packet.
    Instance,
    /// The packet waits for the processor.
    Processor(ProcessorWait),
}

/// End of a packet's journey.
#[derive(Clone, Copy, Debug)]
pub enum TraceEnd {
    /// The device of a port accepted the packet, with this length in bytes.
    Sent(PortId, u32),
    /// The packet was dropped.
    Dropped(DropReason),
    /// The kernel accepted the packet.
    Host,
    /// The router's own stack received the packet.
    Own,
    /// A plugin consumed the packet.
    Consumed,
}
