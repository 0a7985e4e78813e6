//! Packets of a call, and the verdicts that the instance gives.

use std::fmt;
use std::ops::Range;

use millrace_packet::{FlowKey, Packet};
use millrace_units::{InstanceId, Instant, PortId, QueueId};

use crate::{Backlog, Known, PacketConnection};

/// Verdict of an instance about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// The packet continues on its path.
    #[default]
    Pass,
    /// The router drops the packet. The number, 0 to [`MOST_REASON`](Self::MOST_REASON), is a drop reason
    /// whose meaning the plugin defines. The router counts the instance's drops by reason.
    Drop(u8),
    /// The router drops the packet, and sends an ICMP error to its source: communication administratively
    /// prohibited. The number is a drop reason as with [`Drop`](Self::Drop). A copy is dropped without an
    /// error.
    Reject(u8),
    /// The instance has consumed the packet, and the router counts it as consumed.
    Consume,
    /// The packet waits until this time, and then continues. At copy gates the copy is consumed at once.
    Hold(Instant),
    /// The packet continues, and the router sends it out of this port, whatever its route. At copy gates the
    /// router sends the copy out of this port. At gates of the position `queue` this verdict is a fault,
    /// because the egress port is already chosen.
    Port(PortId),
    /// The packet continues, and the router sends it out of each port below 64 whose bit is set; all ports
    /// but the first get copies. A set without bits is a fault.
    Ports(u64),
    /// The packet continues, and enters this queue of its egress port, or the default queue if the port has
    /// no such queue. At copy gates the copy is consumed.
    Queue(QueueId),
    /// The given instance processes the packet next. Then the packet continues after the instance that gave
    /// the verdict.
    Instance(InstanceId),
    /// The router classifies the packet again, with its current tag. At copy gates the copy is consumed.
    Classify,
    /// The instance failed at this packet. The call limits of the instance's binding decide about the packet.
    Fault,
}

impl Verdict {
    /// Largest number of a drop reason.
    pub const MOST_REASON: u8 = 31;
}

/// Flow states of all flows at a worker, in blocks numbered from 1.
pub trait FlowStates {
    /// Returns the block with this number; `None` if it doesn't exist.
    fn block(&mut self, number: u32) -> Option<&mut [u8]>;
}

/// Flow states of the packets of a call.
struct States<'a> {
    of_all: &'a mut dyn FlowStates,
    /// Number of the state block of each packet's flow; 0 without state.
    numbers: &'a [u32],
    /// Offset of the instance's part in a block, in bytes.
    offset: usize,
    /// Size of the instance's part, in bytes.
    bytes: usize,
}

impl fmt::Debug for States<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States")
            .field("offset", &self.offset)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Packets of a call of an instance. They belong to flows that the instance is bound to.
#[derive(Debug)]
pub struct Packets<'a> {
    packets: &'a mut [Packet],
    keys: &'a [FlowKey],
    members: &'a [u16],
    verdicts: &'a mut [Verdict],
    states: Option<States<'a>>,
    known: Option<Known<'a>>,
    connections: &'a [PacketConnection],
    copies: bool,
    untouched: bool,
}

impl<'a> Packets<'a> {
    /// Selects the packets of a batch whose indices are `members`. `keys` and `verdicts` have the same
    /// indices as `packets`. Each verdict must be [`Verdict::Pass`].
    ///
    /// # Panics
    /// Later methods panic if a member is not a valid index of all three.
    pub fn new(
        packets: &'a mut [Packet],
        keys: &'a [FlowKey],
        members: &'a [u16],
        verdicts: &'a mut [Verdict],
    ) -> Self {
        Self {
            packets,
            keys,
            members,
            verdicts,
            states: None,
            known: None,
            connections: &[],
            copies: false,
            untouched: true,
        }
    }

    /// Adds the flow states. `numbers` holds the state block of each packet, by packet index. The instance's
    /// part of a block has `bytes` bytes from `offset` on. The byte at `offset` - 8 belongs to
    /// [`is_first`](Self::is_first): it records whether the instance has seen the flow.
    #[must_use]
    pub fn with_states(
        mut self,
        of_all: &'a mut dyn FlowStates,
        numbers: &'a [u32],
        offset: usize,
        bytes: usize,
    ) -> Self {
        self.states = Some(States { of_all, numbers, offset, bytes });
        self
    }

    /// Adds the connection of each packet, by packet index.
    #[must_use]
    pub fn with_connections(mut self, connections: &'a [PacketConnection]) -> Self {
        self.connections = connections;
        self
    }

    /// Adds the backlog information of the call.
    #[must_use]
    pub fn with_known(mut self, known: Known<'a>) -> Self {
        self.known = Some(known);
        self
    }

    /// Sets whether the packets are copies.
    #[must_use]
    pub fn as_copies(mut self, copies: bool) -> Self {
        self.copies = copies;
        self
    }

    /// Returns whether the packets are copies. The router sends a copy with the verdict [`Verdict::Port`] or
    /// [`Verdict::Ports`]; with any other verdict the copy is consumed.
    #[inline]
    pub fn are_copies(&self) -> bool {
        self.copies
    }

