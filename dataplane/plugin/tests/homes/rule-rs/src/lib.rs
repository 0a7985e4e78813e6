//! The rule of `rule.c`, written with the Rust SDK, for a WebAssembly module, a shared object and an executable.
#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;

use millrace_sdk::{
    Declared as _, FlowEnd, MapError, Packet, Packets, Plain as _, Plugin, Refusal, SharedMap, Verdict, host,
    json, log, millrace_plugin, plain,
};

plain! {
    /// State of an instance; same layout as `own` in `rule.c`.
    pub struct Rule {
        port: u64,
        packets: u64,
        firsts: u64,
        beyond: u64,
        ended: u64,
        kept: u64,
        ticks: u64,
        waited: u64,
        noted: u64,
    }
}

plain! {
    /// Service state: number of packets, an unused number, number of starts.
    struct Service {
        packets: u64,
        unused: u64,
        begun: u32,
    }
}

plain! {
    /// Value of the map.
    struct Seen {
        count: u32,
        length: u32,
        calls: u32,
    }
}

/// Does the same as `note` in `rule.c`.
fn note(port: u16) -> u64 {
    let (own, other) = (SharedMap(0), SharedMap(1));
    let number = |result: Result<(), MapError>| match result {
        Ok(()) => 0,
        Err(MapError::Full) => 2,
        Err(MapError::Refused) => 3,
    };
    let there = |result: Result<bool, MapError>| match result {
        Ok(false) => 1,
        result => number(result.map(drop)),
    };
    let known = own.get::<u16, Seen>(&port);
    let mut seen = known.unwrap_or_default().unwrap_or_default();
    seen.count += 1;
    seen.calls += u32::from(port);
    let mut came = 1 + there(known.map(|known| known.is_some()));
    came = came * 4 + number(own.set(&port, &seen));
    if seen.count % 5 == 0 {
        came = came * 4 + there(own.remove(&port));
    }
    came = came * 4 + number(own.set(&(port as u8), &seen));
    came = came * 4 + number(other.set(&port, &seen));
    let others = other.get::<u16, Seen>(&port);
    came = came * 4 + there(others.map(|others| others.is_some()));
    came + u64::from(others.unwrap_or_default().unwrap_or(seen).count)
}

/// Does the same as `waiting_before` in `rule.c`.
fn waiting_before(packet: &Packet<'_>) -> u64 {
    let Some(waiting) = packet.backlog() else { return 1_000_000 };
    let of_queue = waiting.queue.map_or(0, |queue| {
        let places = 1 + u64::from(queue.of_flow) + 3 * u64::from(queue.port) + 5 * u64::from(queue.queue);
        places + 7 * u64::from(queue.packets) + 11 * queue.bytes
    });
    let of_payer = waiting.payer.map_or(31, |payer| {
        let allowance = payer.allowance.map_or(31, |time| 37 * time.as_nanos() as u64);
        19 + 23 * u64::from(payer.packets) + 29 * payer.bytes + allowance
    });
    of_queue + 13 * u64::from(waiting.instance_packets) + 17 * waiting.instance_bytes + of_payer
}

impl Rule {
    fn service() -> Service {
        Self::service_state().unwrap_or_default()
    }

    fn set(&mut self, json: &[u8]) -> Result<(), Refusal> {
        if let Some(port) = json::Object::new(json)?.get("port") {
            let port = port.integer().and_then(|port| u16::try_from(port).ok());
            self.port = port.ok_or("port: give 0 to 65535")?.into();
        }
        Ok(())
    }

    fn handle(&mut self, packet: &mut Packet<'_>, now: u64) {
        self.packets += 1;
        host::count(0, 1);
        host::count(1, packet.destination_port().into());
        host::count(2, 1);
        self.noted += note(packet.destination_port());
        self.firsts += u64::from(packet.is_first());
        if packet.is_copy() {
            self.firsts += 1000;
        }
        let of_flow = packet.flow_state::<u64>().map(|count| count + 1);
        if let Some(count) = &of_flow {
            packet.set_flow_state(count);
        }
        let mut byte = [0];
        if packet.read(200, &mut byte) == 1 {
            self.beyond += u64::from(byte[0]);
        }
        match packet.destination_port() {
            port if u64::from(port) == self.port => packet.drop_for(3),
            666 => packet.set(Verdict::Fault),
            // The SDK keeps only the lowest five bits of a tag.
            667 => packet.set_tag(40),
            _ if of_flow.is_some_and(|count| count % 4 == 0) => packet.set(Verdict::Consume),
            _ => self.decide(packet, now),
        }
    }

