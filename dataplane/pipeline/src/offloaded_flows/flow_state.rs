//! State of flows in the offload, by their flow records.

use millrace_classify::FlowIndex;
use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::upcalls::KeptUp;

/// Offload state of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum FlowState {
    /// The worker has the flow and may offload it.
    #[default]
    AtWorker,
    /// The flow gets an entry with its next packet, if it can be offloaded.
    Due,
    /// The flow has left the offload because of its upcalls, and stays at the worker for some time.
    KeptUp,
    /// The flow cache had no room for the flow.
    Refused,
    /// The flow has the entry of this slot. The slot is stale if it is free, or another flow's.
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
    /// Packs a state. Slots above `u32::MAX - FIRST_SLOT` don't exist: a flow cache has 4,194,304 at most.
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
/// A flow table gives a record to another flow without notice. So the state of a record may be that of its
/// former flow.
#[derive(Debug, Default)]
pub(super) struct FlowStates {
    by_record: Vec<PackedState>,
    kept_up: KeptUp,
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

    /// Returns whether a flow without an entry had one before, or missed one only because of the insertion
    /// limit of an iteration.
    pub fn is_due(&self, flow: FlowIndex) -> bool {
        match self.get(flow) {
            FlowState::Due | FlowState::Entry(_) => true,
            FlowState::AtWorker | FlowState::KeptUp | FlowState::Refused => false,
        }
    }

    /// Notes that the flow cache had no room for a flow. Returns whether that is new.
    pub fn refuse(&mut self, flow: FlowIndex) -> bool {
        let is_new = self.get(flow) != FlowState::Refused;
        self.set(flow, FlowState::Refused);
        is_new
    }

    /// Resets the state of a record whose former flow was refused: the record is a new flow's.
    pub fn forget_refusal(&mut self, flow: FlowIndex) {
        if self.get(flow) == FlowState::Refused {
            self.set(flow, FlowState::AtWorker);
        }
    }

    /// Keeps a flow at the worker for some time because of its upcalls. Does nothing if too many flows are
    /// kept there.
    pub fn keep_up(&mut self, flow: FlowIndex, key: FlowKey, now: Instant) {
        if self.kept_up.add(flow, key, now) {
            self.set(flow, FlowState::KeptUp);
        }
    }

    /// Returns whether a flow stays at the worker because of its upcalls.
    pub fn is_kept_up(&self, flow: FlowIndex, key: &FlowKey, now: Instant) -> bool {
        self.get(flow) == FlowState::KeptUp && self.kept_up.has(flow, key, now)
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
