//! Log of the latest changes to filters and routes. Only flows that a change concerns are classified again;
//! for all other flows, the worker only looks into the log.
//!
//! Every change gets a generation. A flow record stores the generation in which its classification was last
//! valid. If this is not the current generation, [`ChangeLog::touches`] reports whether a later change
//! concerns the flow's key.
//!
//! The log stores the latest filter changes one by one. Routes may change 100,000 times a second, so it
//! stores route changes by coarse regions of the address space. After a change in a flow's region, the worker
//! looks up the flow's route again.

use std::collections::VecDeque;
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_packet::FlowKey;

use crate::{Candidate, CompiledFilter};

/// Number of filter changes that the log stores. A flow record older than all of them is classified again.
const FILTERS: usize = 64;
/// Number of leading bits of an IPv4 address that determine its region.
const REGION4: u8 = 12;
/// Number of leading bits of an IPv6 address that determine its region, by a hash.
const REGION6: u8 = 24;
const REGIONS: usize = 4096;
/// Number of generations between two renewals of the log.
const RENEWAL: u32 = 1 << 30;

/// Effect of changes on the answer in a flow record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// No effect: the answer is still valid.
    Nothing,
    /// The route to the flow's destination or source may have changed.
    Route,
    /// Any part of the answer may have changed.
    All,
}

/// Log of the latest changes.
///
/// Generations are 32-bit counters that wrap. A record must be checked or removed at least once in 2^31
/// generations, which take 59 hours at 10,000 a second. The log renews its own generations before they reach
/// that age.
#[derive(Debug)]
pub struct ChangeLog {
    current: u32,
    filters: VecDeque<(u32, CompiledFilter)>,
    /// The log has all changes after this generation. Flows whose records are older are classified again.
    complete_from: u32,
    /// Generation of the last route change in each region. A wide IPv4 route changes several regions.
    regions4: Box<[u32]>,
    regions6: Box<[u32]>,
    /// Generation of the last change of an IPv6 route with a prefix shorter than a region's.
    wide6: u32,
}

impl Default for ChangeLog {
    fn default() -> Self {
        let regions = || vec![0; REGIONS].into_boxed_slice();
        Self {
            current: 0,
            filters: VecDeque::with_capacity(FILTERS + 1),
            complete_from: 0,
            regions4: regions(),
            regions6: regions(),
            wide6: 0,
        }
    }
}

