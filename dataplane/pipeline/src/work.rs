//! A batch on its journey: the packets, and what the stages have found out about each.

use millrace_classify::{Candidate, FlowIndex};
use millrace_forward::{IcmpError, NO_ADJACENCY};
use millrace_packet::{BATCH_SIZE, Batch, DropReason, FlowKey};
use millrace_plugin::Ticket;
use millrace_plugin_abi::Verdict;
use millrace_units::{Amount, NextHopIndex, PathId, PortId};
use millrace_wire::MacAddr;
use std::net::{IpAddr, Ipv4Addr};

use crate::route::NO_ROUTE;

/// What is to become of a packet. Stages decide; [`dispose`](crate::router::Router) carries it out at the end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fate {
    /// It goes on, and in the end leaves by its `out_port`.
    Forward,
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped, and its source is told why.
    Refuse(IcmpError, DropReason),
    /// The kernel gets it, as received on its port.
    Host,
    /// The router's own stack gets it: it arrived on a port that has no kernel behind it.
    Own,
    /// It waits until the link address of this next hop at its `out_port` is known.
    Hold(IpAddr),
    /// A plugin has used it up.
    Consumed,
    /// It waits for a plugin.
    Kept(Ticket),
    /// It is classified anew.
    Again,
    /// It leaves by the route that is noted on it: a copy that a plugin sends.
    Resume,
    /// It goes to the queue of its `out_port` as the frame that it is.
    Queue,
    /// Another worker has it.
    HandedOver,
}

impl Fate {
    /// Whether later stages still have to look at the packet.
    #[inline]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Forward)
    }
}

/// What the parse stage reads beside the flow key: the fields that filters match and that vary inside a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Varying {
    /// TCP flags, where there are any.
    pub tcp_flags: Option<u8>,
    /// Differentiated services code point.
    pub dscp: u8,
}

/// A note on each packet of a batch. Its length is known when the stages are built, so an index below that is not checked again.
pub(crate) type Each<T> = Box<[T; BATCH_SIZE]>;

fn each<T: Copy>(note: T) -> Each<T> {
    Box::new([note; BATCH_SIZE])
}

/// The finished frames of a batch, as they are settled: by which port they leave, and what counts with which route.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// The port that the last of them leaves by; [`PortId::NONE`] before the first.
    port: PortId,
    /// Whether all leave by that.
    by_one: bool,
    /// The route that the last of them leaves by, and what counts with it so far.
    route: NextHopIndex,
    amount: Amount,
    /// What counts with the routes before.
    before: Vec<(NextHopIndex, Amount)>,
}

impl Default for Leaving {
    fn default() -> Self {
        Self {
            port: PortId::NONE,
            by_one: true,
            route: NO_ROUTE,
            amount: Amount::default(),
            before: Vec::with_capacity(BATCH_SIZE),
        }
    }
}

impl Leaving {
    /// Forgets the batch before.
    pub fn begin(&mut self) {
        (self.port, self.by_one, self.route) = (PortId::NONE, true, NO_ROUTE);
        self.amount = Amount::default();
        self.before.clear();
    }

    /// Frames leave by this port now.
    #[inline]
    pub fn turn_to(&mut self, port: PortId) {
        self.by_one &= self.port == PortId::NONE || self.port == port;
        self.port = port;
    }

    /// A frame of so many bytes leaves.
    #[inline(always)]
    pub fn add(&mut self, route: NextHopIndex, bytes: usize) {
        if route != self.route {
            self.turn_to_route(route);
        }
        self.amount += Amount::packet(bytes);
    }

    #[inline(never)]
    fn turn_to_route(&mut self, route: NextHopIndex) {
        let amount = std::mem::take(&mut self.amount);
        let before = std::mem::replace(&mut self.route, route);
        if amount.packets > 0 {
            self.before.push((before, amount));
        }
    }

    /// The port that all have left by, if there is one.
    pub fn port(&self) -> Option<PortId> {
        (self.by_one && self.port != PortId::NONE).then_some(self.port)
    }

    /// What counts with each route, those that packets in a row leave by.
    pub fn amounts(&self) -> impl Iterator<Item = (NextHopIndex, Amount)> {
        self.before.iter().copied().chain([(self.route, self.amount)])
    }
}

/// A batch and the stages' notes, index by index.
#[derive(Debug)]
pub struct Work {
    /// The packets.
    pub packets: Batch,
    /// Their flow keys; meaningless where the fate was settled before the parse stage.
    pub keys: Each<FlowKey>,
    /// Their hashes in the flow table.
    pub hashes: Each<u64>,
    /// Their flows, as far as they are known.
    pub flows: Each<Option<FlowIndex>>,
    /// Fields that vary inside a flow.
    pub varying: Each<Varying>,
    /// The instances bound to each.
    pub paths: Each<PathId>,
    /// Numbers of the adjacencies that are noted with their flows, [`NO_ADJACENCY`] where none is.
    pub adjacencies: Each<u32>,
    /// Numbers of the blocks of state of their flows, 0 for none.
    pub states: Each<u32>,
    /// Scratch for plugin calls, [`Verdict::Pass`] between them.
    pub verdicts: Each<Verdict>,
    /// What becomes of each.
    pub fates: Each<Fate>,
    /// The link address that each is sent to, if it is forwarded.
    pub destinations: Each<MacAddr>,
    /// The packets that the express way has left to the general one.
    pub(crate) left: Vec<u16>,
    /// What was settled as finished frames on the express way.
    pub(crate) leaving: Leaving,
}

impl Default for Work {
    fn default() -> Self {
        let key = FlowKey::v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, 0, (0, 0), PortId::NONE);
        Self {
            packets: Batch::new(),
            keys: each(key),
            hashes: each(0),
            flows: each(None),
            varying: each(Varying::default()),
            paths: each(PathId(0)),
            adjacencies: each(NO_ADJACENCY),
            states: each(0),
            verdicts: each(Verdict::Pass),
            fates: each(Fate::Forward),
            destinations: each(MacAddr::ZERO),
            left: Vec::with_capacity(BATCH_SIZE),
            leaving: Leaving::default(),
        }
    }
}

impl Work {
    /// Opens the fate of every packet.
    pub fn begin(&mut self) {
        let count = self.packets.len();
        self.fates[..count].fill(Fate::Forward);
        self.begin_classified(count);
    }

    /// Forgets what the stages from classify on have noted of so many packets.
    #[inline]
    pub fn begin_classified(&mut self, count: usize) {
        self.paths[..count].fill(PathId(0));
        self.adjacencies[..count].fill(NO_ADJACENCY);
        self.states[..count].fill(0);
    }

    /// A packet that was parsed, as filters see it.
    #[inline]
    pub fn candidate(&self, index: usize) -> Candidate {
        let (packet, varying) = (&self.packets[index], self.varying[index]);
        Candidate {
            key: self.keys[index],
            tcp_flags: varying.tcp_flags,
            tag: packet.tag,
            exceptions: packet.exceptions,
            dscp: varying.dscp,
        }
    }
}
