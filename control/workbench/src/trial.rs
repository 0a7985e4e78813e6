//! Trial of a plugin on the packets of a capture.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin_abi::{Fault, Instance, LogLevel, Message, Output as PluginOutput, Progress, Verdict};
use millrace_port::pcap::{PcapngWriter, Recording};
use millrace_units::Instant;
use millrace_wire::Protocol;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::changes::{Change, changes};
use crate::frames::{Frame, built_in};
use crate::ready::{Call, Ended, Flows, Ready, instance_of};
use crate::{Module, ObjectRuntime, WorkbenchError};

/// Maximum number of packets per call, equal to the router's.
const MOST_BATCH: usize = 64;
/// Number of memory frames in the pool. A batch of the largest packets needs fewer.
const POOL: u32 = 4096;

/// Options of a trial.
#[derive(Clone, Debug, Default)]
pub struct TrialOptions<'a> {
    /// Input capture; `None` for the built-in packets.
    pub input: Option<&'a Path>,
    /// Output capture of the packets that the plugin forwarded; `None` for no output.
    pub output: Option<&'a Path>,
    /// Settings of the instance.
    pub settings: Map<String, Value>,
    /// Number of packets per call, 1 to 64. The time of a call is the arrival time of the call's last packet.
    pub batch: usize,
    /// Control messages sent after the last packet.
    pub messages: Vec<Message>,
}

/// Results of a trial: effect on each packet, faults, and replies.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Trial {
    /// Name of the plugin.
    pub plugin: String,
    /// Version of the plugin.
    pub version: String,
    /// Outcome of each packet.
    pub packets: Vec<Outcome>,
    /// Number of packets by verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Faults of the plugin.
    pub faults: Vec<FaultReport>,
    /// Number of suspensions of calls at the end of a slice.
    pub suspensions: u64,
    /// Number of packets that were skipped, because the capture contains only a part of each.
    pub truncated: u64,
    /// Number of packets that the plugin made.
    pub made: u64,
    /// Log lines of the plugin, each with its level.
    pub log: Vec<String>,
    /// Answers to the control messages.
    pub replies: Vec<Exchange>,
}

/// Effect of the plugin on one packet.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Number of the packet, from 1.
    pub number: usize,
    /// Flow of the packet, as a filter; `None` for a packet without a flow.
    pub flow: Option<String>,
    /// Length in bytes, with the link header, without padding.
    pub length: usize,
    /// Verdict: `pass`, `drop`, `consume`, `hold` with its time, or another verdict. `skipped`, with the
    /// reason, if a router would pass the packet to no plugin.
    pub verdict: String,
    /// Changes of the packet's bytes.
    pub changes: Vec<Change>,
}

/// Fault of an instance. The trial then restarts the instance without its state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FaultReport {
    /// Number of the first packet in the failed call.
    pub first: usize,
    /// Number of the last packet in the failed call.
    pub last: usize,
    /// Kind of the fault, as in the router's counters.
    pub kind: &'static str,
    /// Description of the fault.
    pub text: String,
}

/// Control message and its answer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Exchange {
    /// Name of the message.
    pub message: String,
    /// Answer; `None` for a refused message.
    pub reply: Option<Value>,
    /// Reason of the refusal; `None` for an accepted message.
    pub refused: Option<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flow = self.flow.as_deref().unwrap_or("-");
        write!(f, "{:>4}  {:<16} {:>5}  {flow}", self.number, self.verdict, self.length)?;
        fn or_nothing(digits: &str) -> &str {
            if digits.is_empty() { "nothing" } else { digits }
        }
        for Change { offset, before, after } in &self.changes {
            write!(f, "\n      at {offset}: {} -> {}", or_nothing(before), or_nothing(after))?;
        }
        Ok(())
    }
}

/// Passes packets to an instance of a plugin, under a virtual clock that follows the packets' times. `runtime` is
/// that of a shared object or executable.
///
/// # Errors
/// The module is not a plugin, the plugin refuses the settings, or a capture can't be read or written. A
/// fault of the plugin is not an error, but part of the result.
pub fn try_out(
    module: &Module,
    options: &TrialOptions<'_>,
    runtime: ObjectRuntime,
) -> Result<Trial, WorkbenchError> {
    let plugin = module.load(&module.compile(runtime)?)?;
    let (frames, truncated) = frames(options.input)?;
    let pool = Pool::new(POOL).map_err(|error| WorkbenchError::Memory(error.to_string()))?;
    let instance = instance_of(&*plugin, &options.settings)?;
    let mut bench = Bench {
        flows: Flows::new(&*instance),
        instance,
        output: options.output.map(Output::create).transpose()?,
        trial: Trial {
            plugin: plugin.name().to_owned(),
            version: plugin.version().to_owned(),
            truncated,
            ..Trial::default()
        },
    };
    for frames in frames.chunks(options.batch.clamp(1, MOST_BATCH)) {
        bench.call(&pool, frames)?;
    }
    for message in &options.messages {
        bench.send(message);
    }
    if let Some(output) = bench.output {
        output.finish()?;
    }
    Ok(bench.trial)
}

