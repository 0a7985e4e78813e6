//! Tests of the resolver: sequences of events for neighbours, under a virtual clock.

use super::*;
use std::net::IpAddr;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const REPLY: Heard = Heard::Advertisement { solicited: true, overrides: true };
const GRATUITOUS: Heard = Heard::Advertisement { solicited: false, overrides: true };

/// Origin of the packets that need neighbours.
const HOST: Origin = Origin { port: PortId(3), source: None };

fn key(number: u16) -> NeighbourKey {
    let [high, low] = number.to_be_bytes();
    NeighbourKey { port: PortId(1), address: IpAddr::from([10, 1, high, low]) }
}

fn second(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn ask(key: NeighbourKey) -> Action {
    Action::SendRequest { key, to: None }
}

fn probe(key: NeighbourKey) -> Action {
    Action::SendRequest { key, to: Some(MAC) }
}

/// Resolver under test, and its actions since the last check.
struct Bench {
    resolver: Resolver,
    actions: Vec<Action>,
}

impl Bench {
    fn new() -> Self {
        Self { resolver: Resolver::new(ResolverSettings::default(), 1), actions: Vec::new() }
    }

    /// Creates a bench in which neighbour 1 was resolved at second 0.
    fn resolved() -> Self {
        let mut bench = Self::new();
        bench.resolver.solicit(key(1), HOST, second(0), &mut bench.actions);
        assert!(bench.heard(MAC, REPLY, 0));
        bench.taken();
        bench
    }

    fn taken(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    fn heard(&mut self, mac: MacAddr, how: Heard, at: u64) -> bool {
        self.resolver.heard(key(1), mac, how, second(at), &mut self.actions)
    }

    fn used(&mut self, at: u64) -> Vec<Action> {
        self.resolver.used(key(1), second(at), &mut self.actions);
        self.taken()
    }

    fn solicit(&mut self, at: u64) -> Solicited {
        self.resolver.solicit(key(1), HOST, second(at), &mut self.actions)
    }

    fn poll(&mut self, at: u64) -> Vec<Action> {
        self.resolver.poll(second(at), &mut self.actions);
        self.taken()
    }
}

/// Test cases DU-02 and ND-03: at most one request a second, three in all, then failure.
#[test]
fn a_silent_neighbour_is_asked_three_times_and_has_failed() {
    let mut bench = Bench::new();
    assert_eq!(bench.solicit(0), Solicited::Pending);
    assert_eq!(bench.solicit(0), Solicited::Pending);
    assert_eq!(bench.taken(), [ask(key(1))]);
    assert_eq!(bench.resolver.next_event(), Some(second(1)));
    assert_eq!(bench.poll(1), [ask(key(1))]);
    bench.resolver.poll(Instant::from_millis(1999), &mut bench.actions);
    assert_eq!(bench.poll(2), [ask(key(1))]);
    assert_eq!(bench.poll(3), [Action::Failed { key: key(1) }]);
    assert_eq!(bench.solicit(3), Solicited::Failed);
    assert_eq!(bench.poll(4), [Action::Forgotten { key: key(1) }]);
    assert_eq!(bench.solicit(4), Solicited::Pending, "and then it is asked for again");
    assert_eq!(bench.taken(), [ask(key(1))]);
}

#[test]
fn an_answer_resolves_and_holds_thirty_seconds() {
    let mut bench = Bench::new();
    bench.solicit(0);
    bench.taken();
    assert!(bench.heard(MAC, REPLY, 1));
    assert_eq!(bench.taken(), [Action::Resolved { key: key(1), mac: MAC }]);
    assert_eq!(bench.solicit(1), Solicited::Known(MAC));
    assert_eq!((bench.poll(30), bench.used(30)), (vec![], vec![]), "used, but confirmed lately");
    assert_eq!(bench.poll(31), [], "stale, and not asked for unless used");
    assert_eq!(bench.used(40), [probe(key(1))]);
    assert!(bench.heard(MAC, REPLY, 40));
    assert_eq!((bench.taken(), bench.used(69)), (vec![], vec![]), "confirmed for another thirty");
}

/// Test case ND-04: a neighbour stops answering, and is removed after three probes.
#[test]
fn a_neighbour_that_does_not_answer_probes_is_forgotten() {
    let mut bench = Bench::resolved();
    bench.poll(30);
    assert_eq!(bench.used(31), [probe(key(1))]);
    assert_eq!(bench.used(31), [], "one probe at a time");
    assert_eq!((bench.poll(32), bench.poll(33)), (vec![probe(key(1))], vec![probe(key(1))]));
    assert_eq!(bench.poll(34), [Action::Forgotten { key: key(1) }]);
    assert_eq!(bench.solicit(34), Solicited::Pending);
    assert_eq!(bench.taken(), [ask(key(1))], "now everybody is asked");
}

#[test]
fn an_unused_neighbour_is_forgotten_in_the_end() {
    let mut bench = Bench::resolved();
    assert_eq!(bench.poll(30), []);
    assert_eq!(bench.poll(629), []);
    assert_eq!(bench.poll(630), [Action::Forgotten { key: key(1) }]);
    assert!(bench.resolver.is_empty() && bench.resolver.next_event().is_none());
}

/// Test case AR-04.
#[test]
fn gratuitous_arp_changes_the_known_and_creates_nothing() {
    let mut bench = Bench::new();
    assert!(!bench.heard(MAC, GRATUITOUS, 0));
    assert!(!bench.heard(MAC, REPLY, 0));
    assert!(bench.resolver.is_empty() && bench.actions.is_empty());
    let mut bench = Bench::resolved();
    assert!(bench.heard(OTHER, GRATUITOUS, 1));
    assert_eq!(bench.taken(), [Action::Resolved { key: key(1), mac: OTHER }]);
}

/// Test case AR-04.
#[test]
fn a_static_neighbour_stays() {
    let mut bench = Bench::new();
    bench.resolver.set_static(key(1), MAC, &mut bench.actions);
    assert_eq!(bench.taken(), [Action::Resolved { key: key(1), mac: MAC }]);
    for how in [REPLY, GRATUITOUS, Heard::Solicitation] {
        assert!(!bench.heard(OTHER, how, 1));
    }
    assert_eq!((bench.used(1), bench.poll(100_000)), (vec![], vec![]));
    assert_eq!(bench.resolver.next_event(), None);
    assert_eq!(bench.solicit(100_000), Solicited::Known(MAC));
}

/// Test case AR-02.
#[test]
fn group_addresses_are_not_stations() {
    let mut bench = Bench::new();
    bench.solicit(0);
    bench.taken();
    for mac in
        [MacAddr::BROADCAST, MacAddr::ZERO, MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr([0x33, 0x33, 0, 0, 0, 1])]
    {
        assert!(!bench.heard(mac, REPLY, 0), "{mac}");
        assert!(!bench.heard(mac, Heard::Solicitation, 0), "{mac}");
    }
    assert_eq!(bench.solicit(0), Solicited::Pending);
    assert!(bench.actions.is_empty());
}

/// Test case AR-03.
#[test]
fn address_conflict_is_reported_and_defended_once_in_ten_seconds() {
    let mut bench = Bench::new();
    bench.resolver.add_own(key(1));
    let conflict = |defend| vec![Action::Conflict { key: key(1), mac: MAC, defend }];
    for (at, defend) in [(0, true), (1, false), (9, false), (10, true), (11, false)] {
        assert!(!bench.heard(MAC, GRATUITOUS, at));
        assert_eq!(bench.taken(), conflict(defend), "second {at}");
    }
    assert!(bench.resolver.is_empty());
}

/// Test case ND-04: override bit 0 and 1.
#[test]
fn advertisement_without_override_keeps_the_mac_address_and_starts_a_probe() {
    let mut bench = Bench::resolved();
    assert!(!bench.heard(OTHER, Heard::Advertisement { solicited: true, overrides: false }, 1));
    assert_eq!(bench.taken(), []);
    assert_eq!(bench.used(1), [probe(key(1))]);
    assert!(!bench.heard(OTHER, Heard::Advertisement { solicited: true, overrides: false }, 1));
    assert!(bench.heard(OTHER, REPLY, 2));
    assert_eq!(bench.taken(), [Action::Resolved { key: key(1), mac: OTHER }]);
}

#[test]
fn sender_of_a_request_for_an_own_address_is_learned() {
    let mut bench = Bench::new();
    assert!(bench.heard(MAC, Heard::Solicitation, 0));
    assert_eq!(bench.taken(), [Action::Resolved { key: key(1), mac: MAC }]);
    assert_eq!(bench.used(1), [probe(key(1))], "but it is stale: the asker may have lied");
}

/// Test cases AR-05 and ND-09: a scan of a /16 prefix at 5,000 addresses a second.
#[test]
fn a_scan_is_limited_and_evicts_no_resolved_neighbour() {
    let mut bench = Bench::resolved();
    let mut requests = 0;
    for number in 2..=u16::MAX {
        let now = Instant::from_nanos(u64::from(number) * 200_000);
        bench.resolver.solicit(key(number), HOST, now, &mut bench.actions);
        bench.resolver.poll(now, &mut bench.actions);
        requests +=
            bench.taken().iter().filter(|action| matches!(action, Action::SendRequest { .. })).count();
        assert!(bench.resolver.len() <= 8192 / 4 + 1);
    }
    // The scan lasts 13 seconds: 200 new requests a second and one burst, each repeated up to three times.
    assert!(requests <= 3 * (50 + 14 * 200), "{requests}");
    assert_eq!(bench.solicit(13), Solicited::Known(MAC));
    assert_eq!(bench.resolver.places.unresolved(), bench.resolver.len() - 1);
}

#[test]
fn the_first_asked_for_makes_room_for_a_new_one() {
    let settings = ResolverSettings { capacity: 8, ..ResolverSettings::default() };
    let (mut resolver, mut actions) = (Resolver::new(settings, 1), Vec::new());
    for number in 1..=3 {
        assert_eq!(resolver.solicit(key(number), HOST, second(0), &mut actions), Solicited::Pending);
    }
    assert!(actions.contains(&Action::Forgotten { key: key(1) }));
    assert_eq!(resolver.len(), 2);
    resolver.link_down(PortId(1));
    resolver.poll(second(0), &mut actions);
    assert!(resolver.is_empty() && resolver.next_event().is_none());
}

/// Creates a resolver with a small capacity.
fn small(capacity: usize) -> (Resolver, Vec<Action>) {
    let requests = RateLimit { per_second: 1000, burst: 1000 };
    let settings = ResolverSettings { capacity, requests, ..ResolverSettings::default() };
    (Resolver::new(settings, 1), Vec::new())
}

fn on(port: u16, number: u16) -> NeighbourKey {
    NeighbourKey { port: PortId(port), ..key(number) }
}

/// Test cases AR-05 and ND-09: 8,400 unknown stations on each of 10 links send requests. Then packets need a
/// new neighbour on a flooded link and one on a quiet link.
#[test]
fn strangers_leave_places_to_wanted_neighbours() {
    let mut bench = Bench::resolved();
    let Bench { resolver, actions } = &mut bench;
    for (port, number) in (1..=10).flat_map(|port| (1000..9400).map(move |number| (port, number))) {
        resolver.heard(on(port, number), OTHER, Heard::Solicitation, second(1), actions);
    }
    assert!(resolver.len() <= 8192);
    for port in [1, 11] {
        assert_eq!(
            resolver.solicit(on(port, 500), HOST, second(2), actions),
            Solicited::Pending,
            "port {port}"
        );
        assert!(resolver.heard(on(port, 500), MAC, REPLY, second(2), actions), "port {port}");
    }
    assert_eq!(
        resolver.solicit(key(1), HOST, second(2), actions),
        Solicited::Known(MAC),
        "in use before the flood"
    );
    assert!(resolver.len() <= 8192);
}

/// Test cases AR-05 and ND-09: unknown stations of one link take at most an eighth of the capacity.
#[test]
fn strangers_of_one_link_hold_an_eighth_of_the_places() {
    let (mut resolver, mut actions) = small(64);
    for number in 0..64 {
        resolver.heard(on(1, number), MAC, Heard::Solicitation, second(0), &mut actions);
        // An answer that was not requested confirms nothing.
        resolver.heard(on(1, number), MAC, REPLY, second(0), &mut actions);
    }
    assert_eq!(resolver.len(), 8);
    assert!(
        resolver.heard(on(2, 1), MAC, Heard::Solicitation, second(0), &mut actions),
        "another link has its own"
    );
}

#[test]
fn neighbours_in_use_yield_to_a_link_with_fewer_only() {
    let (mut resolver, mut actions) = small(16);
    resolver.set_static(on(1, 99), MAC, &mut actions);
    for number in 0..15 {
        assert_eq!(resolver.solicit(on(1, number), HOST, second(0), &mut actions), Solicited::Pending);
        assert!(resolver.heard(on(1, number), MAC, REPLY, second(0), &mut actions));
    }
    assert_eq!(resolver.solicit(on(1, 15), HOST, second(0), &mut actions), Solicited::Limited);
    assert_eq!(resolver.solicit(on(2, 0), HOST, second(0), &mut actions), Solicited::Pending);
    assert_eq!(actions.iter().filter(|action| matches!(action, Action::Forgotten { .. })).count(), 1);
    assert!(actions.contains(&Action::Forgotten { key: on(1, 0) }), "the oldest of the larger link");
    resolver.poll(second(30), &mut actions);
    assert_eq!(
        resolver.solicit(on(1, 15), HOST, second(30), &mut actions),
        Solicited::Pending,
        "stale ones yield"
    );
    assert_eq!(resolver.solicit(on(1, 99), HOST, second(30), &mut actions), Solicited::Known(MAC));
}

/// Test cases AR-05 and ND-09: a scan of 10,000 addresses a second, and a host on the same ingress port that
/// needs one neighbour a second.
#[test]
fn scan_leaves_requests_to_new_neighbours_of_others() {
    let address = |last| Some(IpAddr::from([10, 7, 0, last]));
    for host in
        [Origin { port: PortId(4), source: address(1) }, Origin { port: PortId(3), source: address(2) }]
    {
        let mut bench = Bench::new();
        let Bench { resolver, actions } = &mut bench;
        let scanner = Origin { port: PortId(3), source: address(1) };
        for number in 0..50_000 {
            let now = Instant::from_nanos(u64::from(number) * 100_000);
            resolver.solicit(on(1, number), scanner, now, actions);
            if number % 10_000 == 9999 {
                let asked = resolver.solicit(on(1, 60_000 + number / 10_000), host, now, actions);
                assert_eq!(asked, Solicited::Pending, "{host:?} {number}");
            }
            resolver.poll(now, actions);
            actions.clear();
        }
    }
}

/// The rate limit of a port goes on counting after the port's last neighbour was removed.
#[test]
fn request_count_of_a_port_continues_after_its_last_neighbour_is_removed() {
    let requests = RateLimit { per_second: 1, burst: 50 };
    let settings = ResolverSettings { requests, ..ResolverSettings::default() };
    let (mut resolver, mut actions) = (Resolver::new(settings, 1), Vec::new());
    let mut ask = |from: u16, at: u64| {
        let mut asked = 0;
        for number in from..from + 100 {
            asked += usize::from(
                resolver.solicit(key(number), HOST, second(at), &mut actions) == Solicited::Pending,
            );
        }
        for later in at..at + 5 {
            resolver.poll(second(later), &mut actions);
        }
        assert!(resolver.is_empty());
        asked
    };
    assert_eq!(ask(1, 0), 50);
    assert!(ask(1001, 5) < 10);
}

/// Test case ND-09: a scan on one link doesn't use up the requests of another link.
#[test]
fn requests_are_limited_for_each_link() {
    let mut bench = Bench::new();
    let Bench { resolver, actions } = &mut bench;
    let asked =
        (0..1000).filter(|n| resolver.solicit(on(1, *n), HOST, second(0), actions) == Solicited::Pending);
    assert_eq!(asked.count(), 50);
    assert_eq!(resolver.solicit(on(2, 1), HOST, second(0), actions), Solicited::Pending);
}

#[test]
fn link_down_removes_learned_and_keeps_static_neighbours() {
    let (mut resolver, mut actions) = (Resolver::new(ResolverSettings::default(), 1), Vec::new());
    resolver.set_static(key(1), MAC, &mut actions);
    assert_eq!(resolver.solicit(key(2), HOST, second(0), &mut actions), Solicited::Pending);
    resolver.link_down(PortId(1));
    assert_eq!(resolver.next_event(), Some(Instant::ZERO));
    resolver.poll(second(0), &mut actions);
    assert_eq!(actions.last(), Some(&Action::Forgotten { key: key(2) }));
    assert_eq!(resolver.len(), 1);
    assert_eq!(resolver.solicit(key(1), HOST, second(1), &mut actions), Solicited::Known(MAC));
}

#[test]
fn neighbours_whose_time_has_come_all_at_once_are_looked_after_in_pieces() {
    let settings = ResolverSettings {
        requests: RateLimit { per_second: 1, burst: 1000 },
        ..ResolverSettings::default()
    };
    let (mut resolver, mut actions) = (Resolver::new(settings, 1), Vec::new());
    for number in 1..=250 {
        assert_eq!(resolver.solicit(key(number), HOST, second(0), &mut actions), Solicited::Pending);
    }
    let rounds = |resolver: &mut Resolver, now| {
        let mut counts = Vec::new();
        while resolver.next_event().is_some_and(|due| due <= now) {
            let mut actions = Vec::new();
            resolver.poll(now, &mut actions);
            counts.push(actions.len());
        }
        counts
    };
    // At second 1, each neighbour gets a second request.
    assert_eq!(rounds(&mut resolver, second(1)), [AT_ONCE, AT_ONCE, AT_ONCE, 250 - 3 * AT_ONCE]);
    resolver.link_down(PortId(1));
    assert_eq!(rounds(&mut resolver, second(1)), [AT_ONCE, AT_ONCE, AT_ONCE, 250 - 3 * AT_ONCE]);
    assert!(resolver.is_empty() && resolver.next_event().is_none());
}
