//! Router for comparison with another one that gets the same packets and changes, one with an offload and one
//! without.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_pipeline::ReversePath;
use millrace_plugin::BindingId;
use millrace_tests::{ArpFrame, Frame, Scenario, station};

use super::model::{OffloadModel, Received};

pub const PORTS: [&str; 3] = ["a", "b", "c"];
pub const FILTERS: [&str; 9] = [
    "match = \"proto udp dport 443\"\naction = \"drop\"",
    "match = \"proto udp sport 1000-1003 in a\"\naction = \"port c via 10.3.0.2\"",
    "match = \"dst 10.9.0.0/16\"\naction = \"copy-to c via 10.3.0.2\"",
    "match = \"proto udp dport 53 dscp 4\"\naction = \"drop\"",
    "match = \"src fd00:1::2/128 proto udp\"\naction = \"drop\"\npriority = 3",
    "match = \"proto tcp flags syn/syn\"\naction = \"drop\"",
    "match = \"proto udp sport 1001-1004\"\naction = \"drop\"\ngate = \"firewall\"",
    "match = \"proto udp dport 53\"\naction = \"accept\"\ngate = \"firewall\"\npriority = 2",
    "match = \"src 10.1.0.2/32 dst 10.9.0.1/32 proto udp sport 1005 dport 443\"\naction = \"police 40kbit burst 2000B\"\ngate = \"security-in\"",
];
pub const ROUTES: [(&str, &str); 4] = [
    ("10.9.0.0/24", "via = \"10.3.0.2\""),
    ("10.9.0.1/32", "kind = \"blackhole\""),
    ("fd00:9::/96", "via = \"fd00:3::2\""),
    ("10.9.0.0/16", "via = [\"10.2.0.2\", \"10.3.0.2\"]"),
];

/// Router, with or without an offload below it.
pub struct Pair {
    pub router: Scenario,
    pub offload: Option<OffloadModel>,
    /// Frames transmitted by each port, in order.
    pub sent: BTreeMap<String, Vec<Vec<u8>>>,
    pub filters: Vec<BindingId>,
}

impl Pair {
    pub fn new(room: Option<u32>) -> Self {
        Self::of_workers(room, 1, 1)
    }

    /// Returns a router with `workers` workers, and `queues` receive queues at each port. With `room`, it has
    /// an offload with room for as many flows.
    pub fn of_workers(room: Option<u32>, workers: usize, queues: usize) -> Self {
        let mut router = Scenario::with_settings(&format!(
            "icmp-rate = 1000000\nicmp-burst = 1000000\nredirects = false\nworkers = {workers}"
        ));
        PORTS.iter().for_each(|port| router.router.add_queues(port, queues));
        let offload = room.map(OffloadModel::new);
        if let Some(offload) = &offload {
            router.router.set_flow_cache(|worker| Box::new(offload.of_worker(worker)), &PORTS);
        }
        Self { router, offload, sent: BTreeMap::new(), filters: Vec::new() }
    }

    pub fn receive(&mut self, port: &str, frame: &[u8]) {
        self.receive_by(port, 0, frame);
    }

    pub fn receive_by(&mut self, port: &str, queue: usize, frame: &[u8]) {
        let id = self.router.router.port_id(port).unwrap();
        let own = [2, 0, 0, 0, 0, 0x0a + PORTS.iter().position(|own| *own == port).unwrap() as u8];
        let now = self.router.router.now().as_nanos();
        let receive = |offload: &OffloadModel| {
            offload.set_now(now);
            offload.receive((id, queue), own, frame)
        };
        match self.offload.as_ref().map_or(Received::Up, receive) {
            Received::Sent(out, frame) => {
                let out = PORTS.iter().find(|name| self.router.router.port_id(name) == Some(out)).unwrap();
                self.sent.entry((*out).to_owned()).or_default().push(frame);
            }
            Received::Dropped => {}
            Received::Up => self.router.router.inject_by(port, queue, frame),
        }
    }

    pub fn run(&mut self) {
        self.router.router.run();
        self.take();
    }

