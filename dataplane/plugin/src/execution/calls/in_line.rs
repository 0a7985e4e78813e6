//! Calls in line: their instances have a stated bound, so packets don't wait for the processor. The measured time is
//! charged to the principal that pays, once for each group of packets.

use millrace_units::{Cycles, Instant, PrincipalId};

use super::{Calls, Group, Visit};
use crate::execution::bindings::Binding;

/// Time of calls in line that the CPU scheduler doesn't know yet.
pub(crate) struct InLineCharges(Vec<(PrincipalId, Cycles)>);

impl Default for InLineCharges {
    fn default() -> Self {
        Self(Vec::with_capacity(1 << 8))
    }
}

impl InLineCharges {
    /// Adds time of a principal.
    fn add(&mut self, payer: PrincipalId, used: Cycles) {
        match self.0.iter_mut().find(|(known, _)| *known == payer) {
            Some((_, sum)) => *sum += used,
            None => self.0.push((payer, used)),
        }
    }

    /// Whether no principal has used time.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the time of each principal.
    pub fn take(&mut self) -> impl Iterator<Item = (PrincipalId, Cycles)> {
        self.0.drain(..)
    }
}

impl Calls {
    /// Calls an instance as [`visit`](Self::visit) does. If the call runs in line for a principal, `charged`, that
    /// principal is charged.
    #[inline]
    pub(crate) fn visit_or_charge(
        &mut self,
        (visit, charged): (Visit, Option<PrincipalId>),
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) -> bool {
        match charged {
            None => self.visit(visit, binding, group, now),
            Some(charged) => {
                // The allowance of the principal that has the processor is not that of the payer.
                let payer = visit.payer.filter(|payer| self.running == Some(*payer));
                self.visit_in_line((Visit { payer, ..visit }, charged), binding, group, now)
            }
        }
    }

    /// Calls an instance as [`visit`](Self::visit) does, in line, and charges the time to `payer`. The slice of a
    /// principal already measures the time of its own calls.
    fn visit_in_line(
        &mut self,
        (visit, payer): (Visit, PrincipalId),
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) -> bool {
        let packets = group.members.len() as u64;
        let is_running = self.meter.is_running();
        if !is_running {
            self.meter.start();
        }
        let begun = self.meter.last();
        let is_untouched = self.visit(visit, binding, group, now);
        if let (Some(begun), Some(end)) = (begun, self.meter.last()) {
            let used = end.saturating_sub(begun);
            binding.note_cost(used, packets);
            if self.running != Some(payer) {
                self.in_line.add(payer, Cycles(used));
            }
        }
        if !is_running {
            self.meter.stop();
        }
        is_untouched
    }
}
