//! Routes by number.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::Route;
use crate::retired::{Epoch, Retired};

/// Routes, each kept once under a number, with how many prefixes have it. A route that no prefix has keeps its number
/// until the epoch in which that came about is over for all workers.
#[derive(Debug, Default)]
pub(super) struct Routes {
    slots: Vec<Slot>,
    free: Vec<u32>,
    numbers: HashMap<Route, u32, FixedState>,
    retired: Retired<u32>,
}

#[derive(Debug)]
struct Slot {
    route: Route,
    prefixes: u32,
    /// Whether a prefix has it, or had it.
    known: bool,
    /// The epoch in which it was last without a prefix.
    unused: Epoch,
}

impl Routes {
    /// The number of a route, and whether no prefix ever had it. It is lost with this epoch if no prefix takes it.
    pub fn number(&mut self, route: Route) -> (u32, bool) {
        if let Some(&number) = self.numbers.get(&route) {
            let slot = &mut self.slots[number as usize];
            if slot.prefixes == 0 && slot.unused != self.retired.epoch() {
                // Its epoch may be over before a prefix takes it.
                slot.unused = self.retired.epoch();
                self.retired.push(number);
            }
            return (number, !slot.known);
        }
        let slot = Slot { route: route.clone(), prefixes: 0, known: false, unused: self.retired.epoch() };
        let number = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(number as usize) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.numbers.insert(route, number);
        self.retired.push(number);
        (number, true)
    }

    /// A prefix has the route of that number.
    pub fn acquire(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.prefixes += 1;
        slot.known = true;
    }

    /// A prefix doesn't have the route of that number any more.
    pub fn release(&mut self, number: u32) -> Route {
        let slot = &mut self.slots[number as usize];
        slot.prefixes -= 1;
        if slot.prefixes == 0 {
            slot.unused = self.retired.epoch();
            self.retired.push(number);
        }
        slot.route.clone()
    }

    pub fn close_epoch(&mut self) -> Epoch {
        self.retired.close()
    }

    /// Numbers without a prefix since `epoch` or before may be given to other routes.
    pub fn quiesced(&mut self, epoch: Epoch) {
        while let Some((retired, number)) = self.retired.pop_upto(epoch) {
            let slot = &mut self.slots[number as usize];
            // It may have been taken up again, and dropped again later; then it stands further behind, too.
            if slot.prefixes == 0 && slot.unused == retired && self.numbers.get(&slot.route) == Some(&number)
            {
                // Whoever asks for it gets a harmless answer.
                let route = std::mem::replace(&mut slot.route, Route::Blackhole);
                self.numbers.remove(&route);
                self.free.push(number);
            }
        }
    }

    /// How many notes there are of numbers without a prefix.
    pub fn waiting(&self) -> usize {
        self.retired.len()
    }

    /// The route of a number that was given.
    pub fn route(&self, number: u32) -> &Route {
        &self.slots[number as usize].route
    }

    /// Whether the number is one that was given, and not lost.
    pub fn is_given(&self, number: u32) -> bool {
        let slot = self.slots.get(number as usize);
        slot.is_some_and(|slot| self.numbers.get(&slot.route) == Some(&number))
    }

    /// How many different routes prefixes have, or had in an epoch that isn't over.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
}
