//! Routes by route number.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::FixedState;

use super::Route;
use crate::routes::retired::{Epoch, Retired};

/// Routes by route number. All prefixes of equal routes share a number, or a prefix has its own. The table
/// counts the prefixes of each number. A number without prefixes is kept until all workers have passed the
/// epoch in which it lost its last prefix.
#[derive(Debug, Default)]
pub(super) struct Routes {
    slots: Vec<Slot>,
    /// Free numbers, the smallest first, because the own numbers of prefixes must be below a limit.
    free: BinaryHeap<Reverse<u32>>,
    numbers: HashMap<Route, u32, FixedState>,
    retired: Retired<u32>,
}

#[derive(Debug)]
struct Slot {
    route: Route,
    prefixes: u32,
    /// Whether a prefix has or had the route.
    known: bool,
    /// Whether the number belongs to a route. Otherwise it is free.
    given: bool,
    /// Whether the number is a prefix's own number.
    own: bool,
    /// Epoch in which the number lost its last prefix.
    unused: Epoch,
}

impl Routes {
    /// Returns the number that all prefixes of a route share, and whether the number is new: no prefix has
    /// ever had it. If no prefix acquires the number, it is freed when all workers have passed the current
    /// epoch.
    pub fn number(&mut self, route: Route) -> (u32, bool) {
        if let Some(&number) = self.numbers.get(&route) {
            let slot = &mut self.slots[number as usize];
            if slot.prefixes == 0 && slot.unused != self.retired.epoch() {
                // Retires the number again: the epoch in which it was retired before may end before a prefix
                // acquires it.
                slot.unused = self.retired.epoch();
                self.retired.push(number);
            }
            return (number, !slot.known);
        }
        let number = self.give(route.clone(), false);
        self.numbers.insert(route, number);
        (number, true)
    }

    /// Returns a route number below `limit` that only one prefix has, and whether the number is new. `has`:
    /// present number of the prefix. If `has` is the prefix's own number and its route is `route`, returns
    /// `has`. Returns `None` if no number below `limit` is free. If the prefix doesn't acquire a new number,
    /// the number is freed when all workers have passed the current epoch.
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

    /// Returns whether a number is a prefix's own number.
    pub fn is_own(&self, number: u32) -> bool {
        self.slots.get(number as usize).is_some_and(|slot| slot.given && slot.own)
    }

    /// Counts a prefix that gets a number.
    pub fn acquire(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.prefixes += 1;
        slot.known = true;
    }

    /// Counts a prefix that loses a number. Returns the number's route.
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

    /// Frees the numbers that lost their last prefix in `epoch` or before, and returns them. A number for
    /// which `keeps` is true is not freed; it waits for the end of the current epoch.
    pub fn quiesced(&mut self, epoch: Epoch, keeps: impl Fn(u32) -> bool) -> Vec<u32> {
        let (now, mut freed) = (self.retired.epoch(), Vec::new());
        while let Some((retired, number)) = self.retired.pop_upto(epoch) {
            let slot = &mut self.slots[number as usize];
            // A number that was acquired and released again is in the list a second time, later.
            if slot.prefixes > 0 || slot.unused != retired || !slot.given {
                continue;
            }
            if retired < now && keeps(number) {
                slot.unused = now;
                self.retired.push(number);
                continue;
            }
            slot.given = false;
            // If a reader still looks up the number by mistake, it finds a harmless route.
            let route = std::mem::replace(&mut slot.route, Route::Blackhole);
            if !slot.own {
                self.numbers.remove(&route);
            }
            self.free.push(Reverse(number));
            freed.push(number);
        }
        freed
    }

    /// Returns the number of retired entries that wait for workers to pass an epoch.
    pub fn waiting(&self) -> usize {
        self.retired.len()
    }

    /// Returns the route of a number in use.
    pub fn route(&self, number: u32) -> &Route {
        &self.slots[number as usize].route
    }

    /// Returns whether a number is in use.
    pub fn is_given(&self, number: u32) -> bool {
        self.slots.get(number as usize).is_some_and(|slot| slot.given)
    }

    /// Returns how many numbers belong to routes, including retired routes.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
