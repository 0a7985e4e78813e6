//! Router under test: its outcome after some frames, and the invariants that must always hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_controller::offline::{MakeDevice, OfflineRouter};
use millrace_controller::view::SummaryView;
use millrace_plugin_abi::Plugin;
use millrace_tests::Output;

use super::frames::transport_is_right;

/// Outcome of some packets, which is compared between routers: transmitted frames and counters.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames sent by each port, sorted by their bytes.
    pub sent: BTreeMap<String, Vec<Output>>,
    drops: BTreeMap<String, u64>,
    delivered: u64,
    consumed: u64,
    created: BTreeMap<&'static str, u64>,
    held: u64,
}

/// Router under test, and its counters at the last outcome.
pub struct Side {
    /// Router under test.
    pub router: OfflineRouter,
    /// Whether transmitted frames may have wrong transport checksums, because arriving frames may have them,
    /// or because a plugin writes to packets.
    pub lies: bool,
    /// Counters at the last outcome; `None` before the first.
    last: Option<SummaryView>,
    ports: Vec<String>,
}

impl Side {
    /// Returns a router of a configuration, with `plugin` in addition to the built-in plugins.
    pub fn new(text: &str, lies: bool, plugin: Arc<dyn Plugin>, device: &mut MakeDevice<'_>) -> Self {
        let router = OfflineRouter::with_devices(text, vec![plugin], device);
        let router = router.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let ports = router.ports();
        let mut side = Self { router, lies, last: None, ports };
        side.outcome();
        side
    }

    /// Returns the outcome of the packets since the last call. Checks that no packet is unaccounted.
    ///
    /// # Panics
    /// When the router lost or invented a packet.
    pub fn outcome(&mut self) -> Outcome {
        let summary = self.router.summary();
        assert_eq!(summary.unaccounted, 0, "conservation: {summary:?}");
        let by_reason: u64 = summary.dropped_by.values().sum();
        assert_eq!(by_reason, summary.dropped, "drops without a reason: {summary:?}");
        let by_reason: u64 = summary.created_by.values().sum();
        assert_eq!(by_reason, summary.created, "packets made for no reason: {summary:?}");
        let last = self.last.replace(summary.clone());
        let last = last.as_ref();
        let of = |reason: &String| last.and_then(|last| last.dropped_by.get(reason).copied()).unwrap_or(0);
        let drops =
            summary.dropped_by.into_iter().map(|(reason, count)| (reason.clone(), count - of(&reason)));
        let of = |reason: &str| last.and_then(|last| last.created_by.get(reason).copied()).unwrap_or(0);
        let created = summary.created_by.into_iter().map(|(reason, count)| (reason, count - of(reason)));
        let drops = drops.filter(|(_, count)| *count > 0).collect();
        let created = created.filter(|(_, count)| *count > 0).collect();
        Outcome {
            sent: self.take(),
            drops,
            delivered: summary.to_host - last.map_or(0, |last| last.to_host),
            consumed: summary.consumed - last.map_or(0, |last| last.consumed),
            created,
            held: summary.held,
        }
    }

    /// Sets all counters to zero.
    pub fn clear_counters(&mut self) {
        self.router.clear_counters();
        self.last = Some(self.router.summary());
    }

    /// Returns the number of packets inside the router.
    pub fn held(&mut self) -> u64 {
        self.router.summary().held
    }

    /// Advances the clock until no packet is held: by at least a second and at most 61 s. Then checks the
    /// outcome.
    pub fn drain(&mut self) {
        for _ in 0..61 {
            self.router.advance(Duration::from_secs(1));
            if self.held() == 0 {
                break;
            }
        }
        self.outcome();
    }

    fn take(&mut self) -> BTreeMap<String, Vec<Output>> {
        let mut all = BTreeMap::new();
        for port in &self.ports {
            let frames = self.router.take(port);
            if frames.is_empty() {
                continue;
            }
            let mut outputs: Vec<Output> = frames.into_iter().map(Output::new).collect();
            for output in &outputs {
                check_output(output);
                assert!(
                    self.lies || transport_is_right(output.ether_type(), output.network()),
                    "wrong transport checksum: {output:?}"
                );
            }
            outputs = outputs.into_iter().map(without_identification).collect();
            outputs.sort_by(|one, other| one.bytes.cmp(&other.bytes));
            all.insert(port.clone(), outputs);
        }
        all
    }
}

/// Asserts that a frame is well-formed.
fn check_output(output: &Output) {
    assert!(output.from().is_unicast(), "{output:?}");
    match output.ether_type() {
        0x0800 => {
            // Checks the header checksum as well.
            let header = output.ipv4();
            assert!(header.ttl() > 0, "{output:?}");
            assert_eq!(usize::from(header.total_len()), output.network().len(), "{output:?}");
        }
        0x86dd => {
            assert!(output.ipv6().hop_limit() > 0, "{output:?}");
            assert_eq!(output.ipv6().total_len(), output.network().len(), "{output:?}");
        }
        0x0806 => drop(output.arp()),
        other => panic!("sent a frame of type {other:#06x}: {output:?}"),
    }
}

/// Clears the identification and checksum of ICMP packets, because each router numbers its own IPv4 packets
/// in the order of their creation.
fn without_identification(output: Output) -> Output {
    if output.ether_type() != 0x0800 || output.ipv4().protocol().0 != 1 {
        return output;
    }
    let mut bytes = output.bytes.clone();
    let at = bytes.len() - output.network().len();
    bytes[at + 4..at + 6].fill(0);
    bytes[at + 10..at + 12].fill(0);
    Output::new(bytes)
}
