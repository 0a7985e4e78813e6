//! Batch lookup of routes and filters for packets without a flow record. While one packet's lookup waits for
//! memory, the lookups of other packets continue.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_classify::Candidate;
use millrace_units::NextHopIndex;

use crate::each::Each;
use crate::forward::addresses::Addresses;
use crate::forward::fib::Fib;
use crate::gates::{Gates, Treatment};
use crate::route_number::NO_ROUTE;

/// Minimum number of packets for which a batch lookup is faster than single lookups.
const FEWEST: usize = 4;
/// Value of `places` for packets without a batch lookup.
const NOWHERE: u16 = u16::MAX;

/// Packets of a batch whose routes and treatments are looked up together, with the results.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Index of each packet of the batch into the vectors below; [`NOWHERE`] without a batch lookup.
    places: Each<u16>,
    indices: Vec<u16>,
    candidates: Vec<Candidate>,
    next_hops: Vec<NextHopIndex>,
    priorities: Vec<Option<i32>>,
    treatments: Vec<Treatment>,
    v4: Addresses<Ipv4Addr>,
    v6: Addresses<Ipv6Addr>,
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
    /// Removes the packets and results of the previous batch.
    pub fn clear(&mut self) {
        for index in self.indices.drain(..) {
            self.places[usize::from(index)] = NOWHERE;
        }
        self.candidates.clear();
    }

    /// Returns the number of packets to look up.
    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Adds the packet at `index` of the batch.
    pub fn ask(&mut self, index: usize, candidate: Candidate) {
        self.indices.push(index as u16);
        self.candidates.push(candidate);
    }

    /// Looks up routes and treatments of all added packets, unless there are fewer than [`FEWEST`]. `route`:
    /// priority of FIB routes, which the priorities of filters are compared with.
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
        self.v4.look_up(|addresses, numbers| fib.prefixes.lookup4_batch(addresses, numbers));
        self.v6.look_up(|addresses, numbers| fib.prefixes.lookup6_batch(addresses, numbers));
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

    /// Returns the route number and the treatment of the packet at `index`; `None` without a batch lookup.
    pub fn answer(&self, index: usize) -> Option<(NextHopIndex, Treatment)> {
        let place = usize::from(self.places[index]);
        Some((*self.next_hops.get(place)?, *self.treatments.get(place)?))
    }
}