    pub fn take(&mut self) {
        for port in PORTS {
            self.sent.entry(port.to_owned()).or_default().extend(self.router.router.take(port));
        }
    }

    pub fn advance(&mut self, millis: u64) {
        self.router.advance(Duration::from_millis(millis));
        self.take();
    }

    /// Returns the transmitted frames by port and flow. The flow consists of source, destination and
    /// transport ports.
    pub fn by_flow(&self) -> ByFlow {
        let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (port, frames) in &self.sent {
            for frame in frames {
                let mut frame = frame.clone();
                let flow = match (&frame[12..14], frame.len()) {
                    // A later fragment has no ports, so the packet's identification stands in their place.
                    ([8, 0], 38..) if frame[20] & 0x1f != 0 || frame[21] != 0 => {
                        [&frame[23..24], &frame[26..34], &frame[18..20], &[0, 0]].concat()
                    }
                    ([8, 0], 38..) => {
                        if frame[23] == 1 && frame[34] != 8 {
                            // Each router chooses the identification of ICMP errors itself, so identification
                            // and header checksum are cleared.
                            frame[18..20].fill(0);
                            frame[24..26].fill(0);
                        }
                        [&frame[23..24], &frame[26..38]].concat()
                    }
                    ([0x86, 0xdd], 58..) => [&frame[20..21], &frame[22..58]].concat(),
                    _ => frame[12..14].to_vec(),
                };
                flows.entry((port.clone(), flow)).or_default().push(frame);
            }
        }
        flows
    }

    /// Returns packets, bytes and drops of each present filter, in the order of addition.
    pub fn filter_counts(&mut self) -> Vec<(u64, u64, u64)> {
        let counted = |id: &BindingId| {
            let counts = self.router.router.filter_counts(*id);
            (counts.packets, counts.bytes, counts.drops)
        };
        self.filters.iter().map(counted).collect()
    }

    pub fn change(&mut self, change: &Change) {
        let router = &mut self.router.router;
        match change {
            Change::AddFilter(text) => {
                let filter = toml::from_str(FILTERS[*text]).expect("a filter");
                match router.add_filter(&filter) {
                    Ok(id) => self.filters.push(id),
                    Err(error) => assert!(error.to_string().contains("already"), "{error}"),
                }
            }
            Change::RemoveFilter(which) if !self.filters.is_empty() => {
                let id = self.filters.remove(which % self.filters.len());
                router.remove_filter(id).expect("it was added");
            }
            Change::RemoveFilter(_) => {}
            Change::AddRoute(which) => {
                let (to, rest) = ROUTES[*which];
                let route = toml::from_str(&format!("to = \"{to}\"\n{rest}")).expect("a route");
                router.add_route(&route).expect("a right route");
            }
            Change::RemoveRoute(which) => drop(router.remove_route(ROUTES[*which].0.parse().unwrap())),
            Change::Mtu(port, mtu) => router.set_mtu(PORTS[*port], *mtu),
            Change::Up(port, up) => router.set_up(PORTS[*port], *up),
            Change::ReversePath(mode) => router.set_reverse_path("a", *mode),
            Change::Neighbour(last) => {
                let reply = ArpFrame::reply("10.3.0.50", "10.3.0.1").to(station(0x0c));
                let reply = reply.sender(station(*last)).bytes();
                self.receive("c", &reply);
                self.run();
            }
            Change::Wait(millis) => self.advance(*millis),
        }
        // Completes the change. During a change, packets may meet the old or the new state.
        self.run();
    }
}

#[derive(Clone, Debug)]
pub enum Change {
    AddFilter(usize),
    RemoveFilter(usize),
    AddRoute(usize),
    RemoveRoute(usize),
    Mtu(usize, u16),
    Up(usize, bool),
    ReversePath(ReversePath),
    Neighbour(u8),
    Wait(u64),
}

/// Transmitted frames, by port and flow.
pub type ByFlow = BTreeMap<(String, Vec<u8>), Vec<Vec<u8>>>;
