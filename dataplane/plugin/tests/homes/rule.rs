//! The rule of `rule.c` as a built-in plugin: the reference for the other runtimes.

use std::collections::VecDeque;
use std::time::Duration;

use millrace_plugin_abi::{
    Backlog, Fault, FlowEnd, Instance, Instant, LogLevel, MapHandle, MapProblem, Message, Output, Packet,
    Packets, PluginError, Progress, Reply, Verdict,
};
use millrace_units::{InstanceId, PortId};
use serde_json::json;

/// Window of plugins in other runtimes: number of packet bytes that they see without a host function.
const WINDOW: usize = 64;

/// Source language of the plugin with which the rule is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RuleIn {
    /// C, which can return invalid tags.
    #[default]
    C,
    /// Rust, where the SDK keeps only the lowest five bits of a tag.
    Rust,
}

#[derive(Debug)]
pub struct Rule {
    language: RuleIn,
    /// Numbers in the order of `own` in `rule.c`.
    own: [u64; 9],
    /// Service state: number of packets, an unused number, number of starts.
    service: [u8; 20],
    maps: Vec<MapHandle>,
    counters: [(&'static str, u64); 2],
    outputs: VecDeque<Output>,
    fault: Option<Fault>,
    now: Instant,
    timer: Option<Instant>,
    last_periodic: Option<Instant>,
}

const PORT: usize = 0;
const PACKETS: usize = 1;
const FIRSTS: usize = 2;
const BEYOND: usize = 3;
const ENDED: usize = 4;
const KEPT: usize = 5;
const TICKS: usize = 6;
const WAITED: usize = 7;
const NOTED: usize = 8;
const NAMES: [&str; 9] = ["port", "packets", "firsts", "beyond", "ended", "kept", "ticks", "waited", "noted"];

impl Default for Rule {
    fn default() -> Self {
        let mut rule = Self {
            language: RuleIn::default(),
            own: [0; 9],
            service: [0; 20],
            maps: Vec::new(),
            counters: [("packets", 0), ("ports", 0)],
            outputs: VecDeque::new(),
            fault: None,
            now: Instant::ZERO,
            timer: None,
            last_periodic: None,
        };
        rule.service[16] = 1;
        rule.own[NOTED] = rule.note(1);
        rule
    }
}

impl Rule {
    /// Returns the rule as it behaves in a source language.
    pub fn like(language: RuleIn) -> Self {
        Self { language, ..Self::default() }
    }

    /// Does the same as `note` in `rule.c`.
    fn note(&mut self, port: u16) -> u64 {
        let number = |result: Option<Result<(), MapProblem>>| match result {
            Some(Ok(())) => 0,
            Some(Err(MapProblem::Absent)) => 1,
            Some(Err(MapProblem::Full)) => 2,
            Some(Err(MapProblem::Refused)) | None => 3,
        };
        let (key, mut seen) = (port.to_le_bytes(), [0; 12]);
        let mut came = 1 + number(self.maps.first().map(|map| map.get(&key, &mut seen)));
        let at = |seen: &[u8; 12], at: usize| u32::from_le_bytes(*seen[at..].first_chunk().unwrap());
        let (count, calls) = (at(&seen, 0) + 1, at(&seen, 8) + u32::from(port));
        seen[..4].copy_from_slice(&count.to_le_bytes());
        seen[8..].copy_from_slice(&calls.to_le_bytes());
        came = came * 4 + number(self.maps.first_mut().map(|map| map.set(&key, &seen)));
        if count % 5 == 0 {
            came = came * 4 + number(self.maps.first_mut().map(|map| map.remove(&key)));
        }
        came = came * 4 + number(self.maps.first_mut().map(|map| map.set(&key[..1], &seen)));
        came = came * 4 + number(self.maps.get_mut(1).map(|map| map.set(&key, &seen)));
        came = came * 4 + number(self.maps.get(1).map(|map| map.get(&key, &mut seen)));
        came + u64::from(at(&seen, 0))
    }

    fn common(&self) -> u64 {
        u64::from_le_bytes(*self.service.first_chunk().unwrap())
    }

    fn set(&mut self, message: &Message) {
        if let Some(port) = message.arguments.get("port") {
            self.own[PORT] = port.as_u64().unwrap();
        }
    }

    fn wrong(&mut self, text: &str) -> Verdict {
        self.fault = Some(Fault { kind: "wrong_verdict", text: text.to_owned() });
        Verdict::Fault
    }

    fn decide(&mut self, port: u16, packet: &mut Packet) -> Verdict {
        if let Some(first) = packet.data_mut().first_mut() {
            *first = first.wrapping_add(1);
        }
        packet.tag = (self.own[PACKETS] % 32) as u8;
        match port {
            7 => {
                assert!(packet.prepend(4).is_some());
                let window = packet.data().len().min(WINDOW) as u8;
                packet.data_mut()[..4].copy_from_slice(&[1, 2, 3, window]);
            }
            8 => _ = packet.trim_front(2),
            9 if !packet.is_empty() => {
                let window = packet.data()[..packet.data().len().min(WINDOW)].to_vec();
                if self.outputs.len() < 64 {
                    self.outputs.push_back(Output::Packet { bytes: window, port: PortId(2), passes: 0 });
                }
            }
            10 => return Verdict::Port(PortId(5)),
            11 => return Verdict::Hold(self.now + Duration::from_nanos(1000)),
            12 => return Verdict::Ports(6),
            13 => return Verdict::Instance(InstanceId(1)),
            14 => return Verdict::Classify,
            16 => return Verdict::Reject(9),
            _ => {}
        }
        Verdict::Pass
    }
}

/// Does the same as `waiting_before` in `rule.c`.
fn sum(known: &Backlog) -> u64 {
    let of_queue = known.queue.map_or(0, |queue| {
        let places =
            1 + u64::from(queue.of_flow) + 3 * u64::from(queue.port.0) + 5 * u64::from(queue.queue.0);
        places + 7 * u64::from(queue.packets) + 11 * queue.bytes
    });
    let of_payer = known.payer.map_or(31, |payer| {
        let allowance = payer.allowance.map_or(31, |time| 37 * time.as_nanos() as u64);
        19 + 23 * u64::from(payer.packets) + 29 * payer.bytes + allowance
    });
    of_queue + 13 * u64::from(known.instance_packets) + 17 * known.instance_bytes + of_payer
}

impl Instance for Rule {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        self.now = now;
        let common = self.common() + packets.len() as u64;
        self.service[..8].copy_from_slice(&common.to_le_bytes());
        for place in 0..packets.len() {
            self.own[PACKETS] += 1;
            let port = packets.get_mut(place).0.destination_port;
            self.counters[0].1 += 1;
            self.counters[1].1 += u64::from(port);
            self.own[NOTED] += self.note(port);
            let known = packets.flow_number(place) != 0;
            self.own[FIRSTS] += u64::from(known && packets.is_first(place));
            self.own[FIRSTS] += if packets.are_copies() { 1000 } else { 0 };
            let of_flow = packets.state_mut(place).map(|state| {
                let count = u64::from_ne_bytes(state.try_into().unwrap()) + 1;
                state.copy_from_slice(&count.to_ne_bytes());
                count
            });
            let backlog = packets.backlog(place);
            let (key, packet) = packets.get_mut(place);
            let mut byte = [0];
            packet.read(200, &mut byte);
            self.own[BEYOND] += u64::from(byte[0]);
            let port = key.destination_port;
            let verdict = match port {
                _ if u64::from(port) == self.own[PORT] => Verdict::Drop(3),
                666 => self.wrong("unknown verdict 255"),
                667 if self.language == RuleIn::Rust => {
                    packet.tag = 40 & 31;
                    Verdict::Pass
                }
                667 => self.wrong("tag must be 0 to 31, not 40"),
                _ if of_flow.is_some_and(|count| count % 4 == 0) => Verdict::Consume,
                _ => {
                    self.own[WAITED] += if port == 15 { sum(&backlog) } else { 0 };
                    self.decide(port, packet)
                }
            };
            packets.set_verdict(place, verdict);
        }
        Progress::Done
    }

    fn writes_packets(&self) -> bool {
        false
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.to_vec()
    }

    fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    fn control(&mut self, message: &Message) -> Reply {
        match message.name.as_str() {
            "read" => Ok(NAMES
                .iter()
                .zip(self.own)
                .chain([(&"common", self.common()), (&"begun", self.service[16].into())])
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect()),
            "set" => {
                self.outputs.push_back(Output::Log(LogLevel::Warning, "the port changes".to_owned()));
                self.timer = Some(self.now + Duration::from_nanos(1000));
                self.set(message);
                Ok(serde_json::Value::Null)
            }
            _ => Err(PluginError::unknown_message("rule", &message.name, &[("read", ""), ("set", "")])),
        }
    }

    fn next_call(&self) -> Option<Instant> {
        let regular = self.last_periodic.map_or(Instant::ZERO, |last| last + Duration::from_millis(500));
        Some(self.timer.map_or(regular, |timer| timer.min(regular)))
    }

    fn periodic(&mut self, now: Instant) -> Progress {
        (self.now, self.last_periodic) = (now, Some(now));
        self.timer = self.timer.filter(|timer| *timer > now);
        self.own[TICKS] += now.as_nanos();
        Progress::Done
    }

    fn message(&mut self, bytes: &[u8]) -> Progress {
        self.own[TICKS] += bytes.len() as u64;
        let answer = &bytes[..bytes.len() / 2];
        if self.outputs.len() < 64 && answer.len() <= 16 << 10 {
            self.outputs.push_back(Output::Message(answer.to_vec()));
        } else {
            self.own[TICKS] += 1_000_000;
        }
        Progress::Done
    }

    fn take_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn flow_state(&self) -> usize {
        8
    }

    fn restart(&mut self) -> Result<(), PluginError> {
        let (mut service, counters) = (self.service, self.counters);
        let outputs = std::mem::take(&mut self.outputs);
        service[16] += 1;
        let maps = std::mem::take(&mut self.maps);
        *self = Self { service, counters, outputs, maps, ..Self::like(self.language) };
        Ok(())
    }

    fn service_state(&self) -> Vec<u8> {
        self.service.to_vec()
    }

    fn adopt_service_state(&mut self, state: &[u8]) {
        self.service.copy_from_slice(state);
    }

    fn attach_maps(&mut self, maps: Vec<MapHandle>) {
        self.maps = maps;
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        Ok(Some(self.own.iter().flat_map(|value| value.to_le_bytes()).collect()))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        assert_eq!(version, 2);
        for (own, bytes) in self.own.iter_mut().zip(state.chunks(8)) {
            *own = u64::from_le_bytes(bytes.try_into().unwrap());
        }
        Ok(())
    }

    fn flow_ended(&mut self, flow: &FlowEnd, state: &[u8]) -> Progress {
        self.own[ENDED] += flow.packets + u64::from(flow.key.destination_port);
        self.own[KEPT] += state.try_into().map_or(0, u64::from_ne_bytes);
        Progress::Done
    }
}
