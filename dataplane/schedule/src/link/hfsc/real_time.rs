//! Real-time criterion: chooses the eligible leaf with the earliest deadline (section IV.A, figures 4 and 5
//! of the H-FSC paper).
//!
//! Two heaps replace the paper's search tree: waiting leaves by eligible time, and eligible leaves by
//! deadline. Time never goes back, so a class moves from the first heap to the second at most once per
//! packet.

use super::Hfsc;
use super::class::Demand;

impl Hfsc {
    /// Starts the real-time demand of a leaf that became backlogged: replaces each running curve by its
    /// minimum with the service curve that starts now.
    #[inline]
    pub(super) fn demand_begins(&mut self, index: u32, length: u32, now: u64) {
        let class = &mut self.classes[index];
        let Some(curve) = class.guarantee.curve.filter(|_| class.has_guarantee) else { return };
        class.guarantee.deadlines.cut(&curve, now, class.guarantee.cumulative);
        self.set_demand(index, length, now);
    }

    /// Counts `bytes` that the real-time criterion sent from a leaf. Computes eligible time and deadline of
    /// the leaf's next packet. `next`: length of that packet; `None` if the leaf is empty.
    #[inline]
    pub(super) fn demand_served(&mut self, index: u32, bytes: u32, next: Option<u32>, now: u64) {
        let class = &mut self.classes[index];
        if !class.has_guarantee {
            return;
        }
        class.guarantee.cumulative += u64::from(bytes);
        match next {
            Some(length) => self.set_demand(index, length, now),
            None => self.demand_ends(index),
        }
    }

    /// Computes eligible time and deadline of a leaf's first packet, which has `length` bytes.
    #[inline]
    fn set_demand(&mut self, index: u32, length: u32, now: u64) {
        let class = &mut self.classes[index];
        let Some(curve) = &class.guarantee.curve else { return };
        let sent = class.guarantee.cumulative;
        // If the eligible curve is the deadline curve, a packet becomes eligible at the previous packet's
        // deadline.
        let follows =
            class.demand != Demand::None && class.guarantee.due == sent && !class.guarantee.has_flat_start();
        let eligible = if follows {
            class.guarantee.deadline
        } else {
            class.guarantee.deadlines.eligible(curve).time_of(curve, sent)
        };
        class.guarantee.due = sent + u64::from(length);
        class.guarantee.deadline = class.guarantee.deadlines.time_of(curve, class.guarantee.due);
        let (deadline, before) = (class.guarantee.deadline, class.demand);
        let after = if eligible <= now { Demand::Eligible } else { Demand::Pending };
        class.demand = after;
        let key = if after == Demand::Eligible { deadline } else { eligible };
        if before == after {
            let heap = if after == Demand::Eligible { &mut self.eligible } else { &mut self.pending };
            return heap.update(&mut self.demand_places, key, index);
        }
        match before {
            Demand::None => {}
            Demand::Pending => self.pending.remove(&mut self.demand_places, index),
            Demand::Eligible => self.eligible.remove(&mut self.demand_places, index),
        }
        let heap = if after == Demand::Eligible { &mut self.eligible } else { &mut self.pending };
        heap.push(&mut self.demand_places, key, index);
    }

    /// Ends the demand of a leaf that became empty.
    pub(super) fn demand_ends(&mut self, index: u32) {
        let class = &mut self.classes[index];
        match std::mem::replace(&mut class.demand, Demand::None) {
            Demand::None => {}
            Demand::Pending => self.pending.remove(&mut self.demand_places, index),
            Demand::Eligible => self.eligible.remove(&mut self.demand_places, index),
        }
    }

    /// Returns the eligible leaf with the earliest deadline; `None` if no leaf is eligible.
    #[inline]
    pub(super) fn most_urgent(&mut self, now: u64) -> Option<u32> {
        while let Some((_, index)) = self.pending.first().filter(|(eligible, _)| *eligible <= now) {
            self.pending.remove(&mut self.demand_places, index);
            let class = &mut self.classes[index];
            class.demand = Demand::Eligible;
            let deadline = class.guarantee.deadline;
            self.eligible.push(&mut self.demand_places, deadline, index);
        }
        self.eligible.first().map(|(_, index)| index)
    }
}
