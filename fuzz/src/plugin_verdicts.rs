//! Fuzz target of a sandboxed plugin's verdicts and changes, made of the input's bytes. Whatever the plugin
//! writes, cuts or lengthens, the router neither panics nor loses or invents a packet, and sends no malformed
//! frame.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_plugin::Manifest;
use millrace_plugin::wasm::fuzzing::{Answering, PluginMemory};
use millrace_plugin_abi::{
    Fault, Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply,
};
use millrace_tests::STANDARD;
use serde_json::{Map, Value};

use crate::input::Input;
use crate::router::frames::next_frames;
use crate::router::side::Side;

/// Gates of each position.
pub const GATES: [&str; 8] =
    ["options", "security-in", "firewall", "route", "process", "monitor", "schedule", "tap"];
/// Sizes of packet windows, in bytes.
const WINDOWS: [u16; 6] = [128, 14, 34, 64, 1536, 1];
const STATES: [u16; 4] = [0, 8, 16, 256];
/// Maximum number of operations of a run.
const MOST: u32 = 48;

/// Bytes from which the plugin's next answers are made.
type Answers = Arc<Mutex<Vec<u8>>>;

/// Plugin that stands for a sandboxed plugin with a manifest.
struct Sandboxed {
    manifest: Arc<Manifest>,
    answers: Answers,
}

struct SandboxedInstance {
    memory: PluginMemory,
    state: usize,
    answers: Answers,
}

impl Plugin for Sandboxed {
    fn name(&self) -> &'static str {
        "sandboxed"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Answers as a fuzz input has it."
    }

    fn positions(&self) -> &[Position] {
        &[Position::Early, Position::Route, Position::Late, Position::Copy, Position::Queue]
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let memory = PluginMemory::new(&self.manifest);
        let state = self.manifest.state.flow.into();
        Ok(Box::new(SandboxedInstance { memory, state, answers: self.answers.clone() }))
    }
}

impl Instance for SandboxedInstance {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let bytes = std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        let mut input = Input::new(&bytes);
        self.memory.call(packets, now, |plugin, count| answer(plugin, count, &mut input));
        let rest = input.rest().to_vec();
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner) = rest;
        Progress::Done
    }

    fn take_fault(&mut self) -> Option<Fault> {
        self.memory.take_fault().map(|text| Fault { kind: "wrong_verdict", text })
    }

    fn flow_state(&self) -> usize {
        self.state
    }

    fn control(&mut self, _: &Message) -> Reply {
        Ok(Value::Null)
    }
}

/// Applies up to 8 actions, read from `input`, to the plugin's batch of up to 64 packets.
fn answer(plugin: &mut Answering<'_>, count: u32, input: &mut Input<'_>) {
    const PACKET: usize = 64;
    for _ in 0..8 {
        if input.is_empty() {
            return;
        }
        // `number` may equal `count`: then the batch has no packet of that number.
        let number = u32::from(input.byte()) % (count + 1);
        match input.below(10) {
            0 => plugin.resize(number, -(i32::from(input.byte()) % 80)),
            1 => plugin.resize(number, input.pick(&[1, 4, 14, 40, 128, 256, i32::MAX, i32::MIN, -2048])),
            2 => {
                let (offset, length) = (u32::from(input.byte()), input.below(16));
                plugin.write(number, offset, input.take(length));
            }
            3 => plugin.backlog(number),
            // The action writes a verdict with its reason, target and time, at their offsets in the packet's
            // description.
            4..=6 => {
                let at = 64 + number as usize * PACKET + 48;
                let (verdict, target, until) = (input.byte() % 12, input.word() & 0x010f, input.byte());
                let bytes = [verdict, input.byte() % 33, target as u8, (target >> 8) as u8];
                put(plugin.memory, at, &bytes);
                put(plugin.memory, at + 8, &[until, 0, 0, input.byte() % 4, 0, 0, 0, 0]);
            }
            7 => put(plugin.memory, 64 + number as usize * PACKET + 26, &[input.byte() % 34]),
            8 => {
                let at = usize::from(input.word());
                let length = input.below(16);
                put(plugin.memory, at, input.take(length));
            }
            // The action writes bytes of a packet window.
            _ => {
                let at = 64 + 64 * PACKET + usize::from(input.word()) % 4096;
                let length = input.below(8);
                put(plugin.memory, at, input.take(length));
            }
        }
    }
}

fn put(memory: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(room) = memory.get_mut(at..).filter(|room| room.len() >= bytes.len()) {
        room[..bytes.len()].copy_from_slice(bytes);
    }
}

fn manifest(input: &mut Input<'_>) -> Manifest {
    let capabilities = input.pick(&[
        r#""packet-write", "packet-resize""#,
        r#""packet-write", "packet-resize""#,
        r#""packet-write""#,
        r#""packet-resize""#,
        "",
    ]);
    let (window, state) = (input.pick(&WINDOWS), input.pick(&STATES));
    let text = format!(
        r#"{{"abi": 1, "name": "sandboxed", "version": "1.0.0", "summary": "x",
        "positions": ["early", "route", "late", "copy", "queue"], "capabilities": [{capabilities}],
        "window": {window}, "flow-state": {state}}}"#
    );
    Manifest::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Runs a router with a plugin whose answers the input determines.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let manifest = Arc::new(manifest(&mut input));
    let gate = input.pick(&GATES);
    let copies =
        if input.one_in(4) { "[[filter]]\nmatch = \"*\"\naction = \"copy-to c via 10.3.0.2\"\n" } else { "" };
    let bound = bound_at(gate, "sandboxed");
    let text = format!(
        "[router]\nframes = 1024\nflows-max = 1024\n[plugins]\nstate = \"none\"\ncache = \"none\"\nfaults = 1000\n\
         fault-window = \"1s\"\n{STANDARD}\n[[instance]]\nplugin = \"sandboxed\"\nname = \"sandboxed\"\n{bound}{copies}"
    );
    let answers = Answers::default();
    let sandboxed = Arc::new(Sandboxed { manifest, answers: answers.clone() });
    let mut side = Side::new(&text, true, sandboxed, &mut |_, memory| Box::new(memory));
    for number in 0..MOST {
        if input.is_empty() {
            break;
        }
        step(&mut side, &answers, &mut input, number);
    }
    side.drain();
}

/// Returns the configuration that binds an instance to all packets at a gate; at a copy gate, to copies of
/// all packets.
pub fn bound_at(gate: &str, instance: &str) -> String {
    match gate {
        "tap" => format!("[[filter]]\nmatch = \"*\"\naction = \"copy {instance}\"\n"),
        gate => format!("[[bind]]\ninstance = \"{instance}\"\ngate = \"{gate}\"\nfilter = \"*\"\n"),
    }
}

/// Injects frames at port `a`, which the router then reads together.
pub fn arrive(side: &mut Side, input: &mut Input<'_>, number: u32) {
    for frame in 0..=input.byte() % 4 {
        for bytes in next_frames(input, "a", number * 8 + u32::from(frame), true) {
            side.router.inject("a", &bytes);
        }
    }
}

/// Injects frames together, with the plugin's answers to the calls for them. Then advances the clock, so that
/// a pause after a fault may end.
fn step(side: &mut Side, answers: &Answers, input: &mut Input<'_>, number: u32) {
    arrive(side, input, number);
    let length = input.below(64);
    *answers.lock().unwrap_or_else(PoisonError::into_inner) = input.take(length).to_vec();
    side.router.run();
    side.outcome();
    side.router.advance(Duration::from_millis(u64::from(input.byte()) * 8));
    side.outcome();
}
