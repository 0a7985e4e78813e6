//! `statistics`: counts packets and bytes by IP protocol and by size.
//!
//! # Purpose
//! Shows the composition of the traffic of chosen flows. The choice of counters can change while packets
//! flow. All packets pass.
//!
//! # Gates
//! At positions `early`, `late` and `copy`.
//!
//! # Settings
//! `what`: counters to gather: `protocol`, `size`, or `all` (the default) for both. The plugin always gathers
//! totals. Memory: 9 KiB per instance, whatever the choice.
//!
//! # Messages
//! - `read`: returns the counters. Resets nothing.
//! - `reset`: sets all counters to zero.
//! - `configure what=…`: changes the choice of counters. Counters that are no longer gathered keep their
//!   values.
//!
//! # Counters
//! For offloaded flows, the plugin's eBPF variant counts the packets; `read` adds its counts. Bytes count
//! whole frames at the gate, link header included, without the frame check sequence.
//! - `packets`, `bytes`: counts by the name of the protocol, or by its number if it has no name; in IPv6 the
//!   protocol of the upper layer. Protocols without packets are left out.
//! - `ipv4`, `ipv6`: the same counts by family.
//! - `sizes`: packets by length in bytes.
//! - `total`: all packets and bytes.
//! - `what`: the counters to gather.
//!
//! # Example
//! ```text
//! millrace instance create statistics stats1
//! millrace bind stats1 --gate monitor --filter 'proto udp dport 5201'
//! millrace control stats1 read --json
//! {"packets":{"udp":2},"bytes":{"udp":1600},"ipv4":{"packets":{"udp":2},"bytes":{"udp":1600}},
//!  "ipv6":{"packets":{},"bytes":{}},"sizes":{"512-1023":2,…},"total":{"packets":2,"bytes":1600},"what":"all"}
//! millrace control stats1 configure what=size
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod ebpf;

use std::sync::Arc;

use millrace_plugin_abi::{
    EbpfVariant, Family, Features, Instance, Instant, Message, Packets, Plugin, PluginError, Position,
    Progress, Reply, SettingsReader, VariantCounts, VariantMemory, Verdict, declared, name_of, settings_of,
};
use millrace_wire::Protocol;
use serde_json::{Map, Value, json};

/// The plugin, for the registration of built-in plugins.
pub static PLUGIN: Statistics = Statistics;

/// Plugin `statistics`.
#[derive(Debug)]
pub struct Statistics;

const NAME: &str = "statistics";
const MESSAGES: &[(&str, &str)] = &[
    ("read", "the counters"),
    ("reset", "sets all counters to zero"),
    ("configure", "what=protocol|size|all: changes the choice of counters"),
];

impl Plugin for Statistics {
    declared! {
        name: NAME,
        summary: "Counts packets and bytes by IP protocol and by size.",
        positions: &[Position::Early, Position::Late, Position::Copy],
        features: Features::SAVED_STATE,
        messages: MESSAGES,
        settings: settings_of(
            json!({
                "what": {"enum": ["protocol", "size", "all"], "default": "all", "description": "counters to gather beside the totals"},
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
        let what = What::read(settings)?.unwrap_or(What::All);
        let variant = VariantCounts::new(ebpf::VARIANT.counters);
        Ok(Box::new(StatisticsInstance { what, counters: Box::new(Counters::ZERO), variant }))
    }
}

/// Version of the saved state's format.
const STATE_VERSION: u32 = 2;

/// Counters to gather in addition to the totals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Protocol,
    Size,
    All,
}

impl What {
    const NAMES: [(&str, Self); 3] = [("protocol", Self::Protocol), ("size", Self::Size), ("all", Self::All)];

    /// Reads the setting `what`; `None` if it is not given. Refuses other settings.
    fn read(settings: &Map<String, Value>) -> Result<Option<Self>, PluginError> {
        PluginError::unless_known(NAME, settings, &["what"])?;
        SettingsReader::new(NAME, settings).choice("what", &Self::NAMES)
    }
}

/// Number of packets, and number of their bytes.
#[derive(Clone, Copy, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Count {
    const ZERO: Self = Self { packets: 0, bytes: 0 };

    #[inline]
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

/// Size classes: name and upper limit of each, in bytes. A class begins above the limit of the class before.
const SIZES: [(&str, u64); 7] = [
    ("0-63", 63),
    ("64-127", 127),
    ("128-255", 255),
    ("256-511", 511),
    ("512-1023", 1023),
    ("1024-1518", 1518),
    ("1519-", u64::MAX),
];

#[derive(Clone)]
struct Counters {
    total: Count,
    v4: [Count; 256],
    v6: [Count; 256],
    sizes: [u64; SIZES.len()],
}

impl Counters {
    const ZERO: Self =
        Self { total: Count::ZERO, v4: [Count::ZERO; 256], v6: [Count::ZERO; 256], sizes: [0; SIZES.len()] };

    /// Iterates over all counters, in the order of the saved state and of the eBPF variant.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        let counts = std::iter::once(&self.total).chain(&self.v4).chain(&self.v6);
        counts.flat_map(|count| [count.packets, count.bytes]).chain(self.sizes)
    }

    fn numbers_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let counts = std::iter::once(&mut self.total).chain(&mut self.v4).chain(&mut self.v6);
        counts.flat_map(|count| [&mut count.packets, &mut count.bytes]).chain(&mut self.sizes)
    }
}

