use std::net::Ipv4Addr;
use std::sync::LazyLock;
use std::time::Duration;

use millrace_packet::{Exceptions, FlowKey, Packet, Pool};
use millrace_plugin_abi::binary::{packet_flags, verdict};
use millrace_plugin_abi::{LogLevel, Message, Output, Verdict};
use millrace_units::{InstanceId, PortId};
use proptest::prelude::*;
use serde_json::json;

use super::super::code::test_code::{compiled, recompiled};
use super::super::compile::Tier;
use super::super::sandbox::{Sandbox, SandboxSettings};
use super::super::test_modules::{module, module_with};
use super::*;
use crate::fault::FaultKind;
use crate::runtime::raw_packet::WrongVerdict;

mod flow_states;
mod host_functions;
mod memory;
mod messages;
mod time;

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| Sandbox::new(SandboxSettings::default()).unwrap());

/// Packets with verdict slots, as a worker passes them.
struct Batch {
    packets: Vec<Packet>,
    keys: Vec<FlowKey>,
    members: Vec<u16>,
    verdicts: Vec<Verdict>,
    pool: Pool,
}

const ETHERNET: usize = 14;

impl Batch {
    /// Creates one packet for each content. Sets the offsets of each packet as if an Ethernet header and an
    /// IPv4 header were in front of the transport header.
    fn of(contents: &[Vec<u8>]) -> Self {
        let pool = Pool::new(1024).unwrap();
        let packets: Vec<_> = contents
            .iter()
            .map(|content| {
                let mut packet = pool.packet_from(content).unwrap();
                packet.set_network(ETHERNET.min(content.len()));
                packet.set_transport(34.min(content.len()));
                packet
            })
            .collect();
        let key = |index: usize| {
            let ports = (1000 + index as u16, 53);
            FlowKey::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 17, ports, PortId(3))
        };
        let count = packets.len();
        Self {
            packets,
            keys: (0..count).map(key).collect(),
            members: (0..count as u16).collect(),
            verdicts: vec![Verdict::Pass; count],
            pool,
        }
    }

    fn equal(count: usize, length: usize) -> Self {
        Self::of(&vec![vec![0x11; length]; count])
    }

    fn packets(&mut self) -> Packets<'_> {
        Packets::new(&mut self.packets, &self.keys, &self.members, &mut self.verdicts)
    }

    /// Processes the batch to the end. On a slow machine any call may be suspended, and is then resumed.
    fn processed(self, instance: &mut WasmInstance) -> Self {
        self.processed_as(false, instance)
    }

    /// Works as [`processed`](Self::processed), with the packets as copies of others if `copies` is true.
    fn processed_as(mut self, copies: bool, instance: &mut WasmInstance) -> Self {
        let mut progress = instance.process(&mut self.packets().as_copies(copies), Instant::from_nanos(7));
        while progress == Progress::Suspended {
            progress = instance.resume(&mut self.packets().as_copies(copies), Instant::from_nanos(8));
        }
        self
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        self.packets.iter().map(Packet::to_vec).collect()
    }
}

fn begin_with(keys: &str, body: &str, settings: InstanceSettings) -> Result<WasmInstance, Fault> {
    WasmInstance::new(&SANDBOX.compile(&module_with(keys, body)).unwrap(), settings)
}

/// Creates an instance with code of the baseline compiler.
fn begin_baseline(body: &str) -> WasmInstance {
    let plugin = compiled(&SANDBOX, &module(body), Tier::Baseline);
    WasmInstance::new(&plugin, InstanceSettings::default()).unwrap()
}

fn begin(body: &str) -> WasmInstance {
    begin_with("", body, InstanceSettings::default()).unwrap()
}

/// Returns a packet handler that executes the instructions `what` for each packet. In `what`, `$at` is the
/// address of the packet's description, and `$window` is the address of its window.
fn for_each(what: &str) -> String {
    format!(
        r#"(func (export "millrace_packets") (param $call i32) (local $at i32) (local $left i32) (local $window i32)
             (local.set $at (i32.wrap_i64 (i64.load offset=16 (local.get $call))))
             (local.set $left (i32.load offset=4 (local.get $call)))
             (loop $next
               (local.set $window (i32.wrap_i64 (i64.load offset=8 (local.get $at))))
               {what}
               (local.set $at (i32.add (local.get $at) (i32.load16_u offset=2 (local.get $call))))
               (local.set $left (i32.sub (local.get $left) (i32.const 1)))
               (br_if $next (local.get $left))))"#
    )
}

