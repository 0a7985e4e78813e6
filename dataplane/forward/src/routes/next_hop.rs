//! Next hops of a route, and the choice among them by flow (ECMP).
//!
//! The choice is rendezvous hashing (Thaler and Ravishankar 1998; RFC 2991, 3, calls it highest random
//! weight). Each next hop gets a score from the flow's hash and its own identity, and the highest score wins.
//! So a removed next hop moves only its own flows, and a new one takes its share evenly. With weights the
//! score is ln(u) / w for a uniform u, which gives each next hop a share in proportion to its weight.

use std::fmt;
use std::net::IpAddr;

use millrace_units::{PortId, SplitMix};

/// Maximum number of next hops of a route.
pub const MAX_NEXT_HOPS: usize = 64;

/// Next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHop {
    /// Egress port.
    pub port: PortId,
    /// Address of the next router; `None` if destinations are on the link. May be an IPv6 address for an IPv4
    /// route (RFC 8950).
    pub gateway: Option<IpAddr>,
    /// Share of the flows relative to the other next hops; 0 counts as 1.
    pub weight: u16,
}

impl NextHop {
    /// Creates a next hop of weight 1.
    pub const fn new(port: PortId, gateway: Option<IpAddr>) -> Self {
        Self { port, gateway, weight: 1 }
    }

    /// Returns the address to resolve for a packet to `destination`.
    #[inline]
    pub fn neighbour(&self, destination: IpAddr) -> IpAddr {
        self.gateway.unwrap_or(destination)
    }

    /// Returns a hash of port and gateway, which the weight doesn't affect.
    fn identity(&self) -> u64 {
        let (family, address) = match self.gateway {
            None => (0, 0),
            Some(IpAddr::V4(address)) => (4, u128::from(address.to_bits())),
            Some(IpAddr::V6(address)) => (6, address.to_bits()),
        };
        let port = u64::from(self.port.0) << 8 | family;
        mix(mix(mix(port) ^ (address >> 64) as u64) ^ address as u64)
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(gateway) = self.gateway {
            write!(f, "via {gateway} ")?;
        }
        write!(f, "port {} weight {}", self.port, self.weight)
    }
}

/// Spreads every input bit over all output bits.
#[inline]
const fn mix(value: u64) -> u64 {
    SplitMix::new(value).word()
}

/// Reason why a list of next hops is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopsError {
    /// No next hop was given.
    #[error("a forwarding route needs 1 to {MAX_NEXT_HOPS} next hops, but has none")]
    None,
    /// More next hops were given than a route can have.
    #[error("a route has {0} next hops; the limit is {MAX_NEXT_HOPS}")]
    TooMany(usize),
}

/// Next hops of a route: 1 to [`MAX_NEXT_HOPS`], in an order that depends only on the next hops themselves.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NextHops {
    hops: Box<[NextHop]>,
    identities: Box<[u64]>,
    equal_weights: bool,
}

impl NextHops {
    /// Creates the set of the next hops `hops`. Next hops that differ only in weight are merged, with the sum
    /// of the weights.
    pub fn new(hops: &[NextHop]) -> Result<Self, NextHopsError> {
        let mut hops: Vec<NextHop> =
            hops.iter().map(|hop| NextHop { weight: hop.weight.max(1), ..*hop }).collect();
        hops.sort_unstable();
        hops.dedup_by(|later, kept| {
            let same = (later.port, later.gateway) == (kept.port, kept.gateway);
            if same {
                kept.weight = kept.weight.saturating_add(later.weight);
            }
            same
        });
        match hops.len() {
            0 => Err(NextHopsError::None),
            1..=MAX_NEXT_HOPS => Ok(Self {
                identities: hops.iter().map(NextHop::identity).collect(),
                equal_weights: hops.windows(2).all(|pair| matches!(pair, [a, b] if a.weight == b.weight)),
                hops: hops.into(),
            }),
            count => Err(NextHopsError::TooMany(count)),
        }
    }

    /// Creates a set of one next hop.
    pub fn single(hop: NextHop) -> Self {
        let hop = NextHop { weight: hop.weight.max(1), ..hop };
        Self { identities: Box::new([hop.identity()]), hops: Box::new([hop]), equal_weights: true }
    }

    /// Returns the next hop of the flow with this hash. A flow keeps its next hop as long as that next hop is
    /// in the set.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "a set has one hop or more, and a rendezvous chooses one of them"
    )]
    pub fn select(&self, hash: u32) -> &NextHop {
        if self.hops.len() == 1 { &self.hops[0] } else { &self.hops[self.rendezvous(hash)] }
    }

    /// Returns the next hop of the flow with this hash among the `usable` ones; `None` if none is usable. A
    /// flow keeps its next hop if that next hop is usable.
    #[cold]
    pub fn select_among(&self, hash: u32, usable: impl Fn(&NextHop) -> bool) -> Option<&NextHop> {
        let score =
            |(hop, identity): &(&NextHop, &u64)| weighted_score(mix(*identity ^ u64::from(hash)), hop.weight);
        let candidates = self.hops.iter().zip(&self.identities).filter(|(hop, _)| usable(hop));
        candidates.max_by(|a, b| score(a).total_cmp(&score(b))).map(|(hop, _)| hop)
    }

    fn rendezvous(&self, hash: u32) -> usize {
        let draws = self.identities.iter().map(|identity| mix(identity ^ u64::from(hash)));
        let best = if self.equal_weights {
            // The logarithm is monotone. Without weights, the draws themselves have the same order as the
            // scores.
            draws.enumerate().max_by_key(|(_, draw)| *draw)
        } else {
            let weighted = |(draw, hop): (u64, &NextHop)| weighted_score(draw, hop.weight);
            let scores = draws.zip(&*self.hops).map(weighted).enumerate();
            return scores.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at);
        };
        best.map_or(0, |(at, _)| at)
    }

    /// Iterates over the next hops.
    pub fn iter(&self) -> std::slice::Iter<'_, NextHop> {
        self.hops.iter()
    }

    /// Returns the number of next hops, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a set has at least one next hop")]
    pub fn len(&self) -> usize {
        self.hops.len()
    }
}