    /// Returns the flow state of the packet at an index below [`len`](Self::len), with the size of
    /// [`Instance::flow_state`](crate::Instance::flow_state). It is zeroed at first, and shared by the
    /// packets of the flow, or of the connection. Returns `None` if the instance has no flow state, or if no memory was left for
    /// it.
    #[inline]
    pub fn state_mut(&mut self, place: usize) -> Option<&mut [u8]> {
        let number = self.flow_number(place);
        let States { of_all, offset, bytes, .. } = self.states.as_mut()?;
        of_all.block(number)?.get_mut(*offset..*offset + *bytes)
    }

    /// Returns whether the packet at an index below [`len`](Self::len) is the first of its flow for which
    /// this method is called. Always `false` without flow state.
    #[inline]
    pub fn is_first(&mut self, place: usize) -> bool {
        let number = self.flow_number(place);
        let Some(States { of_all, offset, .. }) = self.states.as_mut() else { return false };
        let seen = offset.checked_sub(8).and_then(|at| of_all.block(number)?.get_mut(at));
        seen.is_some_and(|seen| std::mem::replace(seen, 1) == 0)
    }

    /// Returns a flow number for the packet at an index. It stays the same while the router keeps state for
    /// the flow; 0 without state.
    #[inline]
    pub fn flow_number(&self, place: usize) -> u32 {
        let Some(states) = &self.states else { return 0 };
        states.numbers.get(usize::from(self.members[place])).copied().unwrap_or(0)
    }

    /// Returns whether the packets come with their connections.
    #[inline]
    pub fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Returns the connection of the packet at an index below [`len`](Self::len), if the instance's state has the scope
    /// [`Connection`](crate::StateScope::Connection).
    #[inline]
    pub fn connection(&self, place: usize) -> PacketConnection {
        let index = self.members.get(place).map_or(usize::MAX, |member| usize::from(*member));
        self.connections.get(index).copied().unwrap_or_default()
    }

    /// Returns the backlog of the packet at an index below [`len`](Self::len).
    ///
    /// # Panics
    /// Panics if the index is out of range.
    pub fn backlog(&self, place: usize) -> Backlog {
        let packet = &self.packets[usize::from(self.members[place])];
        let Some(Known { queues, waiting: (instance_packets, instance_bytes), payer }) = self.known else {
            return Backlog::default();
        };
        Backlog { queue: queues.of(packet), instance_packets, instance_bytes, payer }
    }

    /// Returns the maximum number of passes of the packets. The passes of a packet count how often the packet
    /// itself, and packets that led to it, were classified again or made by plugins.
    pub fn passes(&self) -> u8 {
        let passes = |member: &u16| self.packets[usize::from(*member)].passes;
        self.members.iter().map(passes).max().unwrap_or(0)
    }

    /// Returns the number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether there are no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the flow key and the packet at an index below [`len`](Self::len).
    ///
    /// # Panics
    /// Panics if the index is out of range.
    #[inline]
    pub fn get_mut(&mut self, place: usize) -> (&FlowKey, &mut Packet) {
        self.untouched = false;
        let index = usize::from(self.members[place]);
        (&self.keys[index], &mut self.packets[index])
    }

    /// Calls `look` with the flow key and packet of each index in `places`, and with the next element of
    /// `things`. Stops at the end of `things`. Stores the verdict that `look` returns; with `None`, the
    /// packet's verdict stays as it is.
    ///
    /// # Panics
    /// Panics if an index is out of range.
    #[inline]
    pub fn look_at<T>(
        &mut self,
        places: Range<usize>,
        things: impl Iterator<Item = T>,
        mut look: impl FnMut(&FlowKey, &mut Packet, T) -> Option<Verdict>,
    ) {
        self.untouched = false;
        // If the slices have the same length, the compiler needs only one bounds check per index.
        let known = self.packets.len().min(self.keys.len()).min(self.verdicts.len());
        let (keys, packets) = (&self.keys[..known], &mut self.packets[..known]);
        let verdicts = &mut self.verdicts[..known];
        for (member, thing) in self.members[places].iter().zip(things) {
            let index = usize::from(*member);
            if let Some(verdict) = look(&keys[index], &mut packets[index], thing) {
                verdicts[index] = verdict;
            }
        }
    }

    /// Sets the verdict of the packet at an index below [`len`](Self::len).
    ///
    /// # Panics
    /// Panics if the index is out of range.
    #[inline]
    pub fn set_verdict(&mut self, place: usize, verdict: Verdict) {
        self.untouched = false;
        self.verdicts[usize::from(self.members[place])] = verdict;
    }

    /// Returns whether the instance has accessed no packet. If so, each packet passes unchanged.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// Calls `decide` with the flow key and bytes of each packet, and stores the verdict that it returns.
    #[inline]
    pub fn for_each(&mut self, mut decide: impl FnMut(&FlowKey, &mut Packet) -> Verdict) {
        self.untouched = false;
        for member in self.members {
            let index = usize::from(*member);
            let verdict = decide(&self.keys[index], &mut self.packets[index]);
            self.verdicts[index] = verdict;
        }
    }
}