/// Returns the frames of a capture, and the number of frames omitted because they are truncated.
fn frames(input: Option<&Path>) -> Result<(Vec<Frame>, u64), WorkbenchError> {
    let Some(path) = input else { return Ok((built_in(), 0)) };
    let recording = Recording::read(path).map_err(|error| WorkbenchError::Capture(error.to_string()))?;
    let frame = |(at, bytes): (Duration, &[u8])| Frame { at, bytes: bytes.to_vec() };
    let frames = (0..recording.len()).filter_map(|index| recording.get(index)).map(frame).collect();
    Ok((frames, recording.truncated()))
}

struct Bench {
    instance: Box<dyn Instance>,
    flows: Flows,
    output: Option<Output>,
    trial: Trial,
}

impl Bench {
    /// Passes the packets in `frames` to the instance, in one call.
    fn call(&mut self, pool: &Pool, frames: &[Frame]) -> Result<(), WorkbenchError> {
        let now = Instant::from_nanos(frames.last().map_or(0, |last| nanoseconds(last.at)));
        let first = self.trial.packets.len();
        let mut ready = Vec::new();
        let mut before = Vec::new();
        for (number, frame) in (first + 1..).zip(frames) {
            let mut outcome = Outcome {
                number,
                flow: None,
                length: frame.bytes.len(),
                verdict: String::new(),
                changes: vec![],
            };
            match Ready::of(pool, &frame.bytes) {
                Ok(packet) => {
                    let bytes = packet.packet.to_vec();
                    (outcome.flow, outcome.length) = (Some(selector(&packet.key)), bytes.len());
                    before.push((number - 1, frame.at, bytes));
                    ready.push(packet);
                }
                Err(reason) => outcome.verdict = format!("skipped: {reason}"),
            }
            self.trial.packets.push(outcome);
        }
        if self.instance.next_call().is_some_and(|due| due <= now) {
            self.periodic(now, first + 1)?;
        }
        if !ready.is_empty() {
            let mut call = Call::new(ready);
            let Ended { suspensions, fault, .. } = call.run(&mut *self.instance, &mut self.flows, now);
            self.trial.suspensions += u64::from(suspensions);
            for ((index, at, before), (packet, verdict)) in
                before.into_iter().zip(call.packets.iter().zip(&call.verdicts))
            {
                self.note(index, &before, packet, *verdict);
                self.write(at, packet, *verdict);
            }
            self.after(fault, first + 1)?;
        }
        for outcome in &self.trial.packets[first..] {
            let word = outcome.verdict.split([' ', ':']).next().unwrap_or_default();
            *self.trial.verdicts.entry(word.to_owned()).or_default() += 1;
        }
        Ok(())
    }

    /// Makes a periodic call of the instance, and resumes it until it ends.
    fn periodic(&mut self, now: Instant, first: usize) -> Result<(), WorkbenchError> {
        let fault = match self.instance.periodic(now) {
            Progress::Done => self.instance.take_fault(),
            // Resume the periodic call. It has no packets, so the empty `Call` stands for it.
            begun @ (Progress::Suspended | Progress::Awaited) => {
                Call::default().go_on(begun, &mut *self.instance, &mut self.flows, now).fault
            }
        };
        self.after(fault, first)
    }

    fn note(&mut self, index: usize, before: &[u8], packet: &Packet, verdict: Verdict) {
        let Some(outcome) = self.trial.packets.get_mut(index) else { return };
        outcome.verdict = name(verdict);
        outcome.changes = changes(before, &packet.to_vec());
    }

    fn write(&mut self, at: Duration, packet: &Packet, verdict: Verdict) {
        let Some(output) = &mut self.output else { return };
        let at = Instant::from_nanos(nanoseconds(at));
        let at = match verdict {
            Verdict::Drop(_) | Verdict::Reject(_) | Verdict::Consume | Verdict::Fault => return,
            Verdict::Hold(until) => until.max(at),
            _ => at,
        };
        // Ignore write errors here: `finish` reports them.
        output.writer.write(at, packet, None);
    }

