//! Routes by number.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::FixedState;

use super::Route;
use crate::retired::{Epoch, Retired};

/// Routes, each kept under a number that prefixes share, with how many prefixes have it, or under a number of one prefix's own. A
/// route that no prefix has keeps its number until the epoch in which that came about is over for all workers.
#[derive(Debug, Default)]
pub(super) struct Routes {
    slots: Vec<Slot>,
    /// The smallest number comes first: numbers of prefixes' own have to be small.
    free: BinaryHeap<Reverse<u32>>,
    numbers: HashMap<Route, u32, FixedState>,
    retired: Retired<u32>,
}

#[derive(Debug)]
struct Slot {
    route: Route,
    prefixes: u32,
    /// Whether a prefix has it, or had it.
    known: bool,
    /// Whether it is in use, and not free.
    given: bool,
    /// Whether it is one prefix's own.
    own: bool,
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
        let number = self.give(route.clone(), false);
        self.numbers.insert(route, number);
        (number, true)
    }

    /// A number below `limit` for a route to one prefix alone, if there is one: the same one as it `has`, if that is its own and
    /// means the same; and whether it is another. It is lost with this epoch if the prefix does not take it.
    pub fn own_number(&mut self, route: &Route, has: Option<u32>, limit: u32) -> Option<(u32, bool)> {
        let is_same = |number: &u32| {
            let slot = &self.slots[*number as usize];
            slot.own && slot.route == *route
        };
        if let Some(same) = has.filter(is_same) {
            return Some((same, false));
        }
        let next = self.free.peek().map_or(self.slots.len() as u32, |Reverse(number)| *number);
        (next < limit).then(|| (self.give(route.clone(), true), true))
    }

    fn give(&mut self, route: Route, own: bool) -> u32 {
        let slot = Slot { route, prefixes: 0, known: false, given: true, own, unused: self.retired.epoch() };
        let number = self.free.pop().map_or(self.slots.len() as u32, |Reverse(number)| number);
        match self.slots.get_mut(number as usize) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.retired.push(number);
        number
    }

    /// Whether a number is one prefix's own.
    pub fn is_own(&self, number: u32) -> bool {
        self.slots.get(number as usize).is_some_and(|slot| slot.given && slot.own)
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

    /// Numbers without a prefix since `epoch` or before may be given to other routes, unless somebody `keeps` them: those
    /// wait for a later epoch. Returns which they are.
    pub fn quiesced(&mut self, epoch: Epoch, keeps: impl Fn(u32) -> bool) -> Vec<u32> {
        let (now, mut freed) = (self.retired.epoch(), Vec::new());
        while let Some((retired, number)) = self.retired.pop_upto(epoch) {
            let slot = &mut self.slots[number as usize];
            // It may have been taken up again, and dropped again later; then it stands further behind, too.
            if slot.prefixes > 0 || slot.unused != retired || !slot.given {
                continue;
            }
            if retired < now && keeps(number) {
                slot.unused = now;
                self.retired.push(number);
                continue;
            }
            slot.given = false;
            // Whoever asks for it gets a harmless answer.
            let route = std::mem::replace(&mut slot.route, Route::Blackhole);
            if !slot.own {
                self.numbers.remove(&route);
            }
            self.free.push(Reverse(number));
            freed.push(number);
        }
        freed
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
        self.slots.get(number as usize).is_some_and(|slot| slot.given)
    }

    /// How many numbers are in use: of different routes that prefixes have, or had in an epoch that isn't over.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
