//! Rate limit of requests for new neighbours at a port, which no single origin of packets can use up (RFC
//! 6583, 6.1 and 7).
//!
//! A scan of the addresses of a link causes far more requests than the rate allows. So each ingress port and
//! each source address has a small share of its own. A part of the token bucket is reserved for origins that
//! have not used up their shares. Senders can forge source addresses, but not ingress ports.

use std::hash::BuildHasher as _;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use millrace_units::{Instant, PortId, TokenBucket};

use crate::RateLimit;

/// Number of token buckets for the shares of ingress ports; also the number for the shares of source
/// addresses.
const SHARES: usize = 16;
/// Divisor of the rate limit: the shares of all ingress ports together are a quarter of the limit, and so are
/// the shares of all source addresses together.
const PART: u32 = 4;

/// Origin of a packet that waits for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Ingress port of the packet.
    pub port: PortId,
    /// Source address of the packet; `None` if it is unknown.
    pub source: Option<IpAddr>,
}

/// Rate limiter of the requests at an egress port.
#[derive(Debug)]
pub(super) struct Requests {
    all: TokenBucket,
    /// Tokens reserved for origins that have not used up their shares.
    kept: u32,
    by_port: [TokenBucket; SHARES],
    by_source: [TokenBucket; SHARES],
    hasher: FixedState,
}

impl Requests {
    /// Creates a limiter. Its burst is a quarter above that of `limit`; the additional part is reserved for
    /// origins that have not used up their shares.
    pub fn new(limit: RateLimit, seed: u64) -> Self {
        let RateLimit { per_second, burst } = limit;
        let kept = burst / PART;
        let share = RateLimit { per_second: per_second / PART / SHARES as u32, burst: (burst / 16).max(1) };
        Self {
            all: RateLimit { per_second, burst: burst.saturating_add(kept) }.bucket(),
            kept,
            by_port: [share.bucket(); SHARES],
            by_source: [share.bucket(); SHARES],
            hasher: FixedState::with_seed(seed),
        }
    }

    /// Returns whether a request caused by a packet of this origin is within the limit, and counts it if so.
    pub fn take(&mut self, origin: Origin, now: Instant) -> bool {
        let source = origin.source.map(|source| self.hasher.hash_one(source) as usize % SHARES);
        let by_port = self.by_port.get_mut(usize::from(origin.port.0) % SHARES);
        let mut has_share = by_port.is_some_and(|share| share.take(now));
        if !has_share {
            let by_source = source.and_then(|place| self.by_source.get_mut(place));
            has_share = by_source.is_some_and(|share| share.take(now));
        }
        self.all.take_above(if has_share { 0 } else { self.kept }, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(port: u16, source: u32) -> Origin {
        Origin { port: PortId(port), source: Some(std::net::Ipv4Addr::from_bits(source).into()) }
    }

    /// Simulates 10 seconds with 10,000 requests a second by `scan` and two requests a second by `other`.
    /// Returns the number of granted requests of `other`, and of both together.
    fn granted(scan: impl Fn(u32) -> Origin, other: Origin) -> (u32, u32) {
        let mut requests = Requests::new(RateLimit { per_second: 200, burst: 50 }, 7);
        let (mut got, mut all) = (0, 0);
        for number in 0..100_000 {
            let now = Instant::from_nanos(u64::from(number) * 100_000);
            all += u32::from(requests.take(scan(number), now));
            if number % 5000 == 4999 {
                got += u32::from(requests.take(other, now));
            }
        }
        (got, got + all)
    }

    #[test]
    fn scan_leaves_requests_to_other_ports_of_arrival_though_sources_are_forged() {
        for forges in [false, true] {
            let (got, all) = granted(|number| origin(1, if forges { number } else { 9 }), origin(2, 10));
            assert_eq!(got, 20, "{forges}");
            assert!((2000..=2070).contains(&all), "{all}");
        }
    }

    #[test]
    fn scan_leaves_requests_to_most_other_sources_behind_the_same_port() {
        let served = (10..42).filter(|source| granted(|_| origin(1, 9), origin(1, *source)).0 == 20);
        // About a sixteenth of the sources shares a token bucket with the scanner.
        assert!(served.count() >= 26);
    }

    #[test]
    fn lone_origin_gets_the_whole_burst() {
        let mut requests = Requests::new(RateLimit { per_second: 200, burst: 50 }, 7);
        let taken = (0..1000).filter(|_| requests.take(origin(1, 9), Instant::ZERO)).count();
        assert_eq!(taken, 50);
    }
}
