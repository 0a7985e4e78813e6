//! Tests of the mirror against a real kernel, in network namespaces.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tokio::sync::mpsc::Receiver;

use super::{Mirror, MirrorOptions};
use crate::test_namespace::{in_namespace, ip, ip_batch, run, veth_pair};
use crate::{Family, HostChange, HostRoute, NeighbourState, RouteKind, local_addresses};

const PATIENCE: Duration = Duration::from_secs(10);

/// User of a mirror, which applies every batch to its own tables.
#[derive(Default)]
struct Fib {
    routes: BTreeMap<IpNet, HostRoute>,
    neighbours: BTreeMap<(u32, IpAddr), NeighbourState>,
    /// Devices whose queueing disciplines may have changed.
    queueing: Vec<Option<u32>>,
}

impl Fib {
    fn apply(&mut self, batch: Vec<HostChange>) {
        for change in batch {
            match change {
                HostChange::Route { prefix, route: Some(route) } => drop(self.routes.insert(prefix, route)),
                HostChange::Route { prefix, route: None } => drop(self.routes.remove(&prefix)),
                HostChange::Neighbour { ifindex, ip, neighbour: Some(neighbour) } => {
                    self.neighbours.insert((ifindex, ip), neighbour.state);
                }
                HostChange::Neighbour { ifindex, ip, neighbour: None } => {
                    self.neighbours.remove(&(ifindex, ip));
                }
                HostChange::Queueing(device) => self.queueing.push(device),
                _ => {}
            }
        }
    }
}

struct Follower {
    mirror: Mirror,
    changes: Receiver<Vec<HostChange>>,
    fib: Fib,
}

impl Follower {
    async fn start(options: MirrorOptions) -> Self {
        let (mirror, mut changes) = Mirror::start(options).await.expect("a mirror");
        let mut fib = Fib::default();
        fib.apply(changes.try_recv().expect("the first batch is there at once"));
        Self { mirror, changes, fib }
    }

    async fn until(&mut self, what: &str, mut holds: impl FnMut(&Fib) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.fib) {
            let left = deadline.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.changes.recv()).await {
                Ok(batch) => self.fib.apply(batch.expect("the mirror runs")),
                Err(_) => panic!("not seen: {what}; routes {:#?}", self.fib.routes),
            }
        }
    }

    async fn route(&mut self, prefix: &str, mut holds: impl FnMut(Option<&HostRoute>) -> bool) {
        let key: IpNet = prefix.parse().unwrap();
        self.until(prefix, |fib| holds(fib.routes.get(&key))).await;
    }

    fn device(&self, name: &str) -> u32 {
        self.mirror.state().link_by_name(name).expect("the device").ifindex
    }

    /// Checks that the mirror equals the kernel, and that the received batches add up to the mirror's state.
    async fn agrees(&mut self) {
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert_eq!(self.mirror.compare().await.expect("a comparison"), 0, "differences from the kernel");
        while let Ok(batch) = self.changes.try_recv() {
            self.fib.apply(batch);
        }
        let state: BTreeMap<IpNet, HostRoute> =
            self.mirror.state().routes().map(|route| (route.prefix, route)).collect();
        assert_eq!(self.fib.routes, state);
    }
}

fn quiet() -> MirrorOptions {
    MirrorOptions { comparison_interval: Duration::ZERO, ..MirrorOptions::default() }
}

fn gateways(route: Option<&HostRoute>) -> Vec<String> {
    let gateway = |hop: &crate::HostNextHop| hop.gateway.map_or("link".into(), |gateway| gateway.to_string());
    route.map(|route| route.next_hops.iter().map(gateway).collect()).unwrap_or_default()
}

#[test]
fn qdisc_is_reported_when_added_and_removed() {
    in_namespace(|| async {
        veth_pair();
        let mut follower = Follower::start(quiet()).await;
        let lan = follower.device("lan");
        for what in ["add dev lan root tbf rate 1mbit burst 10k latency 10ms", "del dev lan root"] {
            let before = follower.fib.queueing.len();
            run("tc", &format!("qdisc {what}"));
            follower.until(what, |fib| fib.queueing[before..].contains(&Some(lan))).await;
        }
        // Notifications were lost: the mirror lists the whole state again.
        follower.agrees().await;
        assert_eq!(follower.fib.queueing.last(), Some(&None));
    });
}

