//! Bindings: what is done, at a gate, with the packets that a filter matches.

use std::fmt;
use std::net::IpAddr;
use std::ops::AddAssign;
use std::sync::Arc;

use millrace_plugin_abi::Position;
use millrace_units::{InstanceId, PortId, QueueAccount, QueueId};

use crate::Policer;
use crate::waiting::End;

/// A binding of an action, mostly an instance, to a filter at a gate, as workers know it. The control side gives the ids; one is used again
/// once its binding is gone, so people know bindings by [numbers](crate::Bound::number).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct BindingId(pub u32);

impl fmt::Display for BindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A port to leave by, and the neighbour there that gets the packets: their destination itself, unless it is given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Way {
    /// The port.
    pub port: PortId,
    /// The neighbour.
    pub via: Option<IpAddr>,
}

/// What is done with the packets that a filter matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// An instance handles them.
    Instance(InstanceId),
    /// They go on as if no filter of the gate matched.
    Accept,
    /// They are dropped.
    Drop,
    /// They are dropped, and their sources are told that it is prohibited.
    Reject,
    /// They are sent this way, whatever route there is; with several, by each: by the others as copies.
    Send(Arc<[Way]>),
    /// The host gets them.
    Host,
    /// Copies of them are sent this way.
    Copy(Arc<[Way]>),
    /// They wait in this queue of the port that they leave by; where it has none of that number, in its default one.
    Queue(QueueId),
    /// Those go on that find room in this token bucket; others are dropped.
    Police(Arc<Policer>),
}

impl Action {
    /// The positions at whose gates it can be bound; those of an instance are its plugin's.
    pub fn positions(&self) -> &'static [Position] {
        match self {
            Self::Instance(_) => &Position::ALL,
            Self::Accept => &[Position::Early, Position::Route, Position::Late, Position::Queue],
            Self::Drop | Self::Reject => &[Position::Early, Position::Route, Position::Late],
            Self::Send(_) | Self::Host => &[Position::Route],
            Self::Copy(_) => &[Position::Copy],
            Self::Queue(_) => &[Position::Early, Position::Late, Position::Queue],
            Self::Police(_) => &[Position::Early, Position::Late],
        }
    }

    /// Whether it takes the place of the route at the gates of that position.
    pub fn is_route(&self) -> bool {
        !matches!(self, Self::Instance(_) | Self::Accept)
    }

    /// The instance, if it is one.
    pub fn instance(&self) -> Option<InstanceId> {
        match self {
            Self::Instance(id) => Some(*id),
            _ => None,
        }
    }
}

/// What went through a binding since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BindingCounts {
    /// Packets that it was applied to.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
    /// Of these packets, those that it dropped.
    pub drops: u64,
    /// Of these packets, those that it consumed.
    pub consumed: u64,
    /// What of them, or what was made of them, went to queues.
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

/// The counts of some bindings.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BindingCountsPage {
    /// What went through each, by rising ids.
    pub counts: Vec<(BindingId, BindingCounts)>,
    /// Where the next ones begin; `None` at the end.
    pub next: Option<BindingId>,
}

impl BindingCounts {
    /// Counts how the journey of a packet ends there, if it does.
    #[inline]
    pub(crate) fn end(&mut self, end: Option<End>) {
        match end {
            Some(End::Drop(_)) => self.drops += 1,
            Some(End::Consume) => self.consumed += 1,
            Some(End::Classify) | None => {}
        }
    }
}

/// The filter table of a gate: finds the binding that a packet belongs to.
pub trait BindingTable: Default {
    /// A filter in the form that is matched.
    type Filter;
    /// What filters see of a packet.
    type Candidate;

    /// Adds a binding; of several that match, the higher priority wins, and then what the table's order says.
    fn insert(&mut self, filter: Self::Filter, priority: i32, binding: BindingId);

    /// Whether a filter has conditions on protocol, ports or flags, which a packet may hide. Without an answer of the table it has none.
    fn names_transport(filter: &Self::Filter) -> bool {
        let _ = filter;
        false
    }

    /// Removes a binding by its filter; does nothing when it is not there.
    fn remove(&mut self, filter: Self::Filter, binding: BindingId);

    /// The binding that wins for the packet.
    fn lookup(&self, candidate: &Self::Candidate) -> Option<BindingId>;

    /// The same for many packets, which may be faster: `found[i]` becomes that of `candidates[i]`. Both are of one length.
    fn lookup_batch(&self, candidates: &[Self::Candidate], found: &mut [Option<BindingId>]) {
        for (candidate, found) in candidates.iter().zip(found) {
            *found = self.lookup(candidate);
        }
    }

    /// The same for packets of which it is known what won at the gate before: `before[i]` for `candidates[i]` in the
    /// table `previous`.
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
