//! Offload states of flows, stored by flow record.

use millrace_classify::FlowIndex;
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::upcalls::{BackOffs, Upcalls};

/// Offload state of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum FlowState {
    /// The worker treats the flow, and may offload it later.
    #[default]
    AtWorker,
    /// The flow gets an entry with its next packet, if the flow can be offloaded.
    Due,
    /// The flow had too many upcalls while it was offloaded, and now stays at the worker for some time.
    KeptUp,
    /// The flow cache had no room for the flow.
    Refused,
    /// The flow has the entry in this slot. The state is stale if the slot is now free, or holds another
    /// flow's entry.
    Entry(u32),
}

/// A [`FlowState`] in 32 bits: a code below [`FIRST_SLOT`](Self::FIRST_SLOT), or the slot of an entry plus
/// [`FIRST_SLOT`](Self::FIRST_SLOT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PackedState(u32);

impl PackedState {
    const AT_WORKER: u32 = 0;
    const DUE: u32 = 1;
    const KEPT_UP: u32 = 2;
    const REFUSED: u32 = 3;
    const FIRST_SLOT: u32 = 4;
}

impl From<FlowState> for PackedState {
    /// Packs a state. Can't overflow: a flow cache has at most 4,194,304 slots.
    fn from(state: FlowState) -> Self {
        Self(match state {
            FlowState::AtWorker => Self::AT_WORKER,
            FlowState::Due => Self::DUE,
            FlowState::KeptUp => Self::KEPT_UP,
            FlowState::Refused => Self::REFUSED,
            FlowState::Entry(slot) => slot.saturating_add(Self::FIRST_SLOT),
        })
    }
}

impl From<PackedState> for FlowState {
    fn from(PackedState(packed): PackedState) -> Self {
        match packed {
            PackedState::AT_WORKER => Self::AtWorker,
            PackedState::DUE => Self::Due,
            PackedState::KEPT_UP => Self::KeptUp,
            PackedState::REFUSED => Self::Refused,
            PackedState::FIRST_SLOT.. => Self::Entry(packed - PackedState::FIRST_SLOT),
        }
    }
}

/// Offload states of all flow records.
///
/// The flow table may reuse a record for another flow without a report. So the state of a record may still be
/// that of its former flow.
#[derive(Debug, Default)]
pub(super) struct FlowStates {
    by_record: Vec<PackedState>,
    back_offs: BackOffs,
}

impl FlowStates {
    /// Returns the state of a flow record.
    pub fn get(&self, flow: FlowIndex) -> FlowState {
        self.by_record.get(flow.slot() as usize).copied().unwrap_or_default().into()
    }

    /// Sets the state of a flow record.
    pub fn set(&mut self, flow: FlowIndex, state: FlowState) {
        let record = flow.slot() as usize;
        if self.by_record.len() <= record {
            self.by_record.resize((record + 1).next_power_of_two(), PackedState::default());
        }
        if let Some(packed) = self.by_record.get_mut(record) {
            *packed = state.into();
        }
    }

    /// Returns whether a flow is to be offered with its next packet: it has or had an entry, or its last
    /// offer failed only because the iteration had reached its insertion limit.
    pub fn is_due(&self, flow: FlowIndex) -> bool {
        match self.get(flow) {
            FlowState::Due | FlowState::Entry(_) => true,
            FlowState::AtWorker | FlowState::KeptUp | FlowState::Refused => false,
        }
    }

    /// Marks a flow as refused because the flow cache has no room. Returns whether the flow was not marked
    /// before.
    pub fn refuse(&mut self, flow: FlowIndex) -> bool {
        let is_new = self.get(flow) != FlowState::Refused;
        self.set(flow, FlowState::Refused);
        is_new
    }

    /// Clears the refusal of a record's former flow when a new flow takes over the record.
    pub fn forget_refusal(&mut self, flow: FlowIndex) {
        if self.get(flow) == FlowState::Refused {
            self.set(flow, FlowState::AtWorker);
        }
    }

    /// Keeps a flow at the worker for some time because of its upcalls. Does nothing if the number of such
    /// flows is at its limit.
    pub fn keep_up(&mut self, flow: FlowIndex, key: FlowKey, now: Instant) {
        if self.back_offs.keep_up(flow.slot(), key, now) {
            self.set(flow, FlowState::KeptUp);
        }
    }

    /// Returns whether a flow stays at the worker because it had too many upcalls.
    pub fn is_kept_up(&self, flow: FlowIndex, key: &FlowKey, now: Instant) -> bool {
        self.get(flow) == FlowState::KeptUp && self.back_offs.keeps_up(flow.slot(), key, now)
    }

    /// Marks a flow as due that has lost its entry because a packet waits at the worker. Its next entry continues the
    /// counts of upcalls.
    pub fn withdraw(&mut self, flow: FlowIndex, key: FlowKey, upcalls: Upcalls, now: Instant) {
        self.back_offs.withdraw(flow.slot(), key, upcalls, now);
        self.set(flow, FlowState::Due);
    }

    /// Records the entry of a flow. Returns the counts of upcalls that the entry continues, if the flow's last entry
    /// was withdrawn.
    pub fn begin_entry(&mut self, flow: FlowIndex, key: &FlowKey, slot: u32) -> Option<Upcalls> {
        self.set(flow, FlowState::Entry(slot));
        self.back_offs.end(flow.slot(), key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_state_has_32_bits_and_unpacks_to_the_same_state() {
        assert_eq!(size_of::<PackedState>(), size_of::<u32>());
        let states = [FlowState::AtWorker, FlowState::Due, FlowState::KeptUp, FlowState::Refused];
        let slots = [0, 1, 4_194_303, u32::MAX - PackedState::FIRST_SLOT].map(FlowState::Entry);
        for state in states.into_iter().chain(slots) {
            assert_eq!(FlowState::from(PackedState::from(state)), state);
        }
        assert_eq!(FlowState::from(PackedState::default()), FlowState::default());
    }
}
