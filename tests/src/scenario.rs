//! Router under test, its input frames, and checks of its output.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use millrace_controller::ControlError;
use millrace_controller::offline::OfflineRouter;
use millrace_packet::DropReason;
use millrace_plugin_abi::Plugin;
use millrace_wire::MacAddr;

use crate::link::{Frame, station};
use crate::output::{IcmpView, Output};

/// Configuration of the standard scenario. The crate's description has a table of the ports.
pub const STANDARD: &str = r#"
[[port]]
name = "a"
kind = "memory"
mac = "02:00:00:00:00:0a"
address = ["10.1.0.1/24", "fd00:1::1/64"]

[[port]]
name = "b"
kind = "memory"
mac = "02:00:00:00:00:0b"
address = ["10.2.0.1/24", "fd00:2::1/64"]

[[port]]
name = "c"
kind = "memory"
mac = "02:00:00:00:00:0c"
address = ["10.3.0.1/24", "fd00:3::1/64"]

[[neighbour]]
port = "a"
address = "10.1.0.2"
mac = "02:00:00:00:00:a2"

[[neighbour]]
port = "a"
address = "fd00:1::2"
mac = "02:00:00:00:00:a2"

[[neighbour]]
port = "b"
address = "10.2.0.2"
mac = "02:00:00:00:00:b2"

[[neighbour]]
port = "b"
address = "fd00:2::2"
mac = "02:00:00:00:00:b2"

[[neighbour]]
port = "c"
address = "10.3.0.2"
mac = "02:00:00:00:00:c2"

[[neighbour]]
port = "c"
address = "fd00:3::2"
mac = "02:00:00:00:00:c2"

[[route]]
to = "10.9.0.0/16"
via = "10.2.0.2"

[[route]]
to = "fd00:9::/48"
via = "fd00:2::2"
"#;

/// Router under a virtual clock, with ports in memory.
pub struct Scenario {
    /// The router, for operations that the scenario doesn't wrap.
    pub router: OfflineRouter,
}

impl Scenario {
    /// Returns a router with this configuration.
    ///
    /// # Panics
    /// When the configuration is refused.
    pub fn new(configuration: &str) -> Self {
        Self::of(OfflineRouter::from_text(configuration))
    }

    /// Returns a router with this configuration, and with `plugin` in addition to the built-in plugins.
    ///
    /// # Panics
    /// When the configuration is refused.
    pub fn with_plugin(configuration: &str, plugin: Arc<dyn Plugin>) -> Self {
        Self::of(OfflineRouter::with_plugins(configuration, vec![plugin]))
    }

    fn of(router: Result<OfflineRouter, ControlError>) -> Self {
        let router = router.unwrap_or_else(|error| panic!("{error}"));
        let mut scenario = Self { router };
        scenario.router.run();
        scenario.take_all();
        scenario
    }

    /// Returns the standard router.
    pub fn standard() -> Self {
        Self::new(STANDARD)
    }

    /// Returns the standard router with `more` added to its configuration.
    pub fn with(more: &str) -> Self {
        Self::new(&format!("{STANDARD}{more}"))
    }

    /// Returns the standard router with `lines` in the table `[router]` of its configuration.
    pub fn with_settings(lines: &str) -> Self {
        Self::new(&format!("[router]\n{lines}\n{STANDARD}"))
    }

    /// Returns the standard router with `lines` in the table `[router]`, and `more` added to its
    /// configuration.
    pub fn with_settings_and(lines: &str, more: &str) -> Self {
        Self::new(&format!("[router]\n{lines}\n{STANDARD}{more}"))
    }

    /// Returns the standard router with one line of its configuration replaced.
    ///
    /// # Panics
    /// When the standard configuration has no such line.
    pub fn with_line(line: &str, replacement: &str) -> Self {
        assert!(STANDARD.contains(line), "the standard configuration has no line {line:?}");
        Self::new(&STANDARD.replacen(line, replacement, 1))
    }

