//! Calls in line: their instances have a stated bound, so packets don't wait for the processor. The measured time is
//! charged to the principal that pays, once for each group of packets. The time for the answers of other processes is
//! charged in the same way, and so is the time for packets that instances have made.
//!
//! The eBPF variants of instances are such calls, too. The XDP program runs them, and the worker learns of their packets
//! later.

use std::time::Duration;

use millrace_units::{Cycles, Instant, PrincipalId};

use super::{Calls, Group, Visit};
use crate::ProcessorWait;
use crate::execution::bindings::Binding;

/// Time and packets of calls in line, or time for the answers of another process or for packets that instances made.
#[derive(Clone, Copy, Debug)]
pub struct InLineCharge {
    /// Principal that pays.
    pub payer: PrincipalId,
    /// Time of the calls.
    pub used: Cycles,
    /// Packets of the calls.
    pub packets: u64,
}

/// Time of an eBPF variant, which the XDP program has run.
#[derive(Clone, Copy, Debug)]
pub struct DriverCharge {
    /// Principal that pays.
    pub payer: PrincipalId,
    /// Time of the variant.
    pub time: Duration,
}

/// Charges for calls in line that the CPU scheduler doesn't know yet, and principals whose calls it holds back.
pub(crate) struct InLine {
    /// Charges in ascending order of the principals.
    charges: Vec<InLineCharge>,
    /// Charges for eBPF variants in ascending order of the principals.
    in_driver: Vec<DriverCharge>,
    /// Time of all calls so far. Wraps around.
    total: u64,
    /// Principals whose packets wait although their calls could run in line, in ascending order.
    held_back: Vec<PrincipalId>,
}

impl Default for InLine {
    fn default() -> Self {
        Self {
            charges: Vec::with_capacity(1 << 8),
            in_driver: Vec::with_capacity(1 << 8),
            total: 0,
            held_back: Vec::with_capacity(1 << 8),
        }
    }
}

impl InLine {
    /// Adds a charge.
    pub fn add(&mut self, charge: InLineCharge) {
        self.total = self.total.wrapping_add(charge.used.0);
        let place = self.charges.partition_point(|known| known.payer < charge.payer);
        match self.charges.get_mut(place).filter(|known| known.payer == charge.payer) {
            Some(known) => {
                known.used += charge.used;
                known.packets += charge.packets;
            }
            None => self.charges.insert(place, charge),
        }
    }

    /// Adds time of an eBPF variant.
    pub fn add_in_driver(&mut self, charge: DriverCharge) {
        match self.in_driver.binary_search_by_key(&charge.payer, |known| known.payer) {
            Ok(place) => {
                self.in_driver.get_mut(place).into_iter().for_each(|known| known.time += charge.time);
            }
            Err(place) => self.in_driver.insert(place, charge),
        }
    }

    /// Forgets the charges of a removed principal, and that it is held back.
    pub fn forget(&mut self, payer: PrincipalId) {
        self.in_driver.retain(|charge| charge.payer != payer);
        self.held_back.retain(|held_back| *held_back != payer);
    }

    /// Takes the charges for eBPF variants.
    pub fn take_in_driver(&mut self) -> impl Iterator<Item = DriverCharge> {
        self.in_driver.drain(..)
    }

    /// Holds a principal back.
    pub fn hold_back(&mut self, payer: PrincipalId) {
        if let Err(place) = self.held_back.binary_search(&payer) {
            self.held_back.insert(place, payer);
        }
    }

    /// Returns the time of all calls so far, which wraps around.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether no principal has used time, and none is held back.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty() && self.in_driver.is_empty() && self.held_back.is_empty()
    }

    /// Settles the charge of each principal, and holds it back if `settle` returns `true`.
    pub fn settle(&mut self, mut settle: impl FnMut(InLineCharge) -> bool) {
        let mut charges = std::mem::take(&mut self.charges);
        for charge in charges.drain(..) {
            if settle(charge) {
                self.hold_back(charge.payer);
            }
        }
        self.charges = charges;
    }

    /// Ends the wait of the principals for which `still` is false.
    pub fn retain(&mut self, still: impl FnMut(&PrincipalId) -> bool) {
        self.held_back.retain(still);
    }

    #[inline]
    pub fn holds_back(&self, payer: PrincipalId) -> bool {
        !self.held_back.is_empty() && self.held_back.binary_search(&payer).is_ok()
    }
}

impl Calls {
    /// Returns `payer`, the principal that pays for the calls of a binding, if they run in line now; `None` if packets
    /// wait.
    #[inline]
    pub(crate) fn charged(&self, payer: Option<PrincipalId>, binding: &Binding) -> Option<PrincipalId> {
        payer.filter(|payer| binding.runs_in_line() && !self.in_line.holds_back(*payer))
    }

    /// Returns the wait of packets for the processor before a binding that `payer` pays for; `None` if its calls run in
    /// line now.
    #[inline]
    pub(crate) fn wait(&self, payer: Option<PrincipalId>, binding: &Binding) -> Option<ProcessorWait> {
        let payer = payer.filter(|_| self.charged(payer, binding).is_none())?;
        Some(ProcessorWait { payer, queue: binding.call_limits.queue.map(|_| binding.gate) })
    }

    /// Tracks the members of a group if the instance needs their connections, and calls the instance as
    /// [`visit`](Self::visit) does. If the call runs in line for a principal, `charged`, that principal is charged.
    #[inline]
    pub(crate) fn visit_or_charge(
        &mut self,
        (visit, charged): (Visit, Option<PrincipalId>),
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) -> bool {
        if visit.tracks {
            self.track(group, &mut binding.counts, now);
            if group.members.is_empty() {
                return false;
            }
        }
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
            binding.note_in_line(used, packets);
            if self.running != Some(payer) {
                self.in_line.add(InLineCharge { payer, used: Cycles(used), packets });
            }
        }
        if !is_running {
            self.meter.stop();
        }
        is_untouched
    }
}