/// Whether generation `a` is later than `b`.
#[inline]
fn later(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl ChangeLog {
    /// Returns the current generation.
    #[inline]
    pub fn current(&self) -> u32 {
        self.current
    }

    /// Begins a generation. Once in 2^30 generations, makes all flow records stale, and sets all stored
    /// generations to the current one. Without this renewal, a stored generation that is 2^31 generations old
    /// would seem later than any record's generation.
    fn begin_generation(&mut self) {
        self.current = self.current.wrapping_add(1);
        if self.current.is_multiple_of(RENEWAL) {
            self.complete_from = self.current;
            self.filters.clear();
            self.regions4.fill(self.current);
            self.regions6.fill(self.current);
            self.wide6 = self.current;
        }
    }

    /// Records that `filter` was added, removed or changed.
    pub fn filter_changed(&mut self, filter: CompiledFilter) {
        self.begin_generation();
        self.filters.push_back((self.current, filter));
        if self.filters.len() > FILTERS
            && let Some((generation, _)) = self.filters.pop_front()
        {
            self.complete_from = generation;
        }
    }

    /// Begins a generation for route changes. Record them with [`route_changed`](Self::route_changed).
    pub fn begin_routes(&mut self) {
        self.begin_generation();
    }

    /// Records a change of a route to `prefix` in the current generation.
    pub fn route_changed(&mut self, prefix: IpNet) {
        let length = prefix.prefix_len();
        match prefix.network() {
            IpAddr::V4(address) => {
                let first = (address.to_bits() >> (32 - REGION4)) as usize;
                let count = 1 << REGION4.saturating_sub(length);
                self.regions4[first..first + count].fill(self.current);
            }
            IpAddr::V6(address) if length >= REGION6 => {
                self.regions6[region6(&address.octets())] = self.current;
            }
            IpAddr::V6(_) => self.wide6 = self.current,
        }
    }

    /// Records a change that may concern any flow.
    pub fn everything_changed(&mut self) {
        self.begin_generation();
        self.complete_from = self.current;
        self.filters.clear();
    }

    /// Returns the effect of all changes after generation `since` on a flow.
    pub fn touches(&self, key: &FlowKey, since: u32) -> Touch {
        if later(self.complete_from, since) {
            return Touch::All;
        }
        let recent = self.filters.iter().rev().take_while(|(generation, _)| later(*generation, since));
        if recent.into_iter().any(|(_, filter)| concerns(filter, key)) {
            return Touch::All;
        }
        let changed = |address: &[u8; 16]| match key.destination() {
            IpAddr::V4(_) => later(self.regions4[region4(address)], since),
            IpAddr::V6(_) => later(self.regions6[region6(address)], since) || later(self.wide6, since),
        };
        if changed(key.destination_bytes()) || changed(key.source_bytes()) {
            return Touch::Route;
        }
        Touch::Nothing
    }
}

/// Whether some packet of the flow can match the filter. If the flow's transport headers are unreadable, they
/// may hold any values.
fn concerns(filter: &CompiledFilter, key: &FlowKey) -> bool {
    let hidden = |filter: CompiledFilter| Candidate::hidden_keys(key).any(|key| filter.may_match_flow(&key));
    filter.may_match_flow(key)
        || (key.source_port, key.destination_port) == (0, 0) && filter.without_transport().is_some_and(hidden)
}

#[inline]
fn region4(address: &[u8; 16]) -> usize {
    usize::from(address[0]) << 4 | usize::from(address[1]) >> 4
}

#[inline]
fn region6(address: &[u8; 16]) -> usize {
    let bits = u32::from_be_bytes([0, address[0], address[1], address[2]]);
    (bits.wrapping_mul(0x9e37_79b1) >> 20) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filter::tests::{any_candidate, any_filter, resolve};

    /// Change, as the test's reference model stores it.
    #[derive(Clone, Debug)]
    enum Change {
        Filter(crate::Filter),
        Routes(Vec<IpNet>),
        Everything,
    }

    fn any_prefix() -> impl Strategy<Value = IpNet> {
        prop_oneof![
            (0u8..=32, any::<u32>()).prop_map(|(length, address)| {
                IpNet::new(IpAddr::V4(address.into()), length).unwrap().trunc()
            }),
            (0u8..=128, any::<u128>()).prop_map(|(length, address)| {
                IpNet::new(IpAddr::V6(address.into()), length).unwrap().trunc()
            }),
        ]
    }

    fn any_change() -> impl Strategy<Value = Change> {
        prop_oneof![
            8 => any_filter().prop_map(Change::Filter),
            8 => prop::collection::vec(any_prefix(), 1..4).prop_map(Change::Routes),
            1 => Just(Change::Everything),
        ]
    }

    fn make(log: &mut ChangeLog, change: &Change) {
        match change {
            Change::Filter(filter) => log.filter_changed(filter.compile(resolve).unwrap()),
            Change::Routes(prefixes) => {
                log.begin_routes();
                prefixes.iter().for_each(|prefix| log.route_changed(*prefix));
            }
            Change::Everything => log.everything_changed(),
        }
    }

    fn concerns_flow(change: &Change, key: &FlowKey) -> Touch {
        match change {
            Change::Filter(filter) if concerns(&filter.compile(resolve).unwrap(), key) => Touch::All,
            Change::Routes(prefixes)
                if prefixes
                    .iter()
                    .any(|prefix| prefix.contains(&key.destination()) || prefix.contains(&key.source())) =>
            {
                Touch::Route
            }
            Change::Everything => Touch::All,
            _ => Touch::Nothing,
        }
    }

    proptest! {
        #[test]
        fn no_change_that_concerns_a_flow_is_missed(
            changes in prop::collection::vec(any_change(), 0..100),
            since in any::<prop::sample::Index>(),
            start in any::<u32>(),
            candidate in any_candidate(),
        ) {
            let mut log = ChangeLog { current: start, complete_from: start, ..ChangeLog::default() };
            log.regions4.fill(start);
            log.regions6.fill(start);
            log.wide6 = start;
            let mut generations = vec![log.current()];
            for change in &changes {
                make(&mut log, change);
                generations.push(log.current());
            }
            let since = since.index(generations.len());
            let expected: Vec<Touch> =
                changes[since..].iter().map(|change| concerns_flow(change, &candidate.key)).collect();
            let touch = log.touches(&candidate.key, generations[since]);
            if expected.contains(&Touch::All) {
                prop_assert_eq!(touch, Touch::All);
            } else if expected.contains(&Touch::Route) {
                prop_assert_ne!(touch, Touch::Nothing);
            } else if changes[since..].is_empty() {
                prop_assert_eq!(touch, Touch::Nothing);
            }
        }
    }

    #[test]
    fn a_log_in_which_little_changes_touches_no_flow_after_billions_of_generations() {
        let mut log = ChangeLog::default();
        let key =
            FlowKey::v4([10, 1, 0, 1].into(), [10, 2, 0, 1].into(), 17, (1, 2), millrace_units::PortId(0));
        for renewals in 1..=6_u32 {
            // Skip to the last generation before a renewal, as if many routes in other regions had changed.
            log.current = renewals.wrapping_mul(RENEWAL).wrapping_sub(1);
            let before = log.current();
            log.begin_routes();
            assert_eq!(log.touches(&key, before), Touch::All);
            let now = log.current();
            assert_eq!(log.touches(&key, now), Touch::Nothing);
            log.begin_routes();
            assert_eq!(log.touches(&key, now), Touch::Nothing);
        }
    }

    #[test]
    fn unrelated_changes_do_not_affect_a_flow() {
        let mut log = ChangeLog::default();
        let key =
            FlowKey::v4([10, 1, 0, 1].into(), [10, 2, 0, 1].into(), 17, (1, 2), millrace_units::PortId(0));
        let before = log.current();
        log.begin_routes();
        log.route_changed("192.0.2.0/24".parse().unwrap());
        log.route_changed("2001:db8::/32".parse().unwrap());
        let filter: crate::Filter = "proto tcp".parse().unwrap();
        log.filter_changed(filter.compile(|_| None).unwrap());
        assert_eq!(log.touches(&key, before), Touch::Nothing);
        log.begin_routes();
        log.route_changed("10.2.0.0/16".parse().unwrap());
        assert_eq!(log.touches(&key, before), Touch::Route);
        let filter: crate::Filter = "proto udp".parse().unwrap();
        log.filter_changed(filter.compile(|_| None).unwrap());
        assert_eq!(log.touches(&key, before), Touch::All);
        assert_eq!(log.touches(&key, log.current()), Touch::Nothing);
    }
}
