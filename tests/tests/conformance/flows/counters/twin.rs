//! Router with a model that counts each packet. From the packets sent to the router, the model computes the
//! amounts that each route and filter should enqueue. From the transmitted packets it computes the amounts
//! sent.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use millrace_plugin::BindingId;
use millrace_testkit::Random;
use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, STANDARD, Scenario};
use millrace_units::{Amount, QueueAccount};

use crate::flows::offloaded_flows::model::{OffloadModel, Received};

/// Returns a configuration with a port for copies, a scheduler at port `c`, and a plugin instance.
fn configuration(workers: usize, scheduler: &str) -> String {
    let standard = STANDARD.replacen("name = \"c\"\n", &format!("name = \"c\"\n{scheduler}"), 1);
    format!(
        r#"[router]
workers = {workers}
icmp-rate = 1000000
icmp-burst = 1000000
{standard}
[[port]]
name = "d"
kind = "memory"
mac = "02:00:00:00:00:0d"
address = ["10.4.0.1/24"]

[[neighbour]]
port = "d"
address = "10.4.0.2"
mac = "02:00:00:00:00:d2"

[[instance]]
plugin = "null"
name = "free"
"#
    )
}

const PORTS: [&str; 4] = ["a", "b", "c", "d"];
/// Length of the payload of each packet, in bytes. The payload begins with the packet's number.
const PAYLOAD: usize = 60;

/// Condition of a filter as a function of source port, destination port, and whether the destination is in
/// 10.9.1.0/24.
type Matches = fn(u16, u16, bool) -> bool;
pub const FILTERS: [(&str, Matches); 6] = [
    ("match = \"proto udp dport 443\"\naction = \"drop\"\npriority = 9", |_, to, _| to == 443),
    ("match = \"proto udp dport 80\"\naction = \"port c via 10.3.0.2\"\npriority = 8", |_, to, _| to == 80),
    ("match = \"proto udp dport 53\"\naction = \"queue second\"", |_, to, _| to == 53),
    (
        "match = \"proto udp sport 1000-1003\"\naction = \"instance free\"\ngate = \"monitor\"",
        |from, _, _| (1000..1004).contains(&from),
    ),
    ("match = \"dst 10.9.1.0/24\"\naction = \"copy-to d via 10.4.0.2\"", |_, _, near| near),
    ("match = \"proto udp sport 1001\"\naction = \"drop\"\ngate = \"firewall\"", |from, _, _| from == 1001),
];
/// Indices of filters that the model treats specially. `DROP` drops at the gate `route`, `PORT` sends out of
/// port `c`, `COPY` copies, and `EARLY` drops before all other filters.
const DROP: usize = 0;
const PORT: usize = 1;
const COPY: usize = 4;
const EARLY: usize = 5;

/// Routes of the test, some of them for the same prefix.
pub const ROUTES: [(&str, &str); 6] = [
    ("10.9.1.0/24", "via = \"10.3.0.2\""),
    ("10.9.1.0/24", "via = \"10.2.0.2\""),
    ("10.9.2.0/24", "via = [\"10.2.0.2\", \"10.3.0.2\"]"),
    ("10.9.1.7/32", "via = \"10.3.0.2\""),
    ("fd00:9::/64", "via = \"fd00:3::2\""),
    ("10.9.2.0/24", "kind = \"blackhole\""),
];

/// Index of an account. A route or filter has an account from its addition to its removal.
type Account = usize;

/// Amounts of an account that the model computed.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    queued: Amount,
    sent: Amount,
}

/// Route in force: its account, and whether it forwards.
#[derive(Debug)]
struct Known {
    account: Account,
    forwards: bool,
}

pub struct Twin {
    pub router: Scenario,
    /// Model of the offload below the router, if there is one.
    offload: Option<OffloadModel>,
    random: Random,
    seen: Vec<Seen>,
    routes: BTreeMap<IpNet, Known>,
    filters: Vec<(usize, BindingId, Account)>,
    /// Accounts of each packet, by packet number: first those of its copies, which leave by port `d`, then
    /// those of the packet itself.
    packets: Vec<(Vec<Account>, Vec<Account>)>,
}