    /// Takes the output of a call, since a plugin finds no room for more while its output waits. Records a fault, if
    /// there is one, and restarts the instance.
    fn after(&mut self, fault: Option<Fault>, first: usize) -> Result<(), WorkbenchError> {
        self.collect_output();
        let Some(Fault { kind, text }) = fault else { return Ok(()) };
        self.trial.faults.push(FaultReport { first, last: self.trial.packets.len(), kind, text });
        Ok(self.instance.restart()?)
    }

    fn collect_output(&mut self) {
        while let Some(output) = self.instance.take_output() {
            match output {
                PluginOutput::Packet { .. } => self.trial.made += 1,
                PluginOutput::Log(level, line) => self.trial.log.push(format!("{}: {line}", name_of(level))),
                PluginOutput::Message(_) | PluginOutput::Request(_) => {}
            }
        }
    }

    fn send(&mut self, message: &Message) {
        let (reply, refused) = match self.instance.control(message) {
            Ok(reply) => (Some(reply), None),
            Err(error) => (None, Some(error.to_string())),
        };
        self.trial.replies.push(Exchange { message: message.name.clone(), reply, refused });
        self.collect_output();
    }
}

/// Returns a filter that matches only this flow's packets.
fn selector(key: &FlowKey) -> String {
    let protocol = Protocol(key.protocol);
    let mut text = format!("src {} dst {} proto {protocol}", key.source(), key.destination());
    if protocol.has_ports() {
        text += &format!(" sport {} dport {}", key.source_port, key.destination_port);
    }
    text
}

fn name(verdict: Verdict) -> String {
    match verdict {
        Verdict::Pass => "pass".to_owned(),
        Verdict::Drop(0) => "drop".to_owned(),
        Verdict::Drop(reason) => format!("drop for {reason}"),
        Verdict::Reject(0) => "reject".to_owned(),
        Verdict::Reject(reason) => format!("reject for {reason}"),
        Verdict::Consume => "consume".to_owned(),
        Verdict::Hold(until) => format!("hold until {:.6}", until.as_nanos() as f64 / 1e9),
        Verdict::Port(port) => format!("port {port}"),
        Verdict::Ports(ports) => format!("ports {ports:#x}"),
        Verdict::Queue(queue) => format!("queue {queue}"),
        Verdict::Instance(instance) => format!("instance {instance}"),
        Verdict::Classify => "classify".to_owned(),
        Verdict::Fault => "fault".to_owned(),
    }
}