fn verdict(number: u8) -> String {
    for_each(&format!("(i32.store8 offset=48 (local.get $at) (i32.const {number}))"))
}

/// Returns a packet handler that executes the instructions `what` once for each call.
fn at_once(what: &str) -> String {
    format!(r#"(func (export "millrace_packets") (param $call i32) {what})"#)
}

/// Returns a packet handler that counts down from `rounds` for each packet, then drops the packet.
fn slow(rounds: u32) -> String {
    for_each(&format!(
        "(local.set $window (i32.const {rounds}))
         (loop $on (br_if $on (local.tee $window (i32.sub (local.get $window) (i32.const 1)))))
         (i32.store8 offset=48 (local.get $at) (i32.const 1))"
    ))
}

const FOREVER: &str = "(loop $on (br $on))";

#[test]
fn verdicts_come_back() {
    for (number, expected) in [
        (verdict::PASS, Verdict::Pass),
        (verdict::DROP, Verdict::Drop(0)),
        (verdict::CONSUME, Verdict::Consume),
        (verdict::PORT, Verdict::Port(PortId(0))),
        (verdict::PORTS, Verdict::Ports(0)),
        (verdict::INSTANCE, Verdict::Instance(InstanceId(0))),
        (verdict::CLASSIFY, Verdict::Classify),
    ] {
        let batch = Batch::equal(3, 60).processed(&mut begin(&verdict(number)));
        assert_eq!(batch.verdicts, [expected; 3]);
    }
}

#[test]
fn no_packets_are_no_call() {
    let mut instance = begin(&at_once("unreachable"));
    Batch::equal(0, 0).processed(&mut instance);
    assert_eq!(instance.fault(), None);
}

#[test]
fn a_large_batch_is_several_calls() {
    let body = for_each(
        "(i32.store8 offset=48 (local.get $at) (i32.and (i32.load16_u offset=30 (local.get $at)) (i32.const 1)))
         (i32.store8 (local.get $window) (i32.load offset=4 (local.get $call)))",
    );
    let batch = Batch::equal(150, 60).processed(&mut begin(&body));
    for (index, (verdict, packet)) in batch.verdicts.iter().zip(&batch.packets).enumerate() {
        let (expected, first) = if index % 2 == 1 {
            (Verdict::Drop(0), 0x11)
        } else {
            (Verdict::Pass, if index < 128 { 64 } else { 22 })
        };
        assert_eq!((*verdict, packet.data()[0]), (expected, first), "packet {index}");
    }
}

#[test]
fn plugin_sees_the_metadata_of_a_packet() {
    // The plugin copies the description into the window.
    let body = for_each("(memory.copy (local.get $window) (local.get $at) (i32.const 64))");
    let mut batch = Batch::equal(2, 200);
    batch.packets[1].data_mut()[12..14].copy_from_slice(&[0x08, 0x00]);
    batch.packets[1].tag = 5;
    batch.packets[1].port = PortId(9);
    batch.packets[0].exceptions = Exceptions::CUT;
    let batch = batch.processed(&mut begin(&body));
    let field = |packet: usize, at: usize, bytes: usize| {
        let data = &batch.packets[packet].data()[at..at + bytes];
        data.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    assert_eq!([field(1, 0, 2), field(1, 2, 2), field(1, 4, 4), field(1, 16, 2)], [64, 1, 200, 128]);
    assert_eq!([field(1, 18, 2), field(1, 20, 2), field(1, 22, 2)], [14, 34, 0x0800]);
    assert_eq!([field(1, 24, 1), field(1, 25, 1), field(1, 26, 1), field(1, 27, 1)], [4, 17, 5, 0]);
    assert_eq!([field(1, 28, 2), field(1, 30, 2), field(1, 44, 2), field(1, 46, 2)], [9, 1, 1001, 53]);
    assert_eq!([field(0, 20, 2), field(0, 27, 1)], [0xffff, 8]);
}

#[test]
fn plugin_sees_that_packets_are_copies() {
    let mut instance =
        begin(&for_each("(i32.store8 (local.get $window) (i32.load16_u offset=2 (local.get $at)))"));
    for copies in [false, true] {
        let batch = Batch::equal(1, 60).processed_as(copies, &mut instance);
        assert_eq!(u16::from(batch.packets[0].data()[0]), u16::from(copies) * packet_flags::COPY);
    }
}

#[test]
fn windows_tags_and_verdicts_are_written_to_the_packets() {
    let body = for_each(
        "(i32.store8 offset=1 (local.get $window) (i32.const 0xee))
         (i32.store8 offset=26 (local.get $at) (i32.const 31))",
    );
    let batch = Batch::equal(2, 60).processed(&mut begin(&body));
    for packet in &batch.packets {
        assert_eq!((packet.data()[..3].to_vec(), packet.tag), (vec![0x11, 0xee, 0x11], 31));
    }
}

#[test]
fn nothing_is_written_behind_the_packet() {
    let body = for_each("(memory.fill (local.get $window) (i32.const 0xee) (i32.const 8))");
    let batch =
        Batch::equal(1, 5).processed(&mut begin_with(", \"window\": 8", &body, Default::default()).unwrap());
    assert_eq!(batch.contents(), [[0xee; 5]]);
}

#[test]
fn traps_are_distinguished() {
    let divide = "(drop (i32.div_u (i32.const 1) (i32.const 0)))";
    let overflow = "(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))";
    let conversion = "(drop (i32.trunc_f32_s (f32.const nan)))";
    let indirect = "(call_indirect (i32.const 7))";
    for (what, rest, kind) in [
        ("unreachable", "", FaultKind::Unreachable),
        (divide, "", FaultKind::Divide),
        ("(drop (i32.load (i32.const 0x7fffffff)))", "", FaultKind::OutOfBounds),
        ("(call $deeper)", "(func $deeper (call $deeper))", FaultKind::StackOverflow),
        (overflow, "", FaultKind::IntegerOverflow),
        (conversion, "", FaultKind::IntegerOverflow),
        (indirect, "(table 8 funcref)", FaultKind::IndirectCall),
        (indirect, "(table 2 funcref)", FaultKind::IndirectCall),
        (
            "(call_indirect (i32.const 0))",
            "(table 1 funcref) (elem (i32.const 0) $other) (func $other (param i64))",
            FaultKind::IndirectCall,
        ),
    ] {
        let mut instance = begin(&format!("{}{rest}", at_once(what)));
        let batch = Batch::equal(2, 60).processed(&mut instance);
        assert_eq!(batch.verdicts, [Verdict::Fault; 2], "{what}");
        let fault = instance.fault().unwrap();
        assert_eq!(fault.kind, kind, "{what}: {fault}");
        assert!(fault.text.starts_with("in millrace_packets: "), "{fault}");
        assert_eq!(instance.take_fault().map(|fault| fault.kind), Some(kind.name()));
        assert_eq!(instance.take_fault(), None);
    }
}

#[test]
fn packets_of_a_dead_instance_are_faults() {
    let mut instance = begin(&at_once("unreachable"));
    for is_alive in [true, false] {
        assert_eq!(Batch::equal(2, 60).processed(&mut instance).verdicts, [Verdict::Fault; 2]);
        assert_eq!(instance.take_fault().is_some(), is_alive);
    }
}

#[test]
fn verdicts_before_a_trap_stay() {
    // 70 packets take two calls. The second call traps.
    let body = format!(
        "(global $calls (mut i32) (i32.const 0)) {}",
        at_once(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (if (i32.eq (global.get $calls) (i32.const 2)) (then unreachable))"
        )
    );
    let mut instance = begin(&body);
    let batch = Batch::equal(70, 60).processed(&mut instance);
    assert!(batch.verdicts[..64].iter().all(|verdict| *verdict == Verdict::Pass));
    assert!(batch.verdicts[64..].iter().all(|verdict| *verdict == Verdict::Fault));
}

#[test]
fn restart_clears_the_instance() {
    let body = format!(
        "(global $calls (mut i32) (i32.const 0)) {}",
        at_once(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (if (i32.eq (global.get $calls) (i32.const 3)) (then unreachable))"
        )
    );
    let mut instance = begin(&body);
    for _ in 0..3 {
        for call in 1..=3 {
            let batch = Batch::equal(1, 60).processed(&mut instance);
            assert_eq!(batch.verdicts[0] == Verdict::Fault, call == 3);
        }
        assert_eq!(instance.take_fault().map(|fault| fault.kind), Some(FaultKind::Unreachable.name()));
        instance.restart().unwrap();
        assert_eq!(instance.fault(), None);
    }
}

#[test]
fn a_verdict_that_makes_no_sense_is_a_fault_of_that_packet() {
    let body = for_each(
        "(if (i32.load16_u offset=30 (local.get $at)) (then (i32.store8 offset=48 (local.get $at) (i32.const 99))))",
    );
    let mut instance = begin(&body);
    assert_eq!(Batch::equal(2, 60).processed(&mut instance).verdicts, [Verdict::Pass, Verdict::Fault]);
    assert_eq!(instance.take_fault().unwrap().text, WrongVerdict::Verdict(99).to_string());
    assert_eq!(instance.take_fault(), None);
    assert_eq!(instance.fault(), None);
    let tag = for_each("(i32.store8 offset=26 (local.get $at) (i32.const 32))");
    let mut instance = begin(&tag);
    Batch::equal(1, 60).processed(&mut instance);
    assert_eq!(instance.take_fault().unwrap().text, WrongVerdict::Tag(32).to_string());
}

#[test]
fn failed_start_reports_its_reason() {
    let refuses = r#"(import "millrace" "fail" (func $fail (param i32 i32)))
        (data (i32.const 16) "rate: give 1 or more")
        (func (export "millrace_init") (param i32 i32) (result i32) (call $fail (i32.const 16) (i32.const 20)) i32.const 1)"#;
    let begin = |keys: &str, body: &str| begin_with(keys, body, Default::default()).unwrap_err();
    assert_eq!(begin("", refuses), Fault::new(FaultKind::Init, "rate: give 1 or more"));
    let silent = r#"(func (export "millrace_init") (param i32 i32) (result i32) i32.const -3)"#;
    assert_eq!(begin("", silent).text, "the plugin returned -3 without an error message");
    let traps = r#"(func (export "millrace_init") (param i32 i32) (result i32) unreachable)"#;
    assert_eq!(begin("", traps).kind, FaultKind::Unreachable);
    let endless =
        format!(r#"(func (export "millrace_init") (param i32 i32) (result i32) {FOREVER} i32.const 0)"#);
    assert_eq!(begin("", &endless).kind, FaultKind::Overrun);
    let other = r#"(func (export "millrace_abi") (result i32) i32.const 2)"#;
    assert!(begin("", other).text.starts_with("its code has plugin ABI version 2, this router has 1"));
    let full = r#"(func (export "millrace_reserve") (param i32) (result i32) i32.const 0)"#;
    assert!(begin("", full).text.starts_with("the plugin has no memory for a message"));
    let outside = r#"(func (export "millrace_reserve") (param i32) (result i32) i32.const 0x7ffffff8)"#;
    assert_eq!(begin("", outside).kind, FaultKind::OutOfBounds);
    let large = r#"(memory (export "memory") 100)"#;
    assert_eq!(begin("", large).kind, FaultKind::Init);
}

#[test]
fn settings_reach_a_plugin_that_takes_some() {
    // The plugin keeps byte 2 of its JSON settings, the first letter of the first key, and writes it into
    // each packet.
    let body = format!(
        r#"(global $letter (mut i32) (i32.const 0))
           (func (export "millrace_init") (param $at i32) (param $bytes i32) (result i32)
             (global.set $letter (i32.load8_u offset=2 (local.get $at)))
             i32.const 0)
           {}"#,
        for_each("(i32.store8 (local.get $window) (global.get $letter))")
    );
    let settings = || InstanceSettings {
        settings: json!({ "z": 1 }).as_object().cloned().unwrap_or_default(),
        ..Default::default()
    };
    let mut instance = begin_with(", \"settings\": {}", &body, settings()).unwrap();
    assert_eq!(Batch::equal(1, 60).processed(&mut instance).packets[0].data()[0], b'z');
    let refused = begin_with("", &body, settings()).unwrap_err();
    assert_eq!(refused.text, "unknown setting \"z\": the plugin takes no settings");
}

/// Plugin that counts packets at address 64 and saves the count. It restores only state of version 3.
const COUNTER: &str = r#"(import "millrace" "reply" (func $reply (param i32 i32)))
    (func (export "millrace_save") (result i32) (call $reply (i32.const 64) (i32.const 4)) i32.const 0)
    (func (export "millrace_restore") (param $at i32) (param $bytes i32) (param $version i32) (result i32)
      (i32.store (i32.const 64) (i32.load (local.get $at)))
      (i32.ne (local.get $version) (i32.const 3)))"#;

/// Plugin that answers a message with the message's arguments. If the message's name begins with `f`, the
/// plugin refuses the message, with its name as error text.
const ECHO: &str = r#"(import "millrace" "reply" (func $reply (param i32 i32)))
    (import "millrace" "fail" (func $fail (param i32 i32)))
    (func (export "millrace_control") (param $name i32) (param $length i32) (param $at i32) (param $bytes i32) (result i32)
      (if (i32.eq (i32.load8_u (local.get $name)) (i32.const 0x66))
        (then (call $fail (local.get $name) (local.get $length)) (return (i32.const 1))))
      (call $reply (local.get $at) (local.get $bytes))
      i32.const 0)"#;

fn message(name: &str, arguments: Value) -> Message {
    Message { name: name.to_owned(), arguments: arguments.as_object().cloned().unwrap_or_default() }
}

/// The plugin's rule in Rust, for the property test. The first byte of the packet decides the verdict. If the
/// packet passes, each byte of its window is changed.
fn rule(packet: &mut [u8], window: usize) -> Verdict {
    let seen = packet.len().min(window);
    match packet.first().map_or(0, |first| first % 3) {
        1 => return Verdict::Drop(0),
        2 => return Verdict::Consume,
        _ => {}
    }
    for (index, byte) in packet[..seen].iter_mut().enumerate() {
        *byte = byte.wrapping_mul(3) ^ index as u8;
    }
    Verdict::Pass
}

const RULE: &str = "
    (local.set $length (i32.load16_u offset=16 (local.get $at)))
    (if (local.get $length)
      (then
        (i32.store8 offset=48 (local.get $at) (i32.rem_u (i32.load8_u (local.get $window)) (i32.const 3)))
        (local.set $index (i32.const 0))
        (loop $bytes
          (local.set $place (i32.add (local.get $window) (local.get $index)))
          (i32.store8 (local.get $place)
            (i32.xor (i32.mul (i32.load8_u (local.get $place)) (i32.const 3)) (local.get $index)))
          (local.set $index (i32.add (local.get $index) (i32.const 1)))
          (br_if $bytes (i32.lt_u (local.get $index) (local.get $length))))))";

static RULED: LazyLock<WasmPlugin> = LazyLock::new(|| {
    let locals = "(local $length i32) (local $index i32) (local $place i32) (local.set $at";
    let body = for_each(RULE).replacen("(local.set $at", locals, 1);
    SANDBOX.compile(&module_with(", \"window\": 100", &body)).unwrap()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn module_decides_like_its_native_rule(
        batches in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..140), 1..4)
    ) {
        let mut instance = WasmInstance::new(&RULED, InstanceSettings::default()).unwrap();
        for mut contents in batches {
            let batch = Batch::of(&contents);
            let members: Vec<u16> = batch.members.iter().rev().copied().collect();
            let batch = Batch { members, ..batch }.processed(&mut instance);
            let expected: Vec<_> = contents.iter_mut().map(|packet| rule(packet, 100)).collect();
            prop_assert_eq!(&batch.verdicts, &expected);
            prop_assert_eq!(batch.contents(), contents);
            prop_assert!(batch.pool.in_use() > 0 || batch.packets.is_empty());
        }
    }

    #[test]
    fn no_code_panics_the_router(code in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = module("");
        let place = bytes.len() - code.len().min(bytes.len());
        bytes.splice(place.., code);
        if let Ok(plugin) = SANDBOX.compile(&bytes) {
            let _ = WasmInstance::new(&plugin, InstanceSettings::default());
        }
    }
}