impl Twin {
    pub fn new(workers: usize, scheduler: &str, offload: Option<OffloadModel>, seed: u64) -> Self {
        let mut router = Scenario::new(&configuration(workers, scheduler));
        if let Some(offload) = &offload {
            router.router.set_flow_cache(|worker| Box::new(offload.of_worker(worker)), &PORTS);
        }
        let mut twin = Self {
            router,
            offload,
            random: Random::new(seed),
            seen: Vec::new(),
            routes: BTreeMap::new(),
            filters: Vec::new(),
            packets: Vec::new(),
        };
        for prefix in ["10.9.0.0/16", "fd00:9::/48"] {
            let account = twin.account();
            twin.routes.insert(prefix.parse().unwrap(), Known { account, forwards: true });
        }
        twin
    }

    fn account(&mut self) -> Account {
        self.seen.push(Seen::default());
        self.seen.len() - 1
    }

    pub fn add_filter(&mut self, which: usize) {
        if self.filters.iter().any(|(there, ..)| *there == which) {
            return;
        }
        let filter = toml::from_str(FILTERS[which].0).expect("a filter");
        let id = self.router.router.add_filter(&filter).expect("a right filter");
        let account = self.account();
        self.filters.push((which, id, account));
    }

    pub fn remove_filter(&mut self, which: usize) {
        if let Some(at) = self.filters.iter().position(|(there, ..)| *there == which) {
            let (_, id, _) = self.filters.remove(at);
            self.router.router.remove_filter(id).expect("it was added");
        }
    }

    pub fn add_route(&mut self, which: usize) {
        let (to, rest) = ROUTES[which];
        let route = toml::from_str(&format!("to = \"{to}\"\n{rest}")).expect("a route");
        // Without the removal, the addition of an identical route would keep the old counters.
        let prefix: IpNet = to.parse().unwrap();
        let _ = self.router.router.remove_route(prefix);
        self.router.router.add_route(&route).expect("a right route");
        let account = self.account();
        self.routes.insert(prefix, Known { account, forwards: !rest.contains("blackhole") });
    }

    pub fn remove_route(&mut self, which: usize) {
        let prefix: IpNet = ROUTES[which].0.parse().unwrap();
        let _ = self.router.router.remove_route(prefix);
        self.routes.remove(&prefix);
    }

    /// Sends packets of a few flows through the router.
    pub fn send(&mut self, count: usize) {
        for _ in 0..count {
            let (near, v6) = (self.random.below(3), self.random.below(5) == 0);
            let host = *self.random.pick(&[7, 8]);
            let destination = match v6 {
                true => "fd00:9::1".to_owned(),
                false => format!("10.9.{near}.{host}"),
            };
            let ports = (1000 + self.random.below(6) as u16, *self.random.pick(&[53, 80, 443, 9]));
            let (frame, bytes) = self.frame(&destination, v6, ports);
            self.expect(&destination, ports, bytes);
            self.receive(&frame);
            match self.random.below(40) {
                0 => self.router.router.run(),
                1..5 if self.offload.is_some() => self.router.advance(Duration::from_millis(1)),
                _ => {}
            }
        }
        self.router.router.run();
        self.look();
    }

    /// Receives a frame at port `a`: the offload model forwards it, or the router gets it.
    fn receive(&mut self, frame: &[u8]) {
        let port = self.router.router.port_id("a").unwrap();
        let receive = |offload: &OffloadModel| offload.receive((port, 0), [2, 0, 0, 0, 0, 0x0a], frame);
        match self.offload.as_ref().map_or(Received::Up, receive) {
            Received::Sent(out, frame) => {
                let out = PORTS.iter().find(|name| self.router.router.port_id(name) == Some(out)).unwrap();
                self.see(out, &frame);
            }
            Received::Dropped => {}
            Received::Up => self.router.router.inject("a", frame),
        }
    }