    /// Returns the standard router with other MTUs at the given ports.
    pub fn with_mtu(mtus: &[(&str, u16)]) -> Self {
        let mut configuration = STANDARD.to_owned();
        for (port, mtu) in mtus {
            let line = format!("name = \"{port}\"\n");
            configuration = configuration.replacen(&line, &format!("{line}mtu = {mtu}\n"), 1);
        }
        Self::new(&configuration)
    }

    /// Injects a frame at a port and runs the router.
    pub fn send(&mut self, port: &str, frame: &impl Frame) {
        self.router.inject(port, &frame.bytes());
        self.router.run();
    }

    /// Advances the virtual clock.
    pub fn advance(&mut self, time: Duration) {
        self.router.advance(time);
    }

    /// Returns the frames that a port has sent since the last call.
    pub fn take(&mut self, port: &str) -> Vec<Output> {
        self.router.take(port).into_iter().map(Output::new).collect()
    }

    /// Returns the frames that each port has sent since the last call. Ports that sent none are absent.
    pub fn take_all(&mut self) -> BTreeMap<String, Vec<Output>> {
        let ports = self.router.ports();
        let sent = ports.into_iter().map(|port| (port.clone(), self.take(&port)));
        sent.filter(|(_, frames)| !frames.is_empty()).collect()
    }

    /// Returns the single frame that `port` has sent.
    ///
    /// # Panics
    /// When `port` has sent no frame or several, or another port has sent any.
    #[track_caller]
    pub fn only(&mut self, port: &str) -> Output {
        let mut sent = self.take_all();
        let from_port = sent.remove(port).unwrap_or_default();
        assert!(sent.is_empty(), "other ports than {port} sent {sent:?}; drops: {:?}", self.drops());
        assert_eq!(from_port.len(), 1, "from port {port}: {from_port:?}; drops: {:?}", self.drops());
        from_port.into_iter().next().expect("just counted")
    }

    /// Asserts that no port has sent a frame.
    ///
    /// # Panics
    /// When a port has sent a frame.
    #[track_caller]
    pub fn nothing(&mut self) {
        let sent = self.take_all();
        assert!(sent.is_empty(), "sent {sent:?}");
    }

    /// Returns the number of packets dropped so far, by reason.
    pub fn drops(&mut self) -> BTreeMap<String, u64> {
        self.router.summary().dropped_by
    }

    /// Returns the number of packets dropped so far for a reason.
    pub fn dropped(&mut self, reason: DropReason) -> u64 {
        self.drops().get(reason.name()).copied().unwrap_or(0)
    }

    /// Sends a frame and asserts that the router counts exactly one drop, at this port and for this reason.
    /// The router must send nothing.
    ///
    /// # Panics
    /// When the router treats the frame otherwise.
    #[track_caller]
    pub fn expect_drop(&mut self, port: &str, frame: &(impl Frame + Debug), reason: DropReason) {
        self.drop_quietly(port, frame, reason);
        let sent = self.take_all();
        assert!(sent.is_empty(), "dropped for {reason}, but sent {sent:?}: {frame:?}");
    }

    #[track_caller]
    fn drop_quietly(&mut self, port: &str, frame: &(impl Frame + Debug), reason: DropReason) {
        let (before, at_port) = (self.drops(), self.router.drops(port));
        self.send(port, frame);
        let mut expected = before;
        *expected.entry(reason.name().to_owned()).or_default() += 1;
        let (after, at_port_after) = (self.drops(), self.router.drops(port));
        assert_eq!(
            after,
            expected,
            "instead of one more {reason} at {port}: {frame:?}; sent {:?}",
            self.take_all()
        );
        let mut expected = at_port;
        *expected.entry(reason.name().to_owned()).or_default() += 1;
        assert_eq!(at_port_after, expected, "counted at another port than {port}: {frame:?}");
    }

