//! `statistics-rs`: counts packets and bytes by IP protocol.
//!
//! The smallest useful plugin: state, settings, and two messages. Packets always pass.
//!
//! ```text
//! millrace plugin load statistics-rs.wasm
//! millrace instance create statistics-rs i1
//! millrace bind i1 --gate monitor --filter 'proto udp'
//! millrace control i1 read --json
//! {"total":{"packets":2,"bytes":1600},"protocols":{"17":{"packets":2,"bytes":1600}}}
//! ```
#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::string::String;

use millrace_sdk::{Packets, Plugin, Refusal, json, millrace_plugin};

/// Instance: its counters, and whether it counts by protocol.
pub struct Statistics {
    by_protocol: bool,
    total: Count,
    protocols: Box<[Count; 256]>,
}

#[derive(Clone, Copy)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Count {
    const ZERO: Self = Self { packets: 0, bytes: 0 };

    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    fn write(self, json: &mut json::Writer) {
        json.begin_object().key("packets").number(self.packets).key("bytes").number(self.bytes).end_object();
    }
}

impl Plugin for Statistics {
    fn init(settings: &[u8]) -> Result<Self, Refusal> {
        let settings = json::Object::new(settings)?;
        settings.only(&["by-protocol"])?;
        let by_protocol = match settings.get("by-protocol") {
            None => true,
            Some(value) => value.boolean().ok_or("by-protocol: give true or false")?,
        };
        Ok(Self { by_protocol, total: Count::ZERO, protocols: Box::new([Count::ZERO; 256]) })
    }

    fn packets(&mut self, packets: &mut Packets<'_>, _now: u64) {
        packets.for_each(|packet| {
            let bytes = packet.len() as u64;
            self.total.add(bytes);
            if self.by_protocol {
                self.protocols[usize::from(packet.protocol())].add(bytes);
            }
        });
    }

    fn control(&mut self, message: &str, arguments: &[u8]) -> Result<String, Refusal> {
        json::Object::new(arguments)?.only(&[])?;
        match message {
            "read" => {}
            "reset" => {
                self.total = Count::ZERO;
                self.protocols.fill(Count::ZERO);
            }
            other => return Err(Refusal::unknown_message(other)),
        }
        Ok(self.read())
    }
}

impl Statistics {
    fn read(&self) -> String {
        let mut json = json::Writer::new();
        self.total.write(json.begin_object().key("total"));
        json.key("protocols").begin_object();
        for (number, count) in self.protocols.iter().enumerate().filter(|(_, count)| count.packets > 0) {
            let mut name = json::Writer::new();
            name.number(number as u64);
            count.write(json.key(&name.text()));
        }
        json.end_object().end_object();
        json.text()
    }
}

millrace_plugin! {
    Statistics,
    name: "statistics-rs",
    summary: "Counts packets and bytes by IP protocol.",
    positions: ["early", "late", "copy"],
    messages: {
        "read": "the counters",
        "reset": "sets all counters to zero",
    },
    settings: r#"{
        "type": "object",
        "properties": {
            "by-protocol": {"type": "boolean", "default": true, "description": "whether to count by protocol beside the totals"}
        },
        "additionalProperties": false
    }"#,
    // The plugin needs no packet bytes: the description of a packet contains the counted values.
    window: 0,
}