    fn frame(&self, destination: &str, v6: bool, (from, to): (u16, u16)) -> (Vec<u8>, usize) {
        let number = self.packets.len() as u32;
        let payload = [number.to_be_bytes().as_slice(), &[0; PAYLOAD - 4]].concat();
        let frame = match v6 {
            true => Ipv6Frame::udp().dst(destination).ports(from, to).payload(&payload).bytes(),
            false => Ipv4Frame::udp().dst(destination).ports(from, to).payload(&payload).bytes(),
        };
        let bytes = frame.len();
        (frame, bytes)
    }

    /// Records the accounts of the next packet, and adds the packet to their queued amounts.
    fn expect(&mut self, destination: &str, (from, to): (u16, u16), bytes: usize) {
        let address: IpNet = destination.parse::<std::net::IpAddr>().unwrap().into();
        let near = "10.9.1.0/24".parse::<IpNet>().unwrap().contains(&address);
        let route = self.routes.iter().filter(|(prefix, _)| prefix.contains(&address));
        let route = route.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, known)| known);
        let is_there = |which: usize| {
            self.filters.iter().find(|(there, ..)| *there == which && FILTERS[which].1(from, to, near))
        };
        let (mut others, mut copies) = (Vec::new(), Vec::new());
        let refused = is_there(EARLY).is_some();
        copies.extend(is_there(COPY).filter(|_| !refused).map(|(.., account)| *account));
        let by_filter = is_there(PORT).is_some();
        let leaves =
            !refused && is_there(DROP).is_none() && (by_filter || route.is_some_and(|route| route.forwards));
        if leaves {
            others.extend(route.filter(|_| !by_filter).map(|route| route.account));
            let filters = (0..FILTERS.len()).filter(|which| ![COPY, EARLY, DROP].contains(which));
            others.extend(filters.filter_map(is_there).map(|(.., account)| *account));
        }
        for account in others.iter().chain(&copies) {
            self.seen[*account].queued += Amount::packet(bytes);
        }
        self.packets.push((copies, others));
    }

    /// Counts the transmitted frames of all ports.
    pub fn look(&mut self) {
        for port in PORTS {
            for frame in self.router.router.take(port) {
                self.see(port, &frame);
            }
        }
    }

    /// Counts a frame transmitted by a port.
    fn see(&mut self, port: &str, frame: &[u8]) {
        let is_ours = frame.len() > PAYLOAD + 14 && matches!(&frame[12..14], [8, 0] | [0x86, 0xdd]);
        let is_udp = is_ours && if frame[12] == 8 { frame[23] == 17 } else { frame[20] == 17 };
        if !is_udp {
            return;
        }
        let at = frame.len() - PAYLOAD;
        let number = u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        let (copies, others) = &self.packets[number as usize];
        for account in if port == "d" { copies } else { others } {
            self.seen[*account].sent += Amount::packet(frame.len());
        }
    }

    /// Compares the router's counters with the model's amounts. Returns the total numbers of waiting and of
    /// dropped packets of all routes.
    pub fn check(&mut self) -> (u64, u64) {
        self.look();
        let (mut waiting, mut dropped) = (0, 0);
        for (prefix, known) in &self.routes {
            let counted = self.router.router.route_counts(*prefix).unwrap();
            let seen = self.seen[known.account];
            if !known.forwards {
                assert_eq!(counted, None, "a route that leads nowhere");
                continue;
            }
            let counted = counted.expect("an account");
            same(&prefix.to_string(), counted, seen);
            waiting += counted.waiting.packets;
            dropped += counted.dropped.packets;
        }
        for (which, id, account) in &self.filters {
            let counted = self.router.router.filter_counts(*id);
            same(FILTERS[*which].0, counted.queues, self.seen[*account]);
        }
        (waiting, dropped)
    }
}

fn same(what: &str, counted: QueueAccount, seen: Seen) {
    assert_eq!(counted.queued, seen.queued, "queued: {what}");
    assert_eq!(counted.sent(), seen.sent, "sent: {what}, {counted:?}");
    let mut all = counted.sent();
    all += counted.waiting;
    all += counted.dropped;
    assert_eq!(all, counted.queued, "{what}");
}
