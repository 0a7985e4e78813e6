//! Batch lookup of the routes of destinations.

use millrace_packet::BATCH_SIZE;
use millrace_units::NextHopIndex;

use crate::each::Each;

/// Value in `places` for packets that are not looked up.
const NOWHERE: u16 = u16::MAX;

/// Destinations of one family whose routes are looked up together, at most a batch.
#[derive(Debug)]
pub(crate) struct Addresses<A> {
    places: Each<u16>,
    addresses: Each<A>,
    numbers: Each<Option<NextHopIndex>>,
    count: usize,
}

impl<A: Copy> Addresses<A> {
    /// Returns an empty list. `any` fills the unused positions.
    pub fn new(any: A) -> Self {
        Self { places: Each::new(NOWHERE), addresses: Each::new(any), numbers: Each::new(None), count: 0 }
    }

    /// Removes all destinations.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds the destination of the packet at index `place` of the batch. Does nothing if the list is full.
    #[inline(always)]
    pub fn push(&mut self, place: u16, address: A) {
        let at = self.count;
        if at < BATCH_SIZE {
            (self.places[at], self.addresses[at]) = (place, address);
            self.count = at + 1;
        }
    }

    /// Sets the list to the destinations of all packets of a batch, in their order.
    #[inline(always)]
    pub fn ask_all(&mut self, addresses: impl ExactSizeIterator<Item = A>) {
        self.count = addresses.len().min(BATCH_SIZE);
        for (own, address) in self.addresses.all_mut().iter_mut().zip(addresses) {
            *own = address;
        }
    }

    /// Returns the route numbers of all packets of a batch, after [`ask_all`](Self::ask_all) and the lookup.
    #[inline]
    pub fn all_found(&self) -> &[Option<NextHopIndex>] {
        &self.numbers[..self.count]
    }

    /// Looks up the routes of all destinations with `look_up`.
    pub fn look_up(&mut self, look_up: impl FnOnce(&[A], &mut [Option<NextHopIndex>])) {
        let numbers = &mut self.numbers[..self.count];
        numbers.fill(None);
        look_up(&self.addresses[..self.count], numbers);
    }

    /// Returns the batch index of each packet, with its route number.
    #[inline]
    pub fn found(&self) -> impl Iterator<Item = (usize, Option<NextHopIndex>)> + use<'_, A> {
        let both = self.places[..self.count].iter().zip(&self.numbers[..self.count]);
        both.map(|(place, number)| (usize::from(*place), *number))
    }
}
