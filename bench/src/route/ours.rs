//! Millrace's route table and its measurements.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use millrace_forward::{FibReader, NextHop, NextHops, Route, RouteIndex, SharedFib};
use millrace_units::PortId;

use super::tables::{Prefix, ROUTES, net};
use crate::BenchError;
use crate::family::Family;

/// Number of addresses per lookup call, as in a worker's batch.
const BATCH: usize = 256;
/// Number of updates per grace period, if no reader runs.
const EPOCH: usize = 1000;

/// Stream of addresses to look up.
pub(super) enum Addresses {
    V4(Vec<Ipv4Addr>),
    V6(Vec<Ipv6Addr>),
}

impl Addresses {
    pub fn new(family: Family, bits: &[u128]) -> Self {
        match family {
            Family::V4 => {
                Self::V4(bits.iter().map(|bits| Ipv4Addr::from_bits((bits >> 96) as u32)).collect())
            }
            Family::V6 => Self::V6(bits.iter().map(|bits| Ipv6Addr::from_bits(*bits)).collect()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::V4(addresses) => addresses.len(),
            Self::V6(addresses) => addresses.len(),
        }
    }

    /// Looks up all addresses in batches. Returns the nanoseconds per lookup, and the sum of the found route
    /// numbers, which start at 1.
    pub fn look_up(&self, reader: &FibReader) -> (f64, u64) {
        let start = Instant::now();
        let sum = self.sum(reader);
        (start.elapsed().as_secs_f64() * 1e9 / self.len() as f64, sum)
    }

    /// Looks up all addresses in batches. Returns the sum of the found route numbers, which start at 1.
    #[inline(always)]
    pub fn sum(&self, reader: &FibReader) -> u64 {
        match self {
            Self::V4(addresses) => sum(addresses, |batch, found| reader.lookup4_batch(batch, found)),
            Self::V6(addresses) => sum(addresses, |batch, found| reader.lookup6_batch(batch, found)),
        }
    }

    /// Looks up each address separately. Returns the nanoseconds per lookup, and the sum of the found route
    /// numbers, which start at 1.
    pub fn look_up_singly(&self, reader: &FibReader) -> (f64, u64) {
        let start = Instant::now();
        let number = |found: Option<RouteIndex>| found.map_or(0, |index| u64::from(index.0) + 1);
        let sum = match self {
            Self::V4(addresses) => addresses.iter().map(|address| number(reader.lookup4(*address))).sum(),
            Self::V6(addresses) => addresses.iter().map(|address| number(reader.lookup6(*address))).sum(),
        };
        (start.elapsed().as_secs_f64() * 1e9 / self.len() as f64, sum)
    }
}

fn sum<A>(addresses: &[A], look_up: impl Fn(&[A], &mut [Option<RouteIndex>])) -> u64 {
    let mut found = [None; BATCH];
    let mut sum = 0;
    for batch in addresses.chunks(BATCH) {
        let found = &mut found[..batch.len()];
        look_up(batch, found);
        sum += found.iter().flatten().map(|index| u64::from(index.0) + 1).sum::<u64>();
    }
    sum
}

/// Millrace's route table, with the routes to which its prefixes lead.
pub(super) struct Ours {
    pub fib: SharedFib,
    family: Family,
    routes: Vec<RouteIndex>,
}

impl Ours {
    /// Returns a table without prefixes.
    pub fn new(family: Family) -> Result<Self, BenchError> {
        let fail =
            |error: millrace_forward::MemoryError| BenchError::measurement("routes", error.to_string());
        let mut fib = SharedFib::new().map_err(fail)?;
        let route = |number: u32| {
            let gateway = Ipv4Addr::from_bits(0x0a00_0001 + number);
            Route::Forward(NextHops::single(NextHop::new(PortId(1), Some(gateway.into()))))
        };
        let routes = (0..ROUTES).map(|number| fib.intern(route(number)).0).collect();
        Ok(Self { fib, family, routes })
    }

    pub fn insert(&mut self, prefix: &Prefix) -> Result<(), BenchError> {
        let fail = |error: millrace_forward::FibFull| BenchError::measurement("routes", error.to_string());
        let prefix_net = net(self.family, prefix.bits, prefix.length);
        self.fib.store(prefix_net, self.routes[prefix.route as usize]).map(drop).map_err(fail)
    }

    pub fn remove(&mut self, prefix: &Prefix) {
        self.fib.remove(net(self.family, prefix.bits, prefix.length));
    }

    /// Removes `count` prefixes of the table and adds them again; returns the duration.
    pub fn update(&mut self, table: &[Prefix], count: usize) -> Result<Duration, BenchError> {
        let start = Instant::now();
        for (number, prefix) in table.iter().step_by(table.len() / count).take(count).enumerate() {
            self.remove(prefix);
            self.insert(prefix)?;
            if number % EPOCH == 0 {
                let epoch = self.fib.close_epoch();
                self.fib.quiesced(epoch);
            }
        }
        Ok(start.elapsed())
    }

    /// Adds and removes new prefixes of `length` bits, which are spread over the table. Returns the duration
    /// of the slowest single change.
    pub fn slowest(&mut self, table: &[Prefix], length: u8) -> Result<Duration, BenchError> {
        let mut slowest = Duration::ZERO;
        for prefix in table.iter().step_by((table.len() / 20).max(1)) {
            let bits = prefix.bits & u128::MAX << (128 - u32::from(length));
            if self.fib.get(net(self.family, bits, length)).is_some() {
                continue;
            }
            let prefix = Prefix { bits, length, route: 0 };
            let start = Instant::now();
            self.insert(&prefix)?;
            let middle = Instant::now();
            self.remove(&prefix);
            slowest = slowest.max(middle - start).max(middle.elapsed());
        }
        Ok(slowest)
    }
}
