//! The packets of a call, and what the instance decides for each.

use std::fmt;
use std::ops::Range;

use millrace_packet::{FlowKey, Packet};
use millrace_units::{InstanceId, Instant, PortId, QueueId};

use crate::{Backlog, Known};

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// It goes on.
    #[default]
    Pass,
    /// It is dropped, for a reason of the plugin's own, 0 to [`MOST_REASON`](Self::MOST_REASON), and counted for the instance
    /// by that.
    Drop(u8),
    /// The instance has used it up; it is counted as consumed.
    Consume,
    /// It goes on at this time. At gates of the position `copy` it is used up at once.
    Hold(Instant),
    /// It goes on, and leaves by this port, whatever its route. At gates of the position `copy` the copy is sent there, and
    /// at those of the position `queue` it is a fault: the way is chosen by then.
    Port(PortId),
    /// The same for each port below 64 whose bit is set: the others get copies. No bit is a fault.
    Ports(u64),
    /// It goes on, and waits in the queue of this number at the port that it leaves by; where that has none of the number, in
    /// its default queue. At gates of the position `copy` the copy is used up.
    Queue(QueueId),
    /// This instance gets it next, and then it goes on behind the one that says so.
    Instance(InstanceId),
    /// It is classified anew, with the tag that it has now. At gates of the position `copy` it is used up.
    Classify,
    /// The instance failed at it: its binding says what becomes of it.
    Fault,
}

impl Verdict {
    /// The greatest reason to drop a packet.
    pub const MOST_REASON: u8 = 31;
}

/// State of flows, in blocks that have numbers from 1 on.
pub trait FlowStates {
    /// The block of a number; `None` when there is none.
    fn block(&mut self, number: u32) -> Option<&mut [u8]>;
}

/// Where the state of the flows of a call is.
struct States<'a> {
    of_all: &'a mut dyn FlowStates,
    /// The number of the block of each packet's flow, 0 for none.
    numbers: &'a [u32],
    /// Where in a block the instance's part begins, and its bytes.
    offset: usize,
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

/// Packets handed to an instance in one call: they belong to flows that the instance is bound to.
#[derive(Debug)]
pub struct Packets<'a> {
    packets: &'a mut [Packet],
    keys: &'a [FlowKey],
    members: &'a [u16],
    verdicts: &'a mut [Verdict],
    states: Option<States<'a>>,
    known: Option<Known<'a>>,
    copies: bool,
    untouched: bool,
}

impl<'a> Packets<'a> {
    /// The packets of a batch whose indices are `members`. `keys` and `verdicts` go by the same indices; the verdicts are
    /// [`Verdict::Pass`] so far.
    ///
    /// # Panics
    /// Later, when a member is not an index into all three.
    pub fn new(
        packets: &'a mut [Packet],
        keys: &'a [FlowKey],
        members: &'a [u16],
        verdicts: &'a mut [Verdict],
    ) -> Self {
        Self { packets, keys, members, verdicts, states: None, known: None, copies: false, untouched: true }
    }

    /// The same packets with the state of their flows: `numbers` of blocks go by the indices of the packets, and the
    /// instance's part of a block has `bytes` bytes from `offset` on. The byte at `offset` - 8 says whether the instance
    /// has seen the flow: it is [`is_first`](Self::is_first)'s.
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

    /// The same packets, of whose backlogs something is known.
    #[must_use]
    pub fn with_known(mut self, known: Known<'a>) -> Self {
        self.known = Some(known);
        self
    }

    /// The same packets, which are copies, or not.
    #[must_use]
    pub fn as_copies(mut self, copies: bool) -> Self {
        self.copies = copies;
        self
    }

    /// Whether they are copies: those are sent where [`Verdict::Port`] and [`Verdict::Ports`] say, and used up otherwise.
    #[inline]
    pub fn are_copies(&self) -> bool {
        self.copies
    }

    /// The state that the instance keeps for the flow of the packet at a place below [`len`](Self::len): as many bytes as
    /// [`Instance::flow_state`](crate::Instance::flow_state) says, zeros at first. Packets of a flow have the same. `None`
    /// where it keeps none, or there was no memory for it.
    #[inline]
    pub fn state_mut(&mut self, place: usize) -> Option<&mut [u8]> {
        let number = self.flow_number(place);
        let States { of_all, offset, bytes, .. } = self.states.as_mut()?;
        of_all.block(number)?.get_mut(*offset..*offset + *bytes)
    }

    /// Whether the packet at a place below [`len`](Self::len) is the first of its flow that the instance asks this of. Where it keeps
    /// no state for flows, none is.
    #[inline]
    pub fn is_first(&mut self, place: usize) -> bool {
        let number = self.flow_number(place);
        let Some(States { of_all, offset, .. }) = self.states.as_mut() else { return false };
        let seen = offset.checked_sub(8).and_then(|at| of_all.block(number)?.get_mut(at));
        seen.is_some_and(|seen| std::mem::replace(seen, 1) == 0)
    }

    /// A number that the flow of the packet at a place has as long as the router keeps state for it; 0 where it keeps none.
    #[inline]
    pub fn flow_number(&self, place: usize) -> u32 {
        let Some(states) = &self.states else { return 0 };
        states.numbers.get(usize::from(self.members[place])).copied().unwrap_or(0)
    }

    /// What waits before the packet at a place below [`len`](Self::len).
    ///
    /// # Panics
    /// When there is no such place.
    pub fn backlog(&self, place: usize) -> Backlog {
        let packet = &self.packets[usize::from(self.members[place])];
        let Some(Known { queues, waiting: (instance_packets, instance_bytes) }) = self.known else {
            return Backlog::default();
        };
        Backlog { queue: queues.of(packet), instance_packets, instance_bytes }
    }

    /// How often those of them were sent back to classification, or made by plugins, of which that is the most.
    pub fn passes(&self) -> u8 {
        let passes = |member: &u16| self.packets[usize::from(*member)].passes;
        self.members.iter().map(passes).max().unwrap_or(0)
    }

    /// How many packets there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The flow key and the packet at a place below [`len`](Self::len).
    ///
    /// # Panics
    /// When there is no such place.
    #[inline]
    pub fn get_mut(&mut self, place: usize) -> (&FlowKey, &mut Packet) {
        self.untouched = false;
        let index = usize::from(self.members[place]);
        (&self.keys[index], &mut self.packets[index])
    }

    /// Calls `look` with the flow key and the packet at each of these places, and with the next of `things`, as long as there
    /// are some; keeps the verdict that it returns. Without one the packet's stays as it is.
    ///
    /// # Panics
    /// When there is no such place.
    #[inline]
    pub fn look_at<T>(
        &mut self,
        places: Range<usize>,
        things: impl Iterator<Item = T>,
        mut look: impl FnMut(&FlowKey, &mut Packet, T) -> Option<Verdict>,
    ) {
        self.untouched = false;
        // With one length for all, each index is held against it once.
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

    /// Says what becomes of the packet at a place below [`len`](Self::len).
    ///
    /// # Panics
    /// When there is no such place.
    #[inline]
    pub fn set_verdict(&mut self, place: usize, verdict: Verdict) {
        self.untouched = false;
        self.verdicts[usize::from(self.members[place])] = verdict;
    }

    /// Whether the instance looked at no packet: each passes, as it came.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// Calls `decide` with the flow key and the packet of each, and keeps the verdict that it returns.
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