    /// Sends a frame and asserts that the router accepts it as its own and sends nothing.
    ///
    /// # Panics
    /// When the router treats the frame otherwise.
    #[track_caller]
    pub fn expect_delivered(&mut self, port: &str, frame: &(impl Frame + Debug)) {
        let (before, drops) = (self.router.summary().to_host, self.drops());
        self.send(port, frame);
        assert_eq!(self.drops(), drops, "dropped: {frame:?}");
        assert_eq!(self.router.summary().to_host, before + 1, "not delivered: {frame:?}");
        self.nothing();
    }

    /// Sends a frame and asserts that it leaves by `out` to the host behind that port. TTL or hop limit must
    /// be one less; every other byte of the network packet must be unchanged. Returns the sent frame.
    ///
    /// # Panics
    /// When the router treats the frame otherwise.
    #[track_caller]
    pub fn expect_forwarded(&mut self, port: &str, frame: &(impl Frame + Debug), out: &str) -> Output {
        let drops = self.drops();
        self.send(port, frame);
        assert_eq!(self.drops(), drops, "dropped: {frame:?}");
        let output = self.only(out);
        let (own, host) = stations(out);
        assert_eq!((output.from(), output.to()), (own, host), "{output:?}");
        assert_eq!(output.network(), one_hop_less(&frame.bytes()), "changed on the way: {frame:?}");
        output
    }

    /// Sends an IPv4 frame and asserts that the router drops it for `reason`. The router must send the ICMP
    /// error `kind`/`code`, which quotes the packet, out of the arrival port. Returns the error.
    ///
    /// # Panics
    /// When the router treats the frame otherwise.
    #[track_caller]
    pub fn expect_error4(
        &mut self,
        port: &str,
        frame: &(impl Frame + Debug),
        (kind, code): (u8, u8),
        reason: DropReason,
    ) -> IcmpView {
        self.drop_quietly(port, frame, reason);
        let output = self.only(port);
        self.check_error4(port, frame, &output, (kind, code))
    }

    /// Asserts that `output` is the ICMP error `kind`/`code` about `frame` that `port` sends to its host.
    ///
    /// # Panics
    /// When `output` is anything else.
    #[track_caller]
    pub fn check_error4(
        &self,
        port: &str,
        frame: &impl Frame,
        output: &Output,
        wanted: (u8, u8),
    ) -> IcmpView {
        let error = output.icmp();
        assert_eq!((error.kind, error.code), wanted, "{output:?}");
        let header = output.ipv4();
        assert_eq!((output.from(), output.to()), stations(port), "{output:?}");
        assert_eq!(error.source, own_address(port, false), "source of {output:?}");
        assert_eq!(header.tos(), 0xc0, "precedence of {output:?}");
        assert!(header.ttl() >= 64, "TTL of {output:?}");
        assert!(header.total_len() <= 576, "length of {output:?}");
        let offending = network_of(&frame.bytes()).to_vec();
        assert_eq!(header.src(), error.source);
        assert_eq!(
            error.destination,
            IpAddr::from(<[u8; 4]>::try_from(&offending[12..16]).expect("four bytes"))
        );
        let total = usize::from(u16::from_be_bytes([offending[2], offending[3]]));
        assert_eq!(error.body.len(), total.min(576 - 28), "length of the quote in {output:?}");
        assert_eq!(error.body, offending[..error.body.len()], "quote of {output:?}");
        error
    }

    /// Sends an IPv6 frame and asserts that the router drops it for `reason`. The router must send the ICMPv6
    /// error `kind`/`code`, which quotes the packet, out of the arrival port. Returns the error.
    ///
    /// # Panics
    /// When the router treats the frame otherwise.
    #[track_caller]
    pub fn expect_error6(
        &mut self,
        port: &str,
        frame: &(impl Frame + Debug),
        (kind, code): (u8, u8),
        reason: DropReason,
    ) -> IcmpView {
        self.drop_quietly(port, frame, reason);
        let output = self.only(port);
        self.check_error6(port, frame, &output, (kind, code))
    }

