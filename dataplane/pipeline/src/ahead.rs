//! What filters and routes say of the packets of a batch whose flows are not known, asked for all of them together: while
//! one lookup waits for memory, others go on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_classify::Candidate;
use millrace_packet::BATCH_SIZE;
use millrace_units::NextHopIndex;

use crate::each::Each;
use crate::fib::Fib;
use crate::gates::{Gates, Treatment};
use crate::route::NO_ROUTE;

/// With fewer packets it is not quicker than one by one.
const FEWEST: usize = 4;
/// The place of packets that were not asked for.
const NOWHERE: u16 = u16::MAX;

/// Answers for some packets of a batch.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Of each packet of the batch, its place in the lists.
    places: Each<u16>,
    indices: Vec<u16>,
    candidates: Vec<Candidate>,
    next_hops: Vec<NextHopIndex>,
    priorities: Vec<Option<i32>>,
    treatments: Vec<Treatment>,
    v4: Addresses<Ipv4Addr>,
    v6: Addresses<Ipv6Addr>,
}

/// Destinations of one family: as many as a batch may have.
#[derive(Debug)]
pub(crate) struct Addresses<A> {
    places: Each<u16>,
    addresses: Each<A>,
    numbers: Each<Option<NextHopIndex>>,
    count: usize,
}

impl<A: Copy> Addresses<A> {
    /// None; `any` address stands where none was asked for.
    pub fn new(any: A) -> Self {
        Self { places: Each::new(NOWHERE), addresses: Each::new(any), numbers: Each::new(None), count: 0 }
    }

    /// Asks for none.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Asks for one more, for the packet at `place`; of more than a batch has, for no more.
    #[inline(always)]
    pub fn push(&mut self, place: u16, address: A) {
        let at = self.count;
        if at < BATCH_SIZE {
            (self.places[at], self.addresses[at]) = (place, address);
            self.count = at + 1;
        }
    }

    /// Asks for those of all packets of a batch, one for each, and for no others.
    #[inline(always)]
    pub fn ask_all(&mut self, addresses: impl ExactSizeIterator<Item = A>) {
        self.count = addresses.len().min(BATCH_SIZE);
        for (own, address) in self.addresses.all_mut().iter_mut().zip(addresses) {
            *own = address;
        }
    }

    /// What was found for all packets of a batch, which were [asked for](Self::ask_all).
    #[inline]
    pub fn all_found(&self) -> &[Option<NextHopIndex>] {
        &self.numbers[..self.count]
    }

    /// Looks all of them up.
    pub fn look_up(&mut self, look_up: impl FnOnce(&[A], &mut [Option<NextHopIndex>])) {
        let numbers = &mut self.numbers[..self.count];
        numbers.fill(None);
        look_up(&self.addresses[..self.count], numbers);
    }

    /// The places that were asked for, and the routes that were found.
    #[inline]
    pub fn found(&self) -> impl Iterator<Item = (usize, Option<NextHopIndex>)> + use<'_, A> {
        let both = self.places[..self.count].iter().zip(&self.numbers[..self.count]);
        both.map(|(place, number)| (usize::from(*place), *number))
    }
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            places: Each::new(NOWHERE),
            indices: Vec::new(),
            candidates: Vec::new(),
            next_hops: Vec::new(),
            priorities: Vec::new(),
            treatments: Vec::new(),
            v4: Addresses::new(Ipv4Addr::UNSPECIFIED),
            v6: Addresses::new(Ipv6Addr::UNSPECIFIED),
        }
    }
}

impl Ahead {
    /// Forgets the answers for the batch before.
    pub fn clear(&mut self) {
        for index in self.indices.drain(..) {
            self.places[usize::from(index)] = NOWHERE;
        }
        self.candidates.clear();
    }

    /// How many packets are asked for.
    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Adds the packet at `index` of the batch.
    pub fn ask(&mut self, index: usize, candidate: Candidate) {
        self.indices.push(index as u16);
        self.candidates.push(candidate);
    }

    /// Finds the answers. A flow that has a route counts with priority `route`.
    pub fn look_up(&mut self, fib: &Fib, gates: &mut Gates, route: i32) {
        if self.candidates.len() < FEWEST {
            return;
        }
        self.v4.clear();
        self.v6.clear();
        for (place, candidate) in (0..).zip(&self.candidates) {
            match candidate.key.destination() {
                IpAddr::V4(address) => self.v4.push(place, address),
                IpAddr::V6(address) => self.v6.push(place, address),
            }
        }
        self.next_hops.clear();
        self.next_hops.resize(self.candidates.len(), NO_ROUTE);
        self.v4.look_up(|addresses, numbers| fib.lookup4_batch(addresses, numbers));
        self.v6.look_up(|addresses, numbers| fib.lookup6_batch(addresses, numbers));
        for (place, number) in self.v4.found().chain(self.v6.found()) {
            if let Some(next_hop) = self.next_hops.get_mut(place) {
                *next_hop = number.unwrap_or(NO_ROUTE);
            }
        }
        self.priorities.clear();
        self.priorities.extend(self.next_hops.iter().map(|hop| (*hop != NO_ROUTE).then_some(route)));
        gates.classify_batch(&self.candidates, &self.priorities, &mut self.treatments);
        for (place, index) in (0..).zip(&self.indices) {
            self.places[usize::from(*index)] = place;
        }
    }

    /// What was found for the packet at `index`: the number of its route, and its treatment.
    pub fn answer(&self, index: usize) -> Option<(NextHopIndex, Treatment)> {
        let place = usize::from(self.places[index]);
        Some((*self.next_hops.get(place)?, *self.treatments.get(place)?))
    }
}
