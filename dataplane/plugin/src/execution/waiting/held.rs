//! Packets that instances hold until a time.

use std::collections::BinaryHeap;

use millrace_units::{Instant, PrincipalId};

use super::{Place, Waiting};
use crate::principal_memory::PrincipalMemory;

/// Packet held until a time. The earliest packet is the greatest by `Ord`, so the heap yields it first.
#[derive(Debug)]
struct Held {
    until: Instant,
    /// Sequence number, which orders packets held until the same time.
    order: u64,
    /// Slot of the instance that holds the packet.
    by: u32,
    waiting: Waiting,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        (self.until, self.order) == (other.until, other.order)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.until, other.order).cmp(&(self.until, self.order))
    }
}

/// Packets that instances hold until a time.
#[derive(Debug, Default)]
pub(crate) struct HeldPackets {
    held: BinaryHeap<Held>,
    order: u64,
    /// Each slot whose instance holds packets, and the [places](Waiting::places) of these packets.
    holders: Vec<(u32, usize)>,
}

impl HeldPackets {
    /// Holds a packet until a time, for the instance in slot `by`. The packet counts in the memory of its payer.
    ///
    /// # Errors
    /// The packet, if its payer has no memory left.
    pub fn push(
        &mut self,
        by: u32,
        until: Instant,
        waiting: Waiting,
        memory: &PrincipalMemory,
    ) -> Result<(), Waiting> {
        let bytes = waiting.packet.len() as u64;
        if waiting.payer.is_some_and(|payer| !memory.admits(payer, bytes)) {
            return Err(waiting);
        }
        memory.suspend(waiting.payer, (1, bytes));
        self.order += 1;
        let places = waiting.places();
        self.held.push(Held { until, order: self.order, by, waiting });
        match self.holders.iter_mut().find(|(holder, _)| *holder == by) {
            Some((_, held)) => *held += places,
            None => self.holders.push((by, places)),
        }
        Ok(())
    }

    /// Releases the packets for which `is_orphan` holds: sets their times to 0, so `due` returns them next, in
    /// their former order.
    pub fn let_go(&mut self, is_orphan: impl Fn(u32, Place) -> bool) {
        if !self.held.iter().any(|held| is_orphan(held.by, held.waiting.place)) {
            return;
        }
        let mut held = std::mem::take(&mut self.held).into_vec();
        held.sort_unstable_by(|one, other| other.cmp(one));
        for (order, held) in (1..).zip(&mut held) {
            held.order = order;
            if is_orphan(held.by, held.waiting.place) {
                held.until = Instant::ZERO;
            }
        }
        self.order = held.len() as u64;
        self.held = held.into();
    }

    /// Removes and returns a packet whose time has come.
    pub fn due(&mut self, now: Instant, memory: &PrincipalMemory) -> Option<Waiting> {
        self.held.peek().filter(|held| held.until <= now)?;
        let held = self.held.pop()?;
        memory.resume(held.waiting.payer, (1, held.waiting.packet.len() as u64));
        let holders = self.holders.iter_mut().enumerate();
        if let Some((at, (_, count))) = holders.into_iter().find(|(_, (holder, _))| *holder == held.by) {
            *count -= held.waiting.places();
            if *count == 0 {
                self.holders.swap_remove(at);
            }
        }
        Some(held.waiting)
    }

    /// Lets the packets of a removed principal count in nobody's memory.
    pub fn forget_payer(&mut self, payer: PrincipalId) {
        if !self.held.iter().any(|held| held.waiting.payer == Some(payer)) {
            return;
        }
        let mut held = std::mem::take(&mut self.held).into_vec();
        for Held { waiting, .. } in &mut held {
            waiting.payer.take_if(|known| *known == payer);
        }
        self.held = held.into();
    }

    /// Returns the earliest time of a packet.
    pub fn next(&self) -> Option<Instant> {
        self.held.peek().map(|held| held.until)
    }

    /// Returns the [places](Waiting::places) of all packets.
    pub fn places(&self) -> usize {
        self.holders.iter().map(|(_, places)| places).sum()
    }

    /// Returns the [places](Waiting::places) of the packets that the instance in slot `by` holds.
    pub fn places_of(&self, by: u32) -> usize {
        self.holders.iter().find(|(holder, _)| *holder == by).map_or(0, |(_, held)| *held)
    }

    /// Returns the packets, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.held.iter().map(|held| &held.waiting)
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no packet is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}
