//! The packets of a call, and what the instance decides for each.

use millrace_packet::{FlowKey, Packet};
use millrace_units::Instant;

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// It goes on.
    #[default]
    Pass,
    /// It is dropped, and counted for the instance.
    Drop,
    /// The instance has used it up; it is counted as consumed.
    Consume,
    /// It goes on at this time. At gates of the position `copy` it is used up at once.
    Hold(Instant),
}

/// Packets handed to an instance in one call: they belong to flows that the instance is bound to.
#[derive(Debug)]
pub struct Packets<'a> {
    packets: &'a mut [Packet],
    keys: &'a [FlowKey],
    members: &'a [u16],
    verdicts: &'a mut [Verdict],
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
        Self { packets, keys, members, verdicts, untouched: true }
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
