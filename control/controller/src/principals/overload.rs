//! Overload alarm: core, or a principal, that needs more than its share for seconds.

use std::collections::{BTreeMap, BTreeSet};

use millrace_pipeline::{PrincipalCounts, PrincipalDrops};
use millrace_telemetry::EventKind;
use millrace_units::PrincipalId;
use serde_json::json;

use crate::events::Events;
use crate::model::Model;

/// Samples in a row, about one a second, after which an overload begins or ends.
const SAMPLES: u32 = 10;

/// Principals that lose packets because they need more than their share.
#[derive(Debug, Default)]
pub(crate) struct Overloads {
    states: BTreeMap<PrincipalId, State>,
    overloaded: BTreeSet<PrincipalId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    counts: PrincipalCounts,
    /// Samples in a row with losses, or without, whichever is not the reported state.
    changed: u32,
    /// Packets dropped at the start of these samples.
    dropped: u64,
}

impl Overloads {
    /// Notes an event for each principal that has been overloaded for [`SAMPLES`] samples, and for each that
    /// no longer is. Call this about once a second.
    pub fn judge(&mut self, model: &Model, counts: &[(PrincipalId, PrincipalCounts)], events: &Events) {
        let is_there = |id: &PrincipalId| counts.iter().any(|(known, _)| known == id);
        self.states.retain(|id, _| is_there(id));
        self.overloaded.retain(is_there);
        for (id, now) in counts {
            let Some(dropped) = self.sample(*id, now) else { continue };
            let name = model.principal_ids.name(*id);
            if self.overloaded.contains(id) {
                let details = json!({"principal": name, "dropped": dropped, "seconds": SAMPLES});
                let needs = match *id {
                    PrincipalId::CORE => "core gets more packets than its share of the processor can forward",
                    PrincipalId::CONTROL => {
                        "the router gets more packets for itself than its share of the processor can answer"
                    }
                    _ if now.drops.memory > 0 => {
                        "its packets need more than its share of the processor, or than its memory"
                    }
                    _ => "its packets need more than its share of the processor",
                };
                let text = format!("{name} is overloaded: {needs}; dropped {dropped} in {SAMPLES} s");
                events.note(EventKind::Overloaded, name, text, details);
            } else {
                let text = format!("{name} has dropped no packet for {SAMPLES} s: its overload is over");
                events.note(EventKind::OverloadEnded, name, text, json!({"principal": name}));
            }
        }
    }

    /// Adds a sample of a principal. If its state changes, returns the packets dropped in the last
    /// [`SAMPLES`] samples.
    fn sample(&mut self, id: PrincipalId, now: &PrincipalCounts) -> Option<u64> {
        let state = self.states.entry(id).or_insert(State { counts: *now, ..State::default() });
        let before = std::mem::replace(&mut state.counts, *now);
        // A principal that was removed and added again starts from zero.
        let (lost, lost_before) = (lost(id, now), lost(id, &before));
        let loses = lost > lost_before;
        if loses == self.overloaded.contains(&id) {
            state.changed = 0;
            return None;
        }
        if state.changed == 0 {
            state.dropped = lost_before;
        }
        state.changed += 1;
        if state.changed < SAMPLES {
            return None;
        }
        state.changed = 0;
        if !self.overloaded.remove(&id) {
            self.overloaded.insert(id);
        }
        Some(lost.saturating_sub(state.dropped))
    }
}

/// Returns the number of packets that core shed, or that a principal lost by its own load.
fn lost(id: PrincipalId, counts: &PrincipalCounts) -> u64 {
    let PrincipalDrops { queue, memory, core_ceiling, handover } = counts.drops;
    if id == PrincipalId::CORE { core_ceiling } else { queue + memory + handover }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYER: PrincipalId = PrincipalId(3);

    /// Samples a principal that drops these numbers of packets. Returns the samples after which its state
    /// changed, with the packets dropped until then.
    fn changes(drops: impl IntoIterator<Item = u64>) -> Vec<(usize, u64)> {
        let (mut overloads, mut counts) = (Overloads::default(), PrincipalCounts::default());
        overloads.sample(PAYER, &counts);
        let mut sample = |drops: u64| {
            counts.drops.queue += drops;
            overloads.sample(PAYER, &counts)
        };
        drops.into_iter().enumerate().filter_map(|(at, drops)| Some((at + 1, sample(drops)?))).collect()
    }

    #[test]
    fn overload_begins_and_ends_after_ten_samples_in_a_row() {
        let drops = |lossy: usize, calm: usize| [vec![5; lossy], vec![0; calm]].concat();
        assert_eq!(changes(drops(10, 9)), [(10, 50)]);
        assert_eq!(changes(drops(25, 10)), [(10, 50), (35, 0)]);
        assert_eq!(changes([drops(9, 1), drops(9, 1)].concat()), []);
        assert_eq!(changes([drops(10, 9), drops(1, 9)].concat()), [(10, 50)]);
    }
}