#[test]
fn routes_of_every_kind_are_seen_and_seen_to_go() {
    in_namespace(|| async {
        veth_pair();
        let mut follower = Follower::start(quiet()).await;
        ip("route add 10.1.0.0/16 via 10.0.0.2 mtu 1400");
        ip("route add 10.2.0.0/16 dev lan");
        ip("route add 10.3.0.0/16 nexthop via 10.0.0.2 weight 3 nexthop via 10.0.0.3 weight 1");
        ip("route add blackhole 10.4.0.0/16");
        ip("route add unreachable 10.5.0.0/16");
        ip("route add prohibit 10.6.0.0/16");
        ip("route add throw 10.7.0.0/16");
        ip("route add 10.8.0.0/16 via inet6 fe80::1 dev lan");
        ip("-6 route add fd01::/64 via fd00::2");
        ip("-6 route add fd02::/64 nexthop via fd00::2 nexthop via fd00::3 weight 2");
        ip("-6 route add blackhole fd03::/64");
        ip("-6 route add unreachable fd04::/64");
        ip("-6 route add prohibit fd05::/64");
        follower.route("10.1.0.0/16", |r| r.is_some_and(|r| r.mtu_metric == Some(1400))).await;
        follower.route("10.2.0.0/16", |r| gateways(r) == ["link"]).await;
        follower.route("10.3.0.0/16", |r| gateways(r) == ["10.0.0.2", "10.0.0.3"]).await;
        follower.route("10.3.0.0/16", |r| r.is_some_and(|r| r.next_hops[0].weight == 3)).await;
        let kind = |kind: RouteKind| move |r: Option<&HostRoute>| r.is_some_and(|r| r.kind == kind);
        for (third, wanted) in [
            ("4", RouteKind::Blackhole),
            ("5", RouteKind::Unreachable),
            ("6", RouteKind::Prohibit),
            ("7", RouteKind::Throw),
        ] {
            follower.route(&format!("10.{third}.0.0/16"), kind(wanted)).await;
        }
        follower.route("10.8.0.0/16", |r| gateways(r) == ["fe80::1"]).await;
        follower.route("fd01::/64", |r| gateways(r) == ["fd00::2"]).await;
        follower.route("fd02::/64", |r| gateways(r) == ["fd00::2", "fd00::3"]).await;
        follower.route("fd03::/64", kind(RouteKind::Blackhole)).await;
        follower.route("fd04::/64", kind(RouteKind::Unreachable)).await;
        follower.route("fd05::/64", kind(RouteKind::Prohibit)).await;
        follower.agrees().await;
        ip("route del 10.3.0.0/16");
        ip("route del blackhole 10.4.0.0/16");
        ip("-6 route del fd02::/64 via fd00::2");
        ip("-6 route del fd01::/64");
        follower.route("10.3.0.0/16", |r| r.is_none()).await;
        follower.route("10.4.0.0/16", |r| r.is_none()).await;
        follower.route("fd02::/64", |r| gateways(r) == ["fd00::3"]).await;
        follower.route("fd01::/64", |r| r.is_none()).await;
        follower.agrees().await;
    });
}

#[test]
fn ipv6_next_hops_added_one_by_one_join_into_one_route() {
    in_namespace(|| async {
        veth_pair();
        let mut follower = Follower::start(quiet()).await;
        ip("-6 route add fd01::/64 via fd00::2");
        ip("-6 route append fd01::/64 via fd00::3");
        ip("-6 route append fd01::/64 via fd00::4");
        follower.route("fd01::/64", |r| gateways(r).len() == 3).await;
        follower.agrees().await;
        ip("-6 route del fd01::/64 via fd00::3");
        follower.route("fd01::/64", |r| gateways(r) == ["fd00::2", "fd00::4"]).await;
        ip("-6 route replace fd01::/64 via fd00::9");
        follower.route("fd01::/64", |r| gateways(r) == ["fd00::9"]).await;
        follower.agrees().await;
    });
}