    /// Asserts that `output` is the ICMPv6 error `kind`/`code` about `frame` that `port` sends to its host.
    ///
    /// # Panics
    /// When `output` is anything else.
    #[track_caller]
    pub fn check_error6(
        &self,
        port: &str,
        frame: &impl Frame,
        output: &Output,
        wanted: (u8, u8),
    ) -> IcmpView {
        let error = output.icmp();
        assert_eq!((error.kind, error.code), wanted, "{output:?}");
        assert_eq!((output.from(), output.to()), stations(port), "{output:?}");
        assert_eq!(error.source, own_address(port, true), "source of {output:?}");
        assert!(output.ipv6().total_len() <= 1280, "length of {output:?}");
        let offending = network_of(&frame.bytes()).to_vec();
        assert_eq!(
            error.destination,
            IpAddr::from(<[u8; 16]>::try_from(&offending[8..24]).expect("sixteen bytes"))
        );
        let total = 40 + usize::from(u16::from_be_bytes([offending[4], offending[5]]));
        assert_eq!(error.body.len(), total.min(1280 - 48), "length of the quote in {output:?}");
        assert_eq!(error.body, offending[..error.body.len()], "quote of {output:?}");
        error
    }

    /// Sends a frame made from each item. Asserts that the router drops each frame for this reason and sends
    /// nothing.
    ///
    /// # Panics
    /// When the router treats one of the frames otherwise.
    #[track_caller]
    pub fn expect_drops<T: Copy, F: Frame + Debug>(
        &mut self,
        items: &[T],
        frame: impl Fn(T) -> F,
        reason: DropReason,
    ) {
        for item in items {
            self.expect_drop("a", &frame(*item), reason);
        }
    }

    /// Asserts that no packet is unaccounted.
    ///
    /// # Panics
    /// When a packet is unaccounted.
    pub fn check_conservation(&mut self) {
        let summary = self.router.summary();
        assert_eq!(summary.unaccounted, 0, "conservation: {summary:?}");
        assert_eq!(
            summary.dropped_by.values().sum::<u64>(),
            summary.dropped,
            "drops without a reason: {summary:?}"
        );
        assert_eq!(
            summary.created_by.values().sum::<u64>(),
            summary.created,
            "made for no reason: {summary:?}"
        );
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_conservation();
        }
    }
}

/// Returns the MAC address of a standard port, and that of the host behind it.
fn stations(port: &str) -> (MacAddr, MacAddr) {
    let number = u8::from_str_radix(port, 16).expect("a port of the standard scenario: a, b or c");
    (station(number), station(number << 4 | 2))
}

/// Returns the IP address of a standard port.
fn own_address(port: &str, v6: bool) -> IpAddr {
    let number = u8::from_str_radix(port, 16).expect("a port of the standard scenario: a, b or c") - 9;
    let text = if v6 { format!("fd00:{number}::1") } else { format!("10.{number}.0.1") };
    text.parse().expect("an address")
}

fn network_of(frame: &[u8]) -> &[u8] {
    let mut at = 12;
    while frame[at..].starts_with(&[0x81, 0]) || frame[at..].starts_with(&[0x88, 0xa8]) {
        at += 4;
    }
    &frame[at + 2..]
}

/// Returns the network packet that a router sends for a frame: without padding, with TTL or hop limit one
/// less, and with the checksum recomputed.
fn one_hop_less(frame: &[u8]) -> Vec<u8> {
    let mut packet = network_of(frame).to_vec();
    if packet[0] >> 4 == 4 {
        packet.truncate(u16::from_be_bytes([packet[2], packet[3]]).into());
        packet[8] -= 1;
        let header = usize::from(packet[0] & 15) * 4;
        packet[10..12].fill(0);
        let sum = crate::checksum(&packet[..header]).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
    } else {
        packet.truncate(40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])));
        packet[7] -= 1;
    }
    packet
}
