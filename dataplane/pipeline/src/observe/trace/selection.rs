//! Selection of the traced packets of a batch.

use millrace_classify::NearKey;
use millrace_units::Instant;

use super::room::{Traced, Turn};
use crate::observe::Observation;
use crate::work::{Fate, Work};

/// Origin of the traced packets of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pick {
    /// A device has just received the batch, and the trace selects packets of it.
    Chosen,
    /// Another worker has handed the batch over, with the trace numbers that it gave.
    Marked,
}

impl Observation {
    /// Finds the traced packets of a batch, and records the first steps of their journeys.
    pub(crate) fn find_traced(
        &mut self,
        work: &mut Work,
        pick: Pick,
        traced: &mut Vec<Traced>,
        now: Instant,
    ) {
        traced.clear();
        let mut from = 0;
        while let Some(place) = self.next_traced(work, from, (pick, traced.len()), now) {
            from = place + 1;
            traced.push(Traced { place, turn: Turn::Last, fate: Fate::Forward, near: NearKey::NONE });
            self.begin(work, place, pick, now);
        }
    }

    /// Returns the index of the next traced packet from index `from` on. `before`: number of traced packets
    /// found in the batch so far.
    fn next_traced(
        &mut self,
        work: &mut Work,
        mut from: usize,
        (pick, before): (Pick, usize),
        now: Instant,
    ) -> Option<usize> {
        let tracer = self.trace.as_mut()?;
        if pick == Pick::Marked {
            let marked = work.packets.iter().skip(from).position(|packet| packet.trace != 0)?;
            return Some(from + marked);
        }
        if tracer.is_over(now) {
            tracer.rest();
            return None;
        }
        while let Some(at) = tracer.next_of(work.packets.len() - from) {
            let index = from + at;
            from = index + 1;
            work.complete(index);
            // A packet without a hash was not parsed, so it has no candidate.
            let is_asked = tracer.has_filter() && work.packets.at(index).hash != 0;
            let candidate = is_asked.then(|| work.candidate(index));
            if tracer.choose(work.packets.at_mut(index), candidate.as_ref(), before) {
                return Some(index);
            }
        }
        None
    }
}