#[test]
fn the_lowest_metric_holds_and_the_next_takes_over() {
    in_namespace(|| async {
        veth_pair();
        ip("route add 10.9.0.0/16 via 10.0.0.9 metric 50");
        let mut follower = Follower::start(quiet()).await;
        ip("route add 10.9.0.0/16 via 10.0.0.8 metric 10");
        follower.route("10.9.0.0/16", |r| gateways(r) == ["10.0.0.8"]).await;
        ip("route replace 10.9.0.0/16 via 10.0.0.7 metric 10");
        follower.route("10.9.0.0/16", |r| gateways(r) == ["10.0.0.7"]).await;
        ip("route append 10.9.0.0/16 via 10.0.0.6 metric 10");
        ip("route prepend 10.9.0.0/16 via 10.0.0.5 metric 10");
        follower.route("10.9.0.0/16", |r| gateways(r) == ["10.0.0.5"]).await;
        ip("route del 10.9.0.0/16 via 10.0.0.5 metric 10");
        follower.route("10.9.0.0/16", |r| gateways(r) == ["10.0.0.7"]).await;
        ip("route del 10.9.0.0/16 via 10.0.0.7 metric 10");
        follower.route("10.9.0.0/16", |r| gateways(r) == ["10.0.0.6"]).await;
        follower.agrees().await;
        ip("route del 10.9.0.0/16 metric 10");
        follower.route("10.9.0.0/16", |r| gateways(r) == ["10.0.0.9"]).await;
        follower.agrees().await;
    });
}

#[test]
fn routes_by_next_hop_objects_follow_the_objects() {
    in_namespace(|| async {
        veth_pair();
        let mut follower = Follower::start(quiet()).await;
        ip("nexthop add id 1 via 10.0.0.2 dev lan");
        ip("nexthop add id 2 via 10.0.0.3 dev lan");
        ip("nexthop add id 3 via fd00::2 dev lan");
        ip("nexthop add id 9 blackhole");
        ip("nexthop add id 10 group 1,3/2");
        ip("route add 10.1.0.0/16 nhid 1");
        ip("route add 10.2.0.0/16 nhid 10");
        ip("route add 10.3.0.0/16 nhid 9");
        ip("-6 route add fd01::/64 nhid 3");
        follower.route("10.1.0.0/16", |r| gateways(r) == ["10.0.0.2"]).await;
        follower.route("10.2.0.0/16", |r| gateways(r) == ["10.0.0.2", "10.0.0.3"]).await;
        follower.route("10.3.0.0/16", |r| r.is_some_and(|r| r.kind == RouteKind::Blackhole)).await;
        follower.route("fd01::/64", |r| gateways(r) == ["fd00::2"]).await;
        follower.agrees().await;
        ip("nexthop replace id 1 via 10.0.0.7 dev lan");
        follower.route("10.1.0.0/16", |r| gateways(r) == ["10.0.0.7"]).await;
        follower.route("10.2.0.0/16", |r| gateways(r) == ["10.0.0.7", "10.0.0.3"]).await;
        ip("nexthop del id 1");
        follower.route("10.1.0.0/16", |r| r.is_none()).await;
        follower.route("10.2.0.0/16", |r| gateways(r) == ["10.0.0.3"]).await;
        follower.agrees().await;
        ip("link set lan down");
        follower.route("10.2.0.0/16", |r| r.is_none()).await;
        follower.route("fd01::/64", |r| r.is_none()).await;
        follower.agrees().await;
    });
}

#[test]
fn objects_that_the_kernel_drops_silently_with_a_down_device_are_removed() {
    in_namespace(|| async {
        veth_pair();
        ip("link add wan type veth peer name beyond");
        ip("addr add 10.0.1.1/24 brd + dev wan");
        ip("link set wan up");
        ip("link set beyond up");
        ip("route add 10.1.0.0/16 via 10.0.0.2");
        ip("route add 10.1.0.0/16 via 10.0.1.2 metric 100");
        ip("route add 10.2.0.0/16 nexthop via 10.0.0.2 nexthop via 10.0.1.2");
        let mut follower = Follower::start(quiet()).await;
        follower.agrees().await;
        ip("link set lan down");
        follower.route("10.1.0.0/16", |r| gateways(r) == ["10.0.1.2"]).await;
        follower.route("10.2.0.0/16", |r| gateways(r) == ["10.0.1.2"]).await;
        follower.route("10.0.0.0/24", |r| r.is_none()).await;
        follower.route("10.0.0.1/32", |r| r.is_some_and(|r| r.kind == RouteKind::Local)).await;
        follower.agrees().await;
        ip("link set lan up");
        follower.route("10.0.0.0/24", |r| r.is_some()).await;
        follower.route("10.2.0.0/16", |r| gateways(r).len() == 2).await;
        follower.route("10.1.0.0/16", |r| gateways(r) == ["10.0.1.2"]).await;
        follower.agrees().await;
    });
}