fn name_of(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warning => "warning",
        LogLevel::Information => "information",
        LogLevel::Debug => "debug",
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Output capture. A held packet is written with the time of its release.
struct Output {
    path: PathBuf,
    writer: PcapngWriter<File>,
}

impl Output {
    fn create(path: &Path) -> Result<Self, WorkbenchError> {
        let created = PcapngWriter::create(path, Duration::ZERO);
        let writer = created.map_err(|error| WorkbenchError::Capture(error.to_string()))?;
        Ok(Self { path: path.to_owned(), writer })
    }

    fn finish(mut self) -> Result<(), WorkbenchError> {
        self.writer.flush();
        let failed = |error| WorkbenchError::Capture(format!("{}: {error}", self.path.display()));
        self.writer.status().error().map_or(Ok(()), |error| Err(failed(error)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ready::test_modules::{WRITE, Written, for_each, module};

    fn options() -> TrialOptions<'static> {
        TrialOptions { batch: 32, ..TrialOptions::default() }
    }

    fn tried(wasm: &[u8], options: &TrialOptions<'_>) -> Result<Trial, WorkbenchError> {
        let written = Written::new(wasm);
        try_out(&Module::read(written.path())?, options, ObjectRuntime::InProcess)
    }

    #[test]
    fn built_in_packets_match_their_descriptions() {
        let trial = tried(&module("", ""), &options()).unwrap();
        assert_eq!(trial.verdicts, [("pass".to_owned(), built_in().len() as u64)].into());
        assert!(trial.packets.iter().all(|packet| packet.changes.is_empty()));
        let flow = |number: usize| trial.packets[number - 1].flow.clone().unwrap();
        assert_eq!(flow(1), "src 10.1.0.2 dst 10.2.0.2 proto tcp sport 43210 dport 443");
        assert!(flow(7).contains("icmp") && flow(9).contains("sport 0 dport 0"), "{}", flow(9));
    }

    #[test]
    fn effects_of_a_plugin_are_listed() {
        let wasm = for_each(WRITE);
        for batch in [1, 5, 64] {
            let trial = tried(&wasm, &TrialOptions { batch, ..options() }).unwrap();
            for packet in &trial.packets {
                assert_eq!(packet.changes, [Change { offset: 1, before: "00".into(), after: "99".into() }]);
            }
        }
    }

    #[test]
    fn fault_is_reported_and_the_next_call_continues() {
        let trial = tried(&for_each("unreachable"), &TrialOptions { batch: 4, ..options() }).unwrap();
        assert_eq!(trial.verdicts.get("fault"), Some(&(built_in().len() as u64)));
        assert_eq!(trial.faults.len(), built_in().len().div_ceil(4));
        assert_eq!((trial.faults[1].first, trial.faults[1].last), (5, 8));
        let endless = tried(&for_each("(loop $ever (br $ever))"), &TrialOptions { batch: 64, ..options() });
        let endless = endless.unwrap();
        assert!(endless.suspensions > 0 && endless.faults.len() == 1, "{:?}", endless.faults);
    }

    #[test]
    fn captures_are_read_and_written() {
        let (first, second) = (Written::new(b""), Written::new(b""));
        let output = TrialOptions { output: Some(first.path()), ..options() };
        tried(&module("", ""), &output).unwrap();
        let again = TrialOptions { input: Some(first.path()), output: Some(second.path()), ..options() };
        let trial = tried(&module("", ""), &again).unwrap();
        assert_eq!(trial.packets.len(), built_in().len());
        let bytes = |written: &Written| std::fs::read(written.path()).unwrap();
        assert_eq!(bytes(&first), bytes(&second));
        let broken = TrialOptions { input: Some(Path::new("/dev/null")), ..options() };
        assert!(matches!(tried(&module("", ""), &broken), Err(WorkbenchError::Capture(_))));
    }

    #[test]
    fn plugin_has_its_maps() {
        let keys =
            r#", "capabilities": ["map-write"], "maps": [{"name": "m", "key": 4, "value": 8, "entries": 1}]"#;
        let body = r#"(import "millrace" "map_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
            (func (export "millrace_packets") (param i32)
              (if (call $set (i32.const 0) (i32.const 64) (i32.const 4) (i32.const 64) (i32.const 8)) (then unreachable)))"#;
        assert!(tried(&module(keys, body), &options()).unwrap().faults.is_empty());
        let other = body.replace("i32.const 8", "i32.const 9");
        assert!(!tried(&module(keys, &other), &options()).unwrap().faults.is_empty());
    }

    #[test]
    fn output_is_taken_after_each_call() {
        let keys = r#", "capabilities": ["packet-make", "log"]"#;
        let body = r#"(import "millrace" "packet_make" (func $make (param i32 i32 i32) (result i32)))
            (import "millrace" "log" (func $log (param i32 i32 i32)))
            (data (i32.const 64) "made")
            (func (export "millrace_packets") (param i32)
              (local $left i32)
              (local.set $left (i32.const 40))
              (call $log (i32.const 1) (i32.const 64) (i32.const 4))
              (loop $next
                (if (call $make (i32.const 64) (i32.const 40) (i32.const 0)) (then unreachable))
                (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1))))))"#;
        // Two calls make more packets than wait at a time.
        let trial = tried(&module(keys, body), &TrialOptions { batch: 6, ..options() }).unwrap();
        assert!(trial.faults.is_empty(), "{:?}", trial.faults);
        assert_eq!((trial.made, trial.log), (80, vec!["warning: made".to_owned(); 2]));
    }

    #[test]
    fn settings_and_messages_reach_the_plugin() {
        let settings = json!({"a": 1}).as_object().cloned().unwrap();
        let refused = tried(&module("", ""), &TrialOptions { settings, ..options() }).unwrap_err();
        assert!(refused.to_string().contains("the plugin takes no settings"), "{refused}");
        let message = Message { name: "read".into(), arguments: Map::new() };
        let trial = tried(&module("", ""), &TrialOptions { messages: vec![message], ..options() }).unwrap();
        assert!(trial.replies[0].refused.is_some());
    }

    #[test]
    fn frames_that_reach_no_gate_are_skipped() {
        let pool = Pool::new(64).unwrap();
        for (bytes, reason) in [
            (vec![0; 10], ""),
            ([vec![0; 12], vec![0x08, 0x06], vec![0; 28]].concat(), "ether_type"),
            ([vec![0; 12], vec![0x08, 0x00], vec![0x45; 4]].concat(), "ip4_short"),
        ] {
            let refused = Ready::of(&pool, &bytes).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
