//! `port-filter`: drops packets whose destination port is in one of up to five ranges.
//!
//! # Purpose
//! A small firewall for chosen flows, whose ports can change while packets flow.
//!
//! # Gates
//! At positions `early` and `late`.
//!
//! # Settings
//! - `ports`: up to five ports or ranges, as in `80,443,1000-2000`; none by default, so that the plugin drops
//!   nothing.
//! - `protocol`: `tcp`, `udp`, or `any` (the default) for every protocol with ports: TCP, UDP, SCTP and
//!   UDP-Lite.
//! - `cut`: treatment of packets of the protocol whose ports are unreadable, because the transport header is
//!   cut or too deep: `drop` (the default) or `pass`. With `pass`, a sender that hides its ports bypasses the
//!   filter.
//!
//! Later fragments have no ports and pass. If the plugin dropped the first fragment, the receiver can't
//! reassemble the packet. (RFC 1858 describes the exception, a first fragment without ports: that is a packet
//! with a cut header.) Without `ports`, packets with cut headers pass as well. Protocols without ports, such
//! as ICMP and ESP, always pass.
//!
//! # Messages
//! - `read`: returns settings and counters. Resets nothing.
//! - `set ports=… protocol=… cut=…`: changes the given settings: all of them, or none if one is invalid. New
//!   ranges count from zero; the other counters continue.
//! - `reset`: sets all counters to zero.
//!
//! # Counters
//! - `packets`: packets received.
//! - `dropped`: packets dropped.
//! - `dropped_cut`: dropped packets whose ports could not be read.
//! - `ranges`: for each range, packets dropped since it was set; if ranges overlap, the first one counts.
//!
//! For offloaded flows, the plugin's eBPF variant filters and counts the packets; `read` adds its counts.
//!
//! A change of settings by `instance set` keeps all counters.
//!
//! # Example
//! ```text
//! millrace instance create port-filter web ports=80,443 protocol=tcp
//! millrace bind web --gate firewall --filter 'in lan'
//! millrace control web set ports=80,443,8000-8999
//! millrace control web read --json
//! {"ports":"80,443,8000-8999","protocol":"tcp","cut":"drop","packets":12,"dropped":2,"dropped_cut":0,
//!  "ranges":[{"ports":"80","dropped":0},{"ports":"443","dropped":2},{"ports":"8000-8999","dropped":0}]}
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod ebpf;
mod settings;

use std::sync::Arc;

use millrace_plugin_abi::{
    EbpfVariant, Exceptions, Features, FlowKey, Instance, Instant, Message, Packets, Plugin, PluginError,
    Position, Progress, Reply, SettingsReader, VariantCounts, VariantMemory, Verdict, declared, name_of,
    restored, settings_of,
};
use millrace_wire::Protocol;
use serde_json::{Map, Value, json};

use settings::{Cut, Protocols, Settings};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: PortFilter = PortFilter;

/// Plugin `port-filter`.
#[derive(Debug)]
pub struct PortFilter;

const NAME: &str = "port-filter";
const MESSAGES: &[(&str, &str)] = &[
    ("read", "settings and counters"),
    ("set", "ports=80,443,1000-2000 protocol=tcp|udp|any cut=drop|pass: changes the given settings"),
    ("reset", "sets all counters to zero"),
];
/// Maximum number of ranges of an instance.
const MOST_RANGES: usize = 5;

/// Version of the saved state's format.
const STATE_VERSION: u32 = 2;

impl Plugin for PortFilter {
    declared! {
        name: NAME,
        summary: "Drops packets whose destination port lies in one of up to five ranges.",
        positions: &[Position::Early, Position::Late],
        features: Features::SAVED_STATE,
        messages: MESSAGES,
        settings: settings_of(
            json!({
                "ports": {"type": ["string", "integer", "array"], "default": "",
                    "description": "up to five destination ports or ranges whose packets are dropped, as in 80,443,1000-2000"},
                "protocol": {"enum": ["tcp", "udp", "any"], "default": "any", "description": "protocol of the dropped packets"},
                "cut": {"enum": ["drop", "pass"], "default": "drop", "description": "treatment of packets with unreadable ports"},
            }),
            &[],
        ),
        state_version: STATE_VERSION,
        packet_budget: 300,
    }

    fn ebpf_variant(&self) -> Option<EbpfVariant> {
        Some(ebpf::VARIANT)
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let settings = Settings::default().with(settings)?;
        let variant = VariantCounts::new(ebpf::VARIANT.counters);
        let counters = Counters::default();
        Ok(Box::new(PortFilterInstance { settings, counters, variant, other_ranges: false }))
    }
}

#[derive(Clone, Copy, Default)]
struct Counters {
    packets: u64,
    dropped: u64,
    dropped_cut: u64,
    ranges: [u64; MOST_RANGES],
}

struct PortFilterInstance {
    settings: Settings,
    /// Counters of packets that workers processed.
    counters: Counters,
    /// Counters of packets that the eBPF variant processed.
    variant: VariantCounts,
    /// Whether the eBPF variant's counters still count for ranges that have been replaced.
    other_ranges: bool,
}

impl Instance for PortFilterInstance {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.counters.packets += packets.len() as u64;
        packets.for_each(|key, packet| self.decide(key, packet.exceptions));
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn hears_flow_ends(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        let Counters { packets, dropped, dropped_cut, ranges } = self.counters;
        let state = json!([
            self.settings.ranges.to_string(),
            [packets, dropped, dropped_cut],
            ranges,
            self.variant.save()
        ]);
        Ok(Some(state.to_string().into_bytes()))
    }