#[test]
fn lost_carrier_removes_next_hops_within_50_ms_and_a_carrier_restores_them() {
    in_namespace(|| async {
        veth_pair();
        ip("route add 10.1.0.0/16 via 10.0.0.2");
        ip("-6 route add fd01::/64 via fd00::2");
        let mut follower = Follower::start(quiet()).await;
        ip("link set far down");
        let start = Instant::now();
        follower.route("10.1.0.0/16", |r| r.is_none()).await;
        follower.route("fd01::/64", |r| r.is_none()).await;
        let took = start.elapsed();
        follower.agrees().await;
        ip("link set far up");
        follower.route("10.1.0.0/16", |r| gateways(r) == ["10.0.0.2"]).await;
        follower.route("fd01::/64", |r| gateways(r) == ["fd00::2"]).await;
        follower.agrees().await;
        assert!(took < Duration::from_millis(50), "{took:?}");
    });
}

#[test]
fn removing_addresses_and_devices_takes_their_routes_along() {
    in_namespace(|| async {
        veth_pair();
        ip("addr add 10.0.5.1/24 brd + dev lan");
        ip("route add 10.1.0.0/16 via 10.0.0.2 src 10.0.5.1");
        ip("route add 10.2.0.0/16 via 10.0.0.2");
        let mut follower = Follower::start(quiet()).await;
        let local = |follower: &Follower, ip: &str| {
            local_addresses(&follower.mirror.state()).contains(&ip.parse().unwrap())
        };
        assert!(
            local(&follower, "10.0.5.1") && local(&follower, "10.0.0.255") && local(&follower, "fd00::1")
        );
        assert!(!local(&follower, "127.0.0.1") && !local(&follower, "127.255.255.255"));
        ip("addr del 10.0.5.1/24 dev lan");
        follower.route("10.1.0.0/16", |r| r.is_none()).await;
        follower.route("10.0.5.1/32", |r| r.is_none()).await;
        assert!(!local(&follower, "10.0.5.1"));
        follower.agrees().await;
        ip("addr del 10.0.0.1/24 dev lan");
        follower.route("10.2.0.0/16", |r| r.is_none()).await;
        follower.agrees().await;
        ip("addr add 10.0.0.1/24 dev lan");
        ip("route add 10.2.0.0/16 via 10.0.0.2");
        follower.route("10.2.0.0/16", |r| r.is_some()).await;
        ip("link del lan");
        follower.route("10.2.0.0/16", |r| r.is_none()).await;
        follower.route("fd00::/64", |r| r.is_none()).await;
        follower.agrees().await;
        assert!(follower.mirror.state().link_by_name("lan").is_none());
    });
}

#[test]
fn neighbours_are_seen_to_come_to_fail_and_to_go() {
    in_namespace(|| async {
        veth_pair();
        let mut follower = Follower::start(quiet()).await;
        let a = follower.device("lan");
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev lan nud reachable");
        let known = (a, "10.0.0.2".parse().unwrap());
        follower
            .until("reachable", |fib| fib.neighbours.get(&known) == Some(&NeighbourState::Reachable))
            .await;
        ip("neigh del 10.0.0.2 dev lan");
        let gone =
            |fib: &Fib| fib.neighbours.get(&known).is_none_or(|state| *state == NeighbourState::Failed);
        follower.until("gone", gone).await;
        let mut actions = crate::Actions::open().unwrap();
        actions.resolve(a, "10.0.0.77".parse().unwrap()).unwrap();
        let silent = (a, "10.0.0.77".parse().unwrap());
        follower.until("incomplete", |fib| fib.neighbours.contains_key(&silent)).await;
        follower.until("failed", |fib| fib.neighbours.get(&silent) == Some(&NeighbourState::Failed)).await;
    });
}