    fn decide(&mut self, packet: &mut Packet<'_>, now: u64) {
        if let Some(first) = packet.window_mut().first_mut() {
            *first = first.wrapping_add(1);
        }
        packet.set_tag((self.packets % 32) as u8);
        match packet.destination_port() {
            7 => {
                if packet.resize(4) {
                    let window = packet.window().len() as u8;
                    packet.window_mut()[3] = window;
                    packet.write(0, &[1, 2, 3]);
                }
            }
            8 => _ = packet.resize(-2),
            9 => _ = host::packet_make(packet.window(), 2),
            10 => packet.set(Verdict::Port(5)),
            11 => packet.set(Verdict::Hold(now + 1000)),
            12 => packet.set(Verdict::Ports(6)),
            13 => packet.set(Verdict::Instance(1)),
            14 => packet.set(Verdict::Classify),
            16 => packet.set(Verdict::Reject(9)),
            15 => self.waited += waiting_before(packet),
            _ => {}
        }
    }
}

impl Plugin for Rule {
    fn init(settings: &[u8]) -> Result<Self, Refusal> {
        // No maps are attached yet.
        let mut rule = Self { noted: note(1), ..Self::default() };
        let service = Self::service();
        Self::set_service_state(&Service { begun: service.begun + 1, ..service });
        rule.set(settings)?;
        Ok(rule)
    }

    fn packets(&mut self, packets: &mut Packets<'_>, now: u64) {
        let service = Self::service();
        Self::set_service_state(&Service { packets: service.packets + packets.len() as u64, ..service });
        packets.for_each(|mut packet| self.handle(&mut packet, now));
    }

    fn control(&mut self, message: &str, arguments: &[u8]) -> Result<String, Refusal> {
        if message == "set" {
            log!(Warning, "the port changes");
            host::timer(1000);
            self.set(arguments)?;
            return Ok(String::new());
        }
        let mut json = json::Writer::new();
        json.begin_object();
        let service = Self::service();
        let values = [
            ("port", self.port),
            ("packets", self.packets),
            ("firsts", self.firsts),
            ("beyond", self.beyond),
            ("ended", self.ended),
            ("kept", self.kept),
            ("ticks", self.ticks),
            ("waited", self.waited),
            ("noted", self.noted),
            ("common", service.packets),
            ("begun", service.begun.into()),
        ];
        for (name, value) in values {
            json.key(name).number(value);
        }
        json.end_object();
        Ok(json.text())
    }

    fn periodic(&mut self, now: u64) {
        self.ticks += now;
    }

    fn message(&mut self, message: &[u8]) {
        self.ticks += message.len() as u64;
        if !host::send(&message[..message.len() / 2]) {
            self.ticks += 1_000_000;
        }
    }

    fn flow_ended(&mut self, flow: &FlowEnd<'_>) {
        self.ended += flow.count().0 + u64::from(flow.ports().1);
        self.kept += flow.state::<u64>().unwrap_or_default();
    }

    fn save(&mut self) -> Result<Vec<u8>, Refusal> {
        let mut state = alloc::vec![0; Self::BYTES];
        self.write(&mut state);
        Ok(state)
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), Refusal> {
        let saved = Self::read(state).filter(|_| version == 2 && state.len() == Self::BYTES);
        *self = saved.ok_or("this is no state of version 2")?;
        Ok(())
    }
}

millrace_plugin! {
    Rule,
    name: "rule",
    summary: "Does a little of everything.",
    positions: ["early"],
    features: ["to-ports", "to-instances", "classify", "hold", "reject"],
    capabilities: [
        "log", "packet-read", "packet-write", "packet-resize", "packet-make", "timer", "flow-backlog", "map-read",
        "map-write", "message",
    ],
    messages: {
        "read": "the counters",
        "set": "port=PORT: packets to it are dropped",
    },
    settings: r#"{"type": "object", "properties": {"port": {"type": "integer"}}}"#,
    window: 64,
    flow_state: 8,
    service_state: 20,
    maps: [{ name: "ports", key: 2, value: 12, entries: 6 }],
    counters: ["packets", "ports"],
    state_version: 2,
    period: 500,
    flow_ends: true,
    hears: true,
}
