//! Bindings of actions to filters at gates.

use std::fmt;
use std::net::IpAddr;
use std::ops::AddAssign;
use std::sync::Arc;

use millrace_plugin_abi::Position;
use millrace_units::{InstanceId, PortId, PrincipalId, QueueAccount, QueueId};

use crate::Policer;
use crate::execution::waiting::End;

/// Identifier of a binding at the workers.
///
/// A binding connects an action, usually an instance, with a filter at a gate. Control assigns the ids, and a
/// new binding may get the id of a removed one. Therefore users see binding [numbers](crate::Bound::number)
/// instead, which are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct BindingId(pub u32);

impl fmt::Display for BindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Egress port of a packet, with an optional next hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Way {
    /// Egress port.
    pub port: PortId,
    /// Address of the next hop; `None` if the packet goes directly to its destination address.
    pub via: Option<IpAddr>,
}

/// Action on the packets that a filter matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// An instance handles the packets.
    Instance(InstanceId),
    /// The packets continue as if no filter of the gate matched.
    Accept,
    /// The worker drops the packets.
    Drop,
    /// The worker drops the packets and sends their sources an ICMP "prohibited" error.
    Reject,
    /// The worker sends the packets to the first port, whatever their route, and copies of them to the other
    /// ports.
    Send(Arc<[Way]>),
    /// The worker punts the packets to the kernel.
    Host,
    /// The worker sends copies of the packets to these ports.
    Copy(Arc<[Way]>),
    /// The packets wait in this queue of their egress port, or in the default queue if the port lacks it.
    Queue(QueueId),
    /// The worker drops the packets that exceed this token bucket; the others continue.
    Police(Arc<Policer>),
    /// The path gets this principal. Who pays for it, and its queue, are in the call limits of the filter.
    Principal(PrincipalId),
}

impl Action {
    /// Returns the positions whose gates accept a binding with this action. If the action is an instance, its
    /// plugin may support only some of these positions.
    pub fn positions(&self) -> &'static [Position] {
        match self {
            Self::Instance(_) => &Position::ALL,
            Self::Accept => &[Position::Early, Position::Route, Position::Late, Position::Queue],
            Self::Drop | Self::Reject => &[Position::Early, Position::Route, Position::Late],
            Self::Send(_) | Self::Host => &[Position::Route],
            Self::Copy(_) => &[Position::Copy],
            Self::Queue(_) | Self::Principal(_) => &[Position::Early, Position::Late, Position::Queue],
            Self::Police(_) => &[Position::Early, Position::Late],
        }
    }

    /// Whether the action can be bound at gates of the position `route`, where it replaces the route.
    pub fn is_route(&self) -> bool {
        !matches!(self, Self::Instance(_) | Self::Accept)
    }

    /// Returns the instance if the action is an instance.
    pub fn instance(&self) -> Option<InstanceId> {
        match self {
            Self::Instance(id) => Some(*id),
            _ => None,
        }
    }
}

/// Packet counts of a binding since its creation or the last reset.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BindingCounts {
    /// Packets that the binding was applied to.
    pub packets: u64,
    /// Bytes of these packets, link headers included.
    pub bytes: u64,
    /// Number of these packets that the binding dropped.
    pub drops: u64,
    /// Number of these packets that the binding consumed.
    pub consumed: u64,
    /// Queue account of these packets, and of the copies and fragments made from them.
    pub queues: QueueAccount,
}

impl AddAssign for BindingCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { packets, bytes, drops, consumed, queues } = other;
        self.packets += packets;
        self.bytes += bytes;
        self.drops += drops;
        self.consumed += consumed;
        self.queues += queues;
    }
}

/// Part of the list of all binding counts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BindingCountsPage {
    /// Counts of the bindings in this page, in ascending order of ids.
    pub counts: Vec<(BindingId, BindingCounts)>,
    /// First binding of the next page; `None` on the last page.
    pub next: Option<BindingId>,
}

impl BindingCounts {
    /// Counts the end of a packet's journey if `end` is a drop or a consumption.
    #[inline]
    pub(crate) fn end(&mut self, end: Option<End>) {
        match end {
            Some(End::Drop(_) | End::Reject) => self.drops += 1,
            Some(End::Consume) => self.consumed += 1,
            Some(End::Classify) | None => {}
        }
    }
}

/// Filter table of a gate: finds the binding with the winning filter for a packet.
pub trait BindingTable: Default {
    /// Compiled filter.
    type Filter;
    /// Packet fields that filters match.
    type Candidate;

    /// Adds a binding, or changes the priority of the binding if the table has it with this filter. Among several matching
    /// bindings, the highest priority wins. The table decides between equal priorities.
    fn insert(&mut self, filter: Self::Filter, priority: i32, binding: BindingId);

    /// Whether a filter has conditions on protocol, ports or flags. A packet could hide these fields, for
    /// example by fragmentation. The default is `false`.
    fn names_transport(filter: &Self::Filter) -> bool {
        let _ = filter;
        false
    }

    /// Removes a binding by its filter. Does nothing if the table lacks the binding.
    fn remove(&mut self, filter: Self::Filter, binding: BindingId);

    /// Returns the binding that wins for the packet; `None` if no filter matches.
    fn lookup(&self, candidate: &Self::Candidate) -> Option<BindingId>;

    /// Looks up many packets: sets `found[i]` to the binding of `candidates[i]`. Both slices have the same
    /// length. A table may do this faster than single lookups.
    fn lookup_batch(&self, candidates: &[Self::Candidate], found: &mut [Option<BindingId>]) {
        for (candidate, found) in candidates.iter().zip(found) {
            *found = self.lookup(candidate);
        }
    }

    /// Looks up many packets like [`lookup_batch`](Self::lookup_batch), with their results at the previous
    /// gate: `before[i]` is the binding that `candidates[i]` has in the table `previous`.
    fn lookup_batch_behind(
        &self,
        previous: &Self,
        before: &[Option<BindingId>],
        candidates: &[Self::Candidate],
        found: &mut [Option<BindingId>],
    ) {
        let _ = (previous, before);
        self.lookup_batch(candidates, found);
    }
}