#[test]
fn forwarding_switches_are_followed() {
    in_namespace(|| async {
        veth_pair();
        let mut follower = Follower::start(quiet()).await;
        let a = follower.device("lan");
        let write = |name: &str, value: &str| {
            std::fs::write(format!("/proc/sys/net/{name}"), value).expect("a sysctl of the namespace");
        };
        write("ipv4/ip_forward", "1");
        write("ipv6/conf/all/forwarding", "1");
        let deadline = Instant::now() + PATIENCE;
        let on = |follower: &Follower| {
            let state = follower.mirror.state();
            state.forwarding().enabled(a, Family::Ipv4) && state.forwarding().enabled(a, Family::Ipv6)
        };
        while !on(&follower) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(on(&follower));
        assert!(
            crate::forwarding_advice(&follower.mirror.state(), &[a], crate::SwitchUse::Unknown).is_empty()
        );
        write("ipv4/conf/lan/forwarding", "0");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let advice = crate::forwarding_advice(&follower.mirror.state(), &[a], crate::SwitchUse::Unknown);
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].sysctl, "net.ipv4.conf.lan.forwarding=1");
        follower.agrees().await;
    });
}

fn many_routes(count: u32) -> String {
    (0..count).fold(String::new(), |mut script, number| {
        let (second, third, fourth) = (number >> 16, (number >> 8) & 0xff, number & 0xff);
        let _ = writeln!(script, "route add {}.{third}.{fourth}.0/24 via 10.0.0.2", 20 + second);
        script
    })
}

#[test]
fn hundred_thousand_routes_are_mirrored_within_two_seconds() {
    in_namespace(|| async {
        veth_pair();
        let mut follower = Follower::start(quiet()).await;
        // Runs on another thread, which inherits the namespace, while the mirror follows the changes.
        tokio::task::spawn_blocking(|| ip_batch(&many_routes(100_000))).await.unwrap();
        let start = Instant::now();
        follower.until("100,000 routes", |fib| fib.routes.len() > 100_000).await;
        let took = start.elapsed();
        eprintln!("100,000 routes mirrored {took:?} after ip ended; {:?}", follower.mirror.statistics());
        follower.agrees().await;
        let listed = Instant::now();
        follower.mirror.compare().await.unwrap();
        eprintln!("a comparison of 100,000 routes took {:?}", listed.elapsed());
        ip("link set lan down");
        follower.until("none left", |fib| fib.routes.len() < 100).await;
        follower.agrees().await;
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

#[test]
fn lost_notifications_cause_a_new_list_and_nothing_stays_wrong() {
    in_namespace(|| async {
        veth_pair();
        let mut follower = Follower::start(MirrorOptions { receive_buffer: 4096, ..quiet() }).await;
        ip_batch(&many_routes(5_000));
        let removed = many_routes(5_000).replace("route add", "route del");
        ip_batch(&removed.lines().take(2_000).collect::<Vec<_>>().join("\n"));
        follower
            .until("3,000 routes", |fib| {
                let far =
                    |prefix: &&IpNet| prefix.prefix_len() == 24 && prefix.to_string().starts_with("20.");
                fib.routes.keys().filter(far).count() == 3_000
            })
            .await;
        assert!(follower.mirror.statistics().overruns > 0, "{:?}", follower.mirror.statistics());
        follower.agrees().await;
        let kernel = ip("route show table main").lines().filter(|line| line.starts_with("20.")).count();
        assert_eq!(kernel, 3_000);
    });
}

#[test]
fn comparison_counts_and_repairs_differences() {
    in_namespace(|| async {
        veth_pair();
        ip("route add 10.1.0.0/16 via 10.0.0.2");
        let mut follower = Follower::start(quiet()).await;
        {
            let mut state = follower.mirror.shared.write();
            let mut changes = Vec::new();
            let entry = crate::state::message::RouteEntry {
                prefix: "10.66.0.0/16".parse().unwrap(),
                kind: RouteKind::Blackhole,
                table: 254,
                protocol: 4,
                scope: 0,
                service_type: 0,
                from_source: false,
                metric: 0,
                preferred_source: None,
                next_hop_id: None,
                next_hops: Vec::new(),
                mtu: None,
            };
            let placement = crate::state::message::Placement::Append;
            state.apply_to(crate::state::message::KernelMessage::Route(entry, placement), &mut changes);
            follower.fib.apply(changes);
        }
        assert_eq!(follower.mirror.compare().await.unwrap(), 1);
        assert_eq!(follower.mirror.statistics().divergences_repaired, 1);
        follower.route("10.66.0.0/16", |r| r.is_none()).await;
        follower.agrees().await;
    });
}