/// Returns the score ln(u) / w, where u in (0, 1] is made from the 64 random bits of `draw`. The score is 0
/// or below; the highest score wins.
fn weighted_score(draw: u64, weight: u16) -> f64 {
    let uniform = ((draw >> 11) + 1) as f64 / (1u64 << 53) as f64;
    uniform.ln() / f64::from(weight)
}

impl<'a> IntoIterator for &'a NextHops {
    type Item = &'a NextHop;
    type IntoIter = std::slice::Iter<'a, NextHop>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for NextHops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.hops).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn hop(number: u16, weight: u16) -> NextHop {
        let gateway = IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
        NextHop { port: PortId(number), gateway: Some(gateway), weight }
    }

    fn shares(hops: &NextHops, flows: u32) -> HashMap<NextHop, f64> {
        let mut counts = HashMap::new();
        for flow in 0..flows {
            *counts.entry(*hops.select(mix(flow.into()) as u32)).or_insert(0.0) += 1.0 / f64::from(flows);
        }
        counts
    }

    /// Test case FW-02.
    #[test]
    fn four_next_hops_get_a_quarter_of_ten_thousand_flows_each() {
        let hops = NextHops::new(&[hop(1, 1), hop(2, 1), hop(3, 1), hop(4, 1)]).unwrap();
        for (hop, share) in shares(&hops, 10_000) {
            assert!((0.22..=0.28).contains(&share), "{hop}: {share}");
        }
    }

    /// Test case FW-03: if one next hop is unusable, flows choose as in a set that lacks it.
    #[test]
    fn flows_choose_among_remaining_next_hops_as_in_a_set_of_them() {
        for weight in [1, 3] {
            let all = NextHops::new(&[hop(1, 1), hop(2, weight), hop(3, 1), hop(4, 1)]).unwrap();
            let left = NextHops::new(&[hop(1, 1), hop(2, weight), hop(4, 1)]).unwrap();
            for hash in (0..1000).map(|flow: u64| mix(flow) as u32) {
                assert_eq!(all.select_among(hash, |hop| hop.port != PortId(3)), Some(left.select(hash)));
            }
            assert_eq!(all.select_among(7, |_| false), None);
        }
    }

    /// Flow hashes that differ in few bits spread over the next hops as evenly as random hashes.
    #[test]
    fn consecutive_hashes_are_spread() {
        let hops = NextHops::new(&[hop(1, 1), hop(2, 1), hop(3, 1), hop(4, 1)]).unwrap();
        let first = (0..10_000u32).filter(|hash| hops.select(*hash).port == PortId(1)).count();
        assert!((2_200..=2_800).contains(&first), "{first}");
    }

    #[test]
    fn shares_follow_the_weights() {
        let hops = NextHops::new(&[hop(1, 1), hop(2, 3), hop(3, 6)]).unwrap();
        for (hop, share) in shares(&hops, 20_000) {
            let expected = f64::from(hop.weight) / 10.0;
            assert!((share - expected).abs() < 0.02, "{hop}: {share} instead of {expected}");
        }
    }

    #[test]
    fn the_order_of_the_next_hops_does_not_matter_and_twins_become_one() {
        let one = NextHops::new(&[hop(1, 1), hop(2, 1), hop(1, 2)]).unwrap();
        let other = NextHops::new(&[hop(1, 3), hop(2, 1)]).unwrap();
        assert_eq!(one, other);
    }

    #[test]
    fn none_and_too_many_are_refused() {
        assert_eq!(NextHops::new(&[]), Err(NextHopsError::None));
        let many: Vec<_> = (0..65).map(|number| hop(number, 1)).collect();
        assert_eq!(NextHops::new(&many), Err(NextHopsError::TooMany(65)));
    }

    proptest! {
        /// Test case FW-02: if a next hop is removed, only its own flows move, with any weights.
        #[test]
        fn removed_next_hop_moves_only_its_flows(
            weights in proptest::collection::vec(1u16..10, 2..20), lost: prop::sample::Index, flow: u32,
        ) {
            let all: Vec<_> = weights.iter().zip(0..).map(|(weight, number)| hop(number, *weight)).collect();
            let lost = all[lost.index(all.len())];
            let rest: Vec<_> = all.iter().copied().filter(|hop| *hop != lost).collect();
            let before = *NextHops::new(&all).unwrap().select(flow);
            let after = *NextHops::new(&rest).unwrap().select(flow);
            prop_assert!(before == lost || before == after);
        }
    }
}