struct StatisticsInstance {
    what: What,
    /// Counters of packets that workers processed.
    counters: Box<Counters>,
    /// Counters of packets that the eBPF variant processed.
    variant: VariantCounts,
}

impl Instance for StatisticsInstance {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        let (by_protocol, by_size) = (self.what != What::Size, self.what != What::Protocol);
        let counters = &mut *self.counters;
        packets.for_each(|key, packet| {
            let bytes = packet.len() as u64;
            counters.total.add(bytes);
            if by_protocol {
                let family = match key.family() {
                    Family::V4 => &mut counters.v4,
                    Family::V6 => &mut counters.v6,
                };
                if let Some(count) = family.get_mut(usize::from(key.protocol)) {
                    count.add(bytes);
                }
            }
            if by_size && let Some(size) = counters.sizes.get_mut(size_class(bytes)) {
                *size += 1;
            }
            Verdict::Pass
        });
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn hears_flow_ends(&self) -> bool {
        false
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        let numbers = self.counters.numbers().chain(self.variant.save());
        Ok(Some(numbers.flat_map(|number| number.to_le_bytes()).collect()))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let (numbers, rest) = state.as_chunks();
        let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let (own, variant) = numbers.split_at(numbers.len().min(self.counters.numbers().count()));
        if version != STATE_VERSION || !rest.is_empty() || !self.variant.restore(variant) {
            let problem = format!(
                "can't restore state: {} bytes of version {version} are not counters of this plugin",
                state.len()
            );
            return Err(PluginError::Refused(problem));
        }
        self.counters.numbers_mut().zip(own).for_each(|(number, saved)| *number = *saved);
        Ok(())
    }

    fn attach_ebpf_variant(&mut self, memory: Arc<dyn VariantMemory>) {
        self.variant.attach(memory, &ebpf::settings(self.what));
    }

    fn control(&mut self, message: &Message) -> Reply {
        message.check(NAME, MESSAGES, &["configure"])?;
        match message.name.as_str() {
            "reset" => {
                *self.counters = Counters::ZERO;
                self.variant.reset_all();
            }
            "configure" => {
                let missing =
                    || PluginError::setting(NAME, "what", "it is missing; give protocol, size or all");
                self.what = What::read(&message.arguments)?.ok_or_else(missing)?;
                self.variant.configure(&ebpf::settings(self.what));
            }
            _ => {}
        }
        Ok(self.read())
    }
}

impl StatisticsInstance {
    fn read(&self) -> Value {
        let mut all = self.counters.clone();
        for (number, variant) in all.numbers_mut().zip(self.variant.all()) {
            *number = number.wrapping_add(variant);
        }
        let Counters { total, v4, v6, sizes } = &*all;
        let mut both = *v4;
        for (count, more) in both.iter_mut().zip(v6) {
            count.packets += more.packets;
            count.bytes += more.bytes;
        }
        let sizes: Map<_, _> = SIZES
            .iter()
            .zip(sizes)
            .map(|((name, _), packets)| ((*name).to_owned(), json!(packets)))
            .collect();
        json!({
            "packets": by_name(&both, |count| count.packets),
            "bytes": by_name(&both, |count| count.bytes),
            "ipv4": family(v4),
            "ipv6": family(v6),
            "sizes": sizes,
            "total": { "packets": total.packets, "bytes": total.bytes },
            "what": name_of(&self.what, &What::NAMES),
        })
    }
}

#[inline]
fn size_class(bytes: u64) -> usize {
    // The upper limit of the last class is the greatest number, so every length has a class.
    SIZES.iter().position(|(_, limit)| bytes <= *limit).unwrap_or(SIZES.len() - 1)
}

fn family(counts: &[Count; 256]) -> Value {
    json!({
        "packets": by_name(counts, |count| count.packets),
        "bytes": by_name(counts, |count| count.bytes),
    })
}

/// Returns a value for each protocol with packets, by the protocol's name or number.
fn by_name(counts: &[Count; 256], value: fn(&Count) -> u64) -> Map<String, Value> {
    (0..=u8::MAX)
        .zip(counts)
        .filter(|(_, count)| count.packets > 0)
        .map(|(number, count)| (Protocol(number).to_string(), json!(value(count))))
        .collect()
}

#[cfg(test)]
mod tests;