    /// Restores the counters. Restores the counters of the ranges only if the saved ranges equal the present
    /// ones.
    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let (ports, [packets, dropped, dropped_cut], ranges, variant): (String, _, _, Vec<u64>) =
            restored(state, version, STATE_VERSION)?;
        if !self.variant.restore(&variant) {
            return Err(PluginError::Refused(
                "can't restore state: the saved counters of the eBPF variant do not match".to_owned(),
            ));
        }
        let is_same = ports == self.settings.ranges.to_string();
        let ranges = if is_same { ranges } else { [0; MOST_RANGES] };
        self.other_ranges |= !is_same;
        self.counters = Counters { packets, dropped, dropped_cut, ranges };
        Ok(())
    }

    fn attach_ebpf_variant(&mut self, memory: Arc<dyn VariantMemory>) {
        self.variant.attach(memory, &ebpf::settings(&self.settings));
        if std::mem::take(&mut self.other_ranges) {
            self.reset_offloaded_ranges();
        }
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &["set"])?;
        match message.name.as_str() {
            "reset" => {
                self.counters = Counters::default();
                self.variant.reset_all();
            }
            "set" => self.set(&message.arguments)?,
            _ => {}
        }
        Ok(self.read())
    }
}

impl PortFilterInstance {
    #[inline]
    fn decide(&mut self, key: &FlowKey, exceptions: Exceptions) -> Verdict {
        let Settings { ranges, protocols, cut } = &self.settings;
        if ranges.is_empty() || exceptions.contains(Exceptions::FRAGMENT) {
            return Verdict::Pass;
        }
        if exceptions.contains(Exceptions::CUT) {
            if *cut == Cut::Pass || !(protocols.contains(key.protocol) || is_extension(key.protocol)) {
                return Verdict::Pass;
            }
            self.counters.dropped_cut += 1;
        } else {
            if !protocols.contains(key.protocol) {
                return Verdict::Pass;
            }
            let hit = ranges.iter().position(|range| range.contains(key.destination_port));
            let Some(index) = hit else { return Verdict::Pass };
            if let Some(range) = self.counters.ranges.get_mut(index) {
                *range += 1;
            }
        }
        self.counters.dropped += 1;
        Verdict::Drop(0)
    }

    fn set(&mut self, arguments: &Map<String, Value>) -> Result<(), PluginError> {
        SettingsReader::new(NAME, arguments).check_changes(&settings::NAMES)?;
        self.settings = self.settings.with(arguments)?;
        if arguments.contains_key("ports") {
            self.counters.ranges = [0; MOST_RANGES];
        }
        self.variant.configure(&ebpf::settings(&self.settings));
        if arguments.contains_key("ports") {
            self.reset_offloaded_ranges();
        }
        Ok(())
    }

    fn reset_offloaded_ranges(&mut self) {
        (0..MOST_RANGES).for_each(|range| self.variant.reset(ebpf::RANGES + range));
    }

    /// Returns the sums of the worker's and the eBPF variant's counters.
    fn counted(&self) -> Counters {
        let Counters { packets, dropped, dropped_cut, ranges } = self.counters;
        let counted = |at: usize| ranges.get(at).copied().unwrap_or_default();
        let range = |at: usize| counted(at).wrapping_add(self.variant.counted(ebpf::RANGES + at));
        Counters {
            packets: packets.wrapping_add(self.variant.counted(ebpf::PACKETS)),
            dropped: dropped.wrapping_add(self.variant.counted(ebpf::DROPPED)),
            // Packets with cut headers are never offloaded.
            dropped_cut,
            ranges: std::array::from_fn(range),
        }
    }

    fn read(&self) -> Value {
        let Settings { ranges, protocols, cut } = &self.settings;
        let Counters { packets, dropped, dropped_cut, ranges: by_range } = self.counted();
        let counted: Vec<_> = ranges
            .iter()
            .zip(by_range)
            .map(|(range, dropped)| json!({ "ports": range.to_string(), "dropped": dropped }))
            .collect();
        json!({
            "ports": ranges.to_string(),
            "protocol": name_of(protocols, &Protocols::NAMES),
            "cut": name_of(cut, &Cut::NAMES),
            "packets": packets,
            "dropped": dropped,
            "dropped_cut": dropped_cut,
            "ranges": counted,
        })
    }
}

impl Protocols {
    #[inline]
    fn contains(self, protocol: u8) -> bool {
        match self {
            Self::Tcp => Protocol(protocol) == Protocol::TCP,
            Self::Udp => Protocol(protocol) == Protocol::UDP,
            Self::Any => Protocol(protocol).has_ports(),
        }
    }
}

/// Whether `protocol` is an IPv6 extension header. The router then could not read the chain of headers to its
/// end, and the upper-layer protocol is unknown.
#[inline]
fn is_extension(protocol: u8) -> bool {
    matches!(
        Protocol(protocol),
        Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::FRAGMENT | Protocol::DESTINATION_OPTIONS
            // Mobility (RFC 6275), HIP (RFC 7401), shim6 (RFC 5533).
            | Protocol(135 | 139 | 140)
    )
}

#[cfg(test)]
mod tests;
