//! `port-filter-rs`: drops packets whose destination port lies in one of up to five ranges.
//!
//! An example of verdicts, of settings that a message changes while packets flow, and of a line in the
//! daemon's log. Later fragments have no ports and pass: no host can reassemble them without the first one.
//! Packets with a cut transport header have no readable ports; the plugin drops them, so that they don't
//! evade it.
//!
//! ```text
//! millrace plugin load port-filter-rs.wasm
//! millrace instance create port-filter-rs web ports=80,443,8000-8999
//! millrace bind web --gate firewall --filter 'in lan'
//! millrace control web set ports=80
//! ```
#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;

use millrace_sdk::{Packet, Packets, Plugin, Refusal, exceptions, host, json, millrace_plugin};

/// Maximum number of ranges of an instance.
const MOST_RANGES: usize = 5;
/// Drop reason for a port in one of the ranges.
const REASON_PORT: u8 = 0;
const REASON_CUT: u8 = 1;

/// Instance: its ranges, and the number of packets seen and dropped.
pub struct PortFilter {
    text: String,
    ranges: Vec<(u16, u16)>,
    packets: u64,
    dropped: u64,
}

impl Plugin for PortFilter {
    fn init(settings: &[u8]) -> Result<Self, Refusal> {
        let mut filter = Self { text: String::new(), ranges: Vec::new(), packets: 0, dropped: 0 };
        filter.set(settings)?;
        Ok(filter)
    }

    fn packets(&mut self, packets: &mut Packets<'_>, _now: u64) {
        self.packets += packets.len() as u64;
        packets.for_each(|mut packet| {
            if let Some(reason) = self.objection(&packet) {
                self.dropped += 1;
                packet.drop_for(reason);
            }
        });
    }

    fn control(&mut self, message: &str, arguments: &[u8]) -> Result<String, Refusal> {
        match message {
            "read" => json::Object::new(arguments)?.only(&[])?,
            "set" => {
                self.set(arguments)?;
                host::log(host::Level::Information, &["ports are now ", &self.text].concat());
            }
            other => return Err(Refusal::unknown_message(other)),
        }
        let mut json = json::Writer::new();
        json.begin_object().key("ports").string(&self.text);
        json.key("packets").number(self.packets).key("dropped").number(self.dropped).end_object();
        Ok(json.text())
    }
}

impl PortFilter {
    /// Applies the setting `ports`. An invalid value changes nothing.
    fn set(&mut self, settings: &[u8]) -> Result<(), Refusal> {
        let settings = json::Object::new(settings)?;
        settings.only(&["ports"])?;
        let Some(ports) = settings.get("ports") else { return Ok(()) };
        // `ports=80` arrives as a number, `ports=80,443` as a string.
        let text = match ports.integer() {
            Some(_) => String::from_utf8_lossy(ports.raw()).into_owned(),
            None => ports.string().ok_or("ports: give a text, as in 80,443,1000-2000")?,
        };
        self.ranges = ranges(&text)?;
        self.text = text;
        Ok(())
    }

    /// Returns the reason to drop a packet; `None` if it passes.
    fn objection(&self, packet: &Packet<'_>) -> Option<u8> {
        if self.ranges.is_empty() || packet.exceptions() & exceptions::FRAGMENT != 0 {
            return None;
        }
        if packet.exceptions() & exceptions::CUT != 0 {
            return Some(REASON_CUT);
        }
        let port = packet.destination_port();
        let hit = self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&port));
        (hit && has_ports(packet.protocol())).then_some(REASON_PORT)
    }
}

/// Whether a protocol has ports: TCP, UDP, SCTP and UDP-Lite.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132 | 136)
}

/// Returns the ranges of a text like `80,443,1000-2000`.
fn ranges(text: &str) -> Result<Vec<(u16, u16)>, Refusal> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if text.split(',').count() > MOST_RANGES {
        return Err("ports: at most 5 ranges are taken".into());
    }
    text.split(',').map(|range| range_of(range.trim())).collect()
}

fn range_of(text: &str) -> Result<(u16, u16), Refusal> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err(["ports: ", text, " is no port or range; give 0 to 65535, as in 80,1000-2000"]
            .concat()
            .into()),
    }
}

millrace_plugin! {
    PortFilter,
    name: "port-filter-rs",
    summary: "Drops packets whose destination port lies in one of up to five ranges.",
    positions: ["early", "late"],
    capabilities: ["log"],
    messages: {
        "read": "the ports and the counters",
        "set": "ports=80,443,1000-2000: changes the ports",
    },
    settings: r#"{
        "type": "object",
        "properties": {
            "ports": {"type": ["string", "integer"], "description": "up to five ports or ranges, as in 80,443,1000-2000"}
        },
        "additionalProperties": false
    }"#,
    window: 0,
}
