use std::net::Ipv4Addr;
use std::sync::LazyLock;
use std::time::Duration;

use millrace_packet::{Exceptions, FlowKey, Packet, Pool};
use millrace_plugin_abi::binary::{packet_flags, verdict};
use millrace_plugin_abi::{FlowStates, LogLevel, Message, Verdict};
use millrace_units::{InstanceId, PortId};
use proptest::prelude::*;
use serde_json::json;

use super::super::code::test_code::{compiled, recompiled};
use super::super::compile::Tier;
use super::super::sandbox::{Sandbox, SandboxSettings};
use super::super::test_modules::{module, module_with};
use super::*;

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| Sandbox::new(SandboxSettings::default()).unwrap());

/// Packets with room for verdicts, as a worker has them.
struct Batch {
    packets: Vec<Packet>,
    keys: Vec<FlowKey>,
    members: Vec<u16>,
    verdicts: Vec<Verdict>,
    pool: Pool,
}

const ETHERNET: usize = 14;

impl Batch {
    /// A packet of each content, as if an Ethernet and an IPv4 header stood in front.
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

    /// Processed to the end: on a busy machine, or without optimisation, any call may be suspended.
    fn processed(mut self, instance: &mut WasmInstance) -> Self {
        let mut progress = instance.process(&mut self.packets(), Instant::from_nanos(7));
        while progress == Progress::Suspended {
            progress = instance.resume(&mut self.packets(), Instant::from_nanos(8));
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

/// The same with code of the baseline compiler.
fn begin_baseline(body: &str) -> WasmInstance {
    let plugin = compiled(&SANDBOX, &module(body), Tier::Baseline);
    WasmInstance::new(&plugin, InstanceSettings::default()).unwrap()
}

fn begin(body: &str) -> WasmInstance {
    begin_with("", body, InstanceSettings::default()).unwrap()
}

/// A plugin that does `what` with each packet; `$at` is where it is described, `$window` its window.
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

/// A plugin that handles packets by `what`, once.
fn at_once(what: &str) -> String {
    format!(r#"(func (export "millrace_packets") (param $call i32) {what})"#)
}

/// Counts to `rounds`, then drops each packet.
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
fn a_plugin_sees_what_the_router_knows_of_a_packet() {
    // It copies its description into the window.
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
fn a_plugin_is_told_of_copies() {
    let mut instance =
        begin(&for_each("(i32.store8 (local.get $window) (i32.load16_u offset=2 (local.get $at)))"));
    for copies in [false, true] {
        let mut batch = Batch::equal(1, 60);
        instance.process(&mut batch.packets().as_copies(copies), Instant::ZERO);
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
fn traps_are_told_apart() {
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
        assert_eq!((instance.counts().faults.of(kind), instance.counts().faults.total()), (1, 1));
    }
}

#[test]
fn packets_of_a_dead_instance_are_faults() {
    let mut instance = begin(&at_once("unreachable"));
    for _ in 0..2 {
        assert_eq!(Batch::equal(2, 60).processed(&mut instance).verdicts, [Verdict::Fault; 2]);
    }
    assert_eq!(instance.counts().faults.total(), 1);
}

#[test]
fn what_was_handled_before_a_trap_stays() {
    // The second call of a batch traps.
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
fn a_restart_begins_anew() {
    let body = format!(
        "(global $calls (mut i32) (i32.const 0)) {}",
        at_once(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (if (i32.eq (global.get $calls) (i32.const 3)) (then unreachable))"
        )
    );
    let mut instance = begin(&body);
    for life in 1..=3 {
        for call in 1..=3 {
            let batch = Batch::equal(1, 60).processed(&mut instance);
            assert_eq!(batch.verdicts[0] == Verdict::Fault, call == 3);
        }
        assert_eq!(instance.counts().faults.of(FaultKind::Unreachable), life);
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
    assert_eq!(instance.wrong_verdict(), Some(WrongVerdict::Verdict(99)));
    assert_eq!((instance.fault(), instance.counts().faults.of(FaultKind::WrongVerdict)), (None, 1));
    let tag = for_each("(i32.store8 offset=26 (local.get $at) (i32.const 32))");
    let mut instance = begin(&tag);
    Batch::equal(1, 60).processed(&mut instance);
    assert_eq!(instance.wrong_verdict(), Some(WrongVerdict::Tag(32)));
}

#[test]
fn a_beginning_that_fails_says_why() {
    let refuses = r#"(import "millrace" "fail" (func $fail (param i32 i32)))
        (data (i32.const 16) "rate: give 1 or more")
        (func (export "millrace_init") (param i32 i32) (result i32) (call $fail (i32.const 16) (i32.const 20)) i32.const 1)"#;
    let begin = |keys: &str, body: &str| begin_with(keys, body, Default::default()).unwrap_err();
    assert_eq!(begin("", refuses), Fault::new(FaultKind::Init, "rate: give 1 or more"));
    let silent = r#"(func (export "millrace_init") (param i32 i32) (result i32) i32.const -3)"#;
    assert_eq!(begin("", silent).text, "it returned -3, and gave no reason");
    let traps = r#"(func (export "millrace_init") (param i32 i32) (result i32) unreachable)"#;
    assert_eq!(begin("", traps).kind, FaultKind::Unreachable);
    let endless =
        format!(r#"(func (export "millrace_init") (param i32 i32) (result i32) {FOREVER} i32.const 0)"#);
    assert_eq!(begin("", &endless).kind, FaultKind::Overrun);
    let other = r#"(func (export "millrace_abi") (result i32) i32.const 2)"#;
    assert_eq!(begin("", other).text, "its code is of version 2 of the interface, and not of 1");
    let full = r#"(func (export "millrace_reserve") (param i32) (result i32) i32.const 0)"#;
    assert!(begin("", full).text.starts_with("it has no memory for a message"));
    let outside = r#"(func (export "millrace_reserve") (param i32) (result i32) i32.const 0x7ffffff8)"#;
    assert_eq!(begin("", outside).kind, FaultKind::OutOfBounds);
    let large = r#"(memory (export "memory") 100)"#;
    assert_eq!(begin("", large).kind, FaultKind::Init);
}

#[test]
fn settings_reach_a_plugin_that_takes_some() {
    // It keeps the first byte of its settings behind `{"`, and writes it into each packet.
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
    assert_eq!(refused.text, "there is no setting \"z\": it takes none");
}

#[test]
fn a_loop_without_end_is_suspended_while_others_run() {
    let mut endless = begin(&format!("{COUNTER}{}", at_once(FOREVER)));
    let before = endless.counts().suspensions;
    let mut other = begin(&verdict(verdict::DROP));
    let mut batch = Batch::equal(2, 60);
    assert_eq!(endless.process(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    assert!(endless.is_suspended());
    for _ in 0..5 {
        assert_eq!(Batch::equal(1, 60).processed(&mut other).verdicts, [Verdict::Drop(0)]);
        assert_eq!(endless.resume(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    }
    assert_eq!(endless.counts().suspensions - before, 6);
    // What it is asked meanwhile has to wait.
    assert!(endless.save().unwrap_err().to_string().contains("in the middle of a call"));
    endless.abort();
    assert_eq!((endless.fault().unwrap().kind, endless.is_suspended()), (FaultKind::Overrun, false));
    endless.restart().unwrap();
}

#[test]
fn a_call_that_was_resumed_gives_its_verdicts() {
    let mut instance = begin(&slow(100_000_000));
    let mut batch = Batch::equal(3, 60);
    let mut progress = instance.process(&mut batch.packets(), Instant::ZERO);
    let mut resumed = 0;
    while progress == Progress::Suspended {
        assert_eq!(batch.verdicts, [Verdict::Pass; 3]);
        progress = instance.resume(&mut batch.packets(), Instant::ZERO);
        resumed += 1;
    }
    assert!(resumed > 0);
    assert_eq!(batch.verdicts, [Verdict::Drop(0); 3]);
    assert_eq!(Batch::equal(1, 60).processed(&mut begin(&slow(1))).verdicts, [Verdict::Drop(0)]);
}

#[test]
fn a_suspended_call_that_is_not_resumed_is_given_up() {
    let mut instance = begin(&at_once(FOREVER));
    let mut batch = Batch::equal(1, 60);
    assert_eq!(instance.process(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    assert_eq!(Batch::equal(1, 60).processed(&mut instance).verdicts, [Verdict::Fault]);
    assert_eq!(instance.counts().faults.of(FaultKind::Overrun), 1);
}

#[test]
fn a_suspended_instance_can_be_dropped() {
    let mut instance = begin(&at_once(FOREVER));
    let mut batch = Batch::equal(1, 60);
    assert_eq!(instance.process(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    drop(instance);
}

#[test]
fn an_instance_goes_on_in_another_thread() {
    let mut instance = begin(&verdict(verdict::CONSUME));
    let count = std::thread::spawn(move || Batch::equal(2, 60).processed(&mut instance).verdicts);
    assert_eq!(count.join().unwrap(), [Verdict::Consume; 2]);
}

#[test]
fn memory_beyond_the_limit_is_refused_and_counted() {
    // It wants 61 pages more than its 4, and then one; how many it has is the first byte.
    let body = for_each(
        "(drop (memory.grow (i32.const 61)))
         (drop (memory.grow (i32.const 1)))
         (i32.store8 (local.get $window) (memory.size))",
    );
    let mut instance = begin(&body);
    assert_eq!(Batch::equal(1, 60).processed(&mut instance).packets[0].data()[0], 5);
    assert_eq!((instance.counts().memory_refused, instance.fault()), (1, None));
}

/// Copies name and arguments into memory at 4,096, and answers with both as they stand there.
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

#[test]
fn messages_are_answered() {
    let keys = r#", "messages": {"echo": "arguments", "fault": "fails"}"#;
    let mut instance = begin_with(keys, ECHO, Default::default()).unwrap();
    let arguments = json!({ "a": [1, 2], "b": "x" });
    for _ in 0..3 {
        assert_eq!(instance.control(&message("echo", arguments.clone())), Ok(arguments.clone()));
        Batch::equal(1, 60).processed(&mut instance);
    }
    let failed = instance.control(&message("fault", json!({}))).unwrap_err();
    assert_eq!(failed.to_string(), "plugin test: fault: fault");
    let unknown = instance.control(&message("ehco", json!({}))).unwrap_err();
    assert_eq!(unknown.to_string(), "plugin test has no message \"ehco\"; it has: echo, fault");
    assert_eq!(instance.fault(), None);
}

#[test]
fn a_message_that_takes_too_long_is_aborted() {
    let endless = format!(
        r#"(func (export "millrace_control") (param i32 i32 i32 i32) (result i32) {FOREVER} i32.const 0)"#
    );
    let mut instance = begin_with(r#", "messages": {"on": "x"}"#, &endless, Default::default()).unwrap();
    let error = instance.control(&message("on", json!({}))).unwrap_err().to_string();
    assert!(error.contains("took too long and was aborted"), "{error}");
    assert_eq!(instance.fault().unwrap().kind, FaultKind::Overrun);
    let error = instance.control(&message("on", json!({}))).unwrap_err().to_string();
    assert!(error.contains("it is dead"), "{error}");
}

#[test]
fn replies_that_are_no_json_are_refused() {
    let body = r#"(import "millrace" "reply" (func $reply (param i32 i32)))
        (func (export "millrace_control") (param i32 i32 i32 i32) (result i32)
          (call $reply (i32.const 0) (i32.const 3)) i32.const 0)"#;
    let mut instance = begin_with(r#", "messages": {"on": "x"}"#, body, Default::default()).unwrap();
    let error = instance.control(&message("on", json!({}))).unwrap_err().to_string();
    assert!(error.contains("its reply is no JSON"), "{error}");
    let outside = body.replace("(i32.const 3)", "(i32.const 0x7fffffff)");
    let mut instance = begin_with(r#", "messages": {"on": "x"}"#, &outside, Default::default()).unwrap();
    instance.control(&message("on", json!({}))).unwrap_err();
    assert_eq!(instance.fault().unwrap().kind, FaultKind::OutOfBounds);
}

#[test]
fn a_fault_says_in_which_function_it_was() {
    let mut instance = begin(r#"(func (export "millrace_periodic") (param i64) unreachable)"#);
    while instance.fault().is_none() {
        instance.periodic(Instant::ZERO);
    }
    assert!(instance.fault().unwrap().text.starts_with("in millrace_periodic: "));
    let mut instance = begin(r#"(func (export "millrace_flow_ended") (param i32) unreachable)"#);
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 6, (1, 2), PortId(0));
    instance.flow_ended(&FlowEnd { key, packets: 1, bytes: 0 }, &[]);
    while instance.fault().is_none() {
        instance.periodic(Instant::ZERO);
    }
    assert!(instance.fault().unwrap().text.starts_with("in millrace_flow_ended: "));
}

/// Counts packets at 64; that is what it saves. What it restores must be of version 3.
const COUNTER: &str = r#"(import "millrace" "reply" (func $reply (param i32 i32)))
    (func (export "millrace_save") (result i32) (call $reply (i32.const 64) (i32.const 4)) i32.const 0)
    (func (export "millrace_restore") (param $at i32) (param $bytes i32) (param $version i32) (result i32)
      (i32.store (i32.const 64) (i32.load (local.get $at)))
      (i32.ne (local.get $version) (i32.const 3)))"#;

#[test]
fn state_goes_over_to_another_instance() {
    let count = for_each("(i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))");
    let body = format!("{COUNTER}\n{count}");
    let mut old = begin(&body);
    Batch::equal(70, 60).processed(&mut old);
    let state = old.save().unwrap().unwrap();
    assert_eq!(state, 70_u32.to_le_bytes());
    let mut new = begin(&body);
    new.restore(&state, 3).unwrap();
    Batch::equal(5, 60).processed(&mut new);
    assert_eq!(new.save().unwrap().unwrap(), 75_u32.to_le_bytes());
    let refused = new.restore(&state, 2).unwrap_err().to_string();
    assert_eq!(refused, "plugin test: restore: it returned 1, and gave no reason");
    assert_eq!(begin("").save(), Ok(None));
    assert!(begin("").restore(&[], 0).unwrap_err().to_string().contains("takes no state over"));
}

#[test]
fn ends_of_flows_are_heard() {
    // It adds up the packets of the flows that ended.
    let body = format!(
        r#"{COUNTER}
        (func (export "millrace_flow_ended") (param $flow i32)
          (i64.store (i32.const 64) (i64.add (i64.load (i32.const 64)) (i64.load offset=48 (local.get $flow)))))"#
    );
    let mut instance = begin(&body);
    assert!(instance.hears_flow_ends() && !begin("").hears_flow_ends());
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 6, (1, 2), PortId(0));
    for packets in 1..=4 {
        instance.flow_ended(&FlowEnd { key, packets, bytes: 0 }, &[]);
    }
    assert_eq!(instance.save().unwrap().unwrap(), 10_u32.to_le_bytes());
}

#[test]
fn ends_of_flows_wait_for_a_call_that_goes_on() {
    let body = format!(
        r#"{COUNTER}
        (func (export "millrace_flow_ended") (param $flow i32)
          (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1))))
        {}"#,
        slow(100_000_000)
    );
    let mut instance = begin(&body);
    let mut batch = Batch::equal(1, 60);
    let mut progress = instance.process(&mut batch.packets(), Instant::ZERO);
    assert_eq!(progress, Progress::Suspended);
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 6, (1, 2), PortId(0));
    instance.flow_ended(&FlowEnd { key, packets: 1, bytes: 0 }, &[]);
    while progress == Progress::Suspended {
        progress = instance.resume(&mut batch.packets(), Instant::ZERO);
    }
    assert_eq!(instance.save().unwrap().unwrap(), 1_u32.to_le_bytes());
}

#[test]
fn it_is_called_by_its_period_and_its_timer() {
    let body = format!(
        r#"(import "millrace" "timer" (func $timer (param i64)))
        {COUNTER}
        (func (export "millrace_periodic") (param $now i64)
          (i64.store (i32.const 64) (local.get $now))
          (call $timer (i64.const 5000000)))"#
    );
    let keys = r#", "period": 20, "capabilities": ["timer"]"#;
    let mut instance = begin_with(keys, &body, Default::default()).unwrap();
    assert_eq!(instance.due(), Some(Instant::ZERO));
    instance.periodic(Instant::from_millis(100));
    assert_eq!(instance.save().unwrap().unwrap(), 100_000_000_u32.to_le_bytes());
    assert_eq!(instance.due(), Some(Instant::from_millis(105)));
    instance.periodic(Instant::from_millis(105));
    assert_eq!(instance.due(), Some(Instant::from_millis(110)));
    assert_eq!(begin("").due(), None);
}

#[test]
fn packets_are_read_and_written_behind_the_window() {
    let body = format!(
        r#"(import "millrace" "packet_read" (func $read (param i32 i32 i32 i32) (result i32)))
        (import "millrace" "packet_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (global $number (mut i32) (i32.const 0))
        {}"#,
        // What stands at 100 is written to 98 of the packet and, for the window was changed before, to its first byte.
        for_each(
            "(global.set $number (i32.load16_u offset=30 (local.get $at)))
             (i32.store8 (local.get $window) (i32.const 0xaa))
             (i32.store8 offset=1 (local.get $window)
               (call $read (global.get $number) (i32.const 100) (i32.const 64) (i32.const 50)))
             (drop (call $write (global.get $number) (i32.const 98) (i32.const 64) (i32.const 2)))
             (drop (call $write (global.get $number) (i32.const 2) (i32.const 64) (i32.const 1)))
             (i32.store8 offset=3 (local.get $window) (i32.load8_u offset=2 (local.get $window)))
             (i32.store8 offset=4 (local.get $window)
               (call $write (global.get $number) (i32.const 119) (i32.const 64) (i32.const 9)))
             (i32.store8 offset=5 (local.get $window)
               (call $read (i32.const 999) (i32.const 0) (i32.const 64) (i32.const 9)))"
        )
    );
    let keys = r#", "window": 16, "capabilities": ["packet-read", "packet-write"]"#;
    let mut instance = begin_with(keys, &body, Default::default()).unwrap();
    let content: Vec<u8> = (0..120).collect();
    // The second batch of a call has its own numbers.
    let batch = Batch::of(&vec![content.clone(); 66]).processed(&mut instance);
    assert_eq!(instance.fault(), None);
    let mut expected = content;
    expected[..6].copy_from_slice(&[0xaa, 20, 100, 100, 1, 0]);
    expected[98..100].copy_from_slice(&[100, 101]);
    expected[119] = 100;
    for (index, packet) in batch.contents().into_iter().enumerate() {
        assert_eq!(packet, expected, "packet {index}");
    }
}

#[test]
fn addresses_outside_of_memory_are_a_fault() {
    let body = format!(
        r#"(import "millrace" "packet_read" (func $read (param i32 i32 i32 i32) (result i32)))
        {}"#,
        at_once("(drop (call $read (i32.const 0) (i32.const 0) (i32.const -4) (i32.const 8)))")
    );
    let mut instance = begin_with(r#", "capabilities": ["packet-read"]"#, &body, Default::default()).unwrap();
    Batch::equal(1, 60).processed(&mut instance);
    assert_eq!(instance.fault().unwrap().kind, FaultKind::OutOfBounds);
}

#[test]
fn packets_grow_and_shrink_at_the_front() {
    let body = |bytes: i32| {
        format!(
            r#"(import "millrace" "packet_resize" (func $resize (param i32 i32) (result i32)))
            {}"#,
            for_each(&format!(
                "(i32.store8 (local.get $window) (i32.const 0xaa))
                 (if (i32.eqz (call $resize (i32.const 0) (i32.const {bytes})))
                   (then (i32.store8 offset=1 (local.get $window) (i32.load8_u offset=16 (local.get $at)))))"
            ))
        )
    };
    let resized = |bytes: i32| {
        let keys = r#", "window": 16, "capabilities": ["packet-resize", "packet-write"]"#;
        let mut instance = begin_with(keys, &body(bytes), Default::default()).unwrap();
        Batch::of(&[(0..20).collect()]).processed(&mut instance).contents().remove(0)
    };
    let whole: Vec<u8> = (0..20).collect();
    assert_eq!(resized(3), [&[0, 16, 0, 0xaa], &whole[1..]].concat());
    assert_eq!(resized(-2), [&[2, 16], &whole[4..]].concat());
    assert_eq!(resized(-15), [&[15, 5], &whole[17..]].concat());
    let refused = [&[0xaa], &whole[1..]].concat();
    assert_eq!(
        [resized(257), resized(-21), resized(i32::MIN), resized(i32::MAX)],
        [(); 4].map(|()| refused.clone())
    );
}

#[test]
fn lines_packets_and_requests_are_given() {
    let body = format!(
        r#"(import "millrace" "log" (func $log (param i32 i32 i32)))
        (import "millrace" "packet_make" (func $make (param i32 i32 i32) (result i32)))
        (import "millrace" "request" (func $request (param i32 i32) (result i32)))
        (data (i32.const 16) "abc{{}}")
        {}"#,
        for_each(
            "(call $log (i32.const 1) (i32.const 16) (i32.const 3))
             (i32.store8 (local.get $window) (call $make (i32.const 16) (i32.const 2) (i32.const 4)))
             (i32.store8 offset=1 (local.get $window) (call $request (i32.const 19) (i32.const 2)))
             (i32.store8 offset=2 (local.get $window) (call $make (i32.const 16) (i32.const 2) (i32.const 70000)))
             (i32.store8 offset=3 (local.get $window) (call $make (i32.const 16) (i32.const 9001) (i32.const 4)))"
        )
    );
    let keys = r#", "capabilities": ["log", "packet-make", "request", "packet-write"]"#;
    let mut instance = begin_with(keys, &body, Default::default()).unwrap();
    assert!(instance.has_output() && !begin("").has_output());
    let batch = Batch::equal(12, 60).processed(&mut instance);
    assert_eq!(batch.packets[0].data()[..4], [0, 0, 1, 1]);
    let given: Vec<_> = std::iter::from_fn(|| instance.take_output()).collect();
    let log = Output::Log(LogLevel::Warning, "abc".to_owned());
    assert_eq!(
        given[..3],
        [log, Output::Packet(b"ab".to_vec(), PortId(4)), Output::Request("{}".to_owned())]
    );
    assert_eq!((given.len(), instance.counts().lines_suppressed), (34, 2));
    // More than 64 are refused.
    let batch = Batch::equal(40, 60).processed(&mut instance);
    assert_eq!((batch.packets[0].data()[0], batch.packets[39].data()[0]), (0, 1));
    assert_eq!(std::iter::from_fn(|| instance.take_output()).count(), 64);
}

#[test]
fn functions_of_other_capabilities_are_not_linked() {
    use super::super::inspect::ModuleError;
    let body = r#"(import "millrace" "packet_read" (func (param i32 i32 i32 i32) (result i32)))"#;
    let refused = SANDBOX.compile(&module(body)).unwrap_err();
    assert_eq!(refused, ModuleError::NotGranted { function: "packet_read", capability: "packet-read" });
}

#[test]
fn a_plugin_waits_without_its_clock() {
    // No tick comes in time.
    let settings = SandboxSettings { tick: Duration::from_secs(1), slice: 1000, ..Default::default() };
    let sandbox = Sandbox::new(settings).unwrap();
    let plugin = sandbox.compile(&module(&verdict(verdict::DROP))).unwrap();
    let mut instance = WasmInstance::new(&plugin, InstanceSettings::default()).unwrap();
    for _ in 0..100 {
        assert_eq!(Batch::equal(2, 60).processed(&mut instance).verdicts, [Verdict::Drop(0); 2]);
    }
}

/// A loop of so many rounds in a call whose first packet begins with 0xff, and nothing in others.
fn slow_when_told(rounds: u32) -> String {
    for_each(&format!(
        "(if (i32.eq (i32.load8_u (local.get $window)) (i32.const 0xff))
           (then (local.set $left (i32.const {rounds}))
             (loop $again (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
             (local.set $left (i32.const 1))))"
    ))
}

/// An instance that was short 2,000 times, which is not stopped any more if the machine didn't make it late itself.
fn after_short_calls(body: &str) -> WasmInstance {
    let mut instance = begin(body);
    for _ in 0..2000 {
        Batch::equal(1, 60).processed(&mut instance);
    }
    instance
}

/// What becomes of a packet that begins with 0xff, once that isn't stopped and gone on with.
fn told_after_short_calls(body: &str) -> (WasmInstance, Vec<Verdict>) {
    let told = |_| {
        let mut instance = after_short_calls(body);
        let mut batch = Batch::of(&[vec![0xff; 60]]);
        let progress = instance.process(&mut batch.packets(), Instant::ZERO);
        (progress == Progress::Done).then_some((instance, batch.verdicts))
    };
    (0..50).find_map(told).expect("it is always stopped")
}

#[test]
fn a_function_that_was_always_short_is_not_stopped_when_it_is_a_little_late() {
    let (instance, verdicts) = told_after_short_calls(&slow_when_told(400_000));
    assert_eq!((instance.fault(), verdicts), (None, vec![Verdict::Pass]));
}

#[test]
fn a_function_that_was_always_short_and_then_loops_is_ended() {
    let (mut instance, verdicts) = told_after_short_calls(&slow_when_told(u32::MAX));
    assert_eq!(verdicts, [Verdict::Fault]);
    assert_eq!(instance.fault().map(|fault| fault.kind), Some(FaultKind::Overrun));
    // In its next life it has to show it again.
    instance.restart().unwrap();
    let mut batch = Batch::of(&[vec![0xff; 60]]);
    assert_eq!(instance.process(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
}

#[test]
fn what_may_not_write_to_packets_changes_only_what_it_sees() {
    let body = for_each("(i32.store8 (local.get $window) (i32.const 0xee))");
    let mut instance = begin_with(r#", "capabilities": []"#, &body, Default::default()).unwrap();
    let batch = Batch::equal(2, 60).processed(&mut instance);
    assert_eq!(batch.packets[1].data()[0], 0x11);
}

#[test]
fn a_call_that_is_stopped_before_it_begins_is_not_done() {
    // The shortest slices there are: almost every poll is stopped somewhere, often before the plugin is reached.
    let settings = SandboxSettings { tick: Duration::from_nanos(1), slice: 1, ..Default::default() };
    let sandbox = Sandbox::new(settings).unwrap();
    let plugin = sandbox.compile(&module(&slow(2_000))).unwrap();
    // With such slices even a beginning may need more than it is given.
    let mut tries = (0..100).filter_map(|_| WasmInstance::new(&plugin, InstanceSettings::default()).ok());
    let mut instance = tries.next().unwrap();
    for _ in 0..2_000 {
        assert_eq!(Batch::equal(2, 60).processed(&mut instance).verdicts, [Verdict::Drop(0); 2]);
    }
}

/// The rule of the property test, natively: the first byte of what is seen decides, all of it is turned over.
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
    fn a_module_does_what_its_rule_does_natively(
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

#[test]
fn packets_of_a_flow_share_its_state() {
    // It counts packets in the flow's state, and says the count, the flow and whether it is new in the window.
    let count = for_each(
        "(i32.store (i32.wrap_i64 (i64.load offset=32 (local.get $at)))
           (i32.add (i32.load (i32.wrap_i64 (i64.load offset=32 (local.get $at)))) (i32.const 1)))
         (i32.store8 (local.get $window) (i32.load (i32.wrap_i64 (i64.load offset=32 (local.get $at)))))
         (i32.store8 offset=1 (local.get $window) (i32.load offset=40 (local.get $at)))
         (i32.store8 offset=2 (local.get $window) (i32.load16_u offset=2 (local.get $at)))",
    );
    let mut instance = begin_with(r#", "flow-state": 12"#, &count, Default::default()).unwrap();
    assert_eq!(instance.flow_state(), 12);
    let mut blocks = Blocks(vec![vec![0; 24]; 3]);
    for round in 0..2_u8 {
        let mut batch = Batch::equal(4, 60);
        let mut packets = batch.packets();
        packets = packets.with_states(&mut blocks, &[1, 2, 1, 1], 8, 12);
        let mut progress = instance.process(&mut packets, Instant::ZERO);
        while progress == Progress::Suspended {
            progress = instance.resume(&mut packets, Instant::ZERO);
        }
        let first = if round == 0 { u8::try_from(packet_flags::FIRST).unwrap() } else { 0 };
        let said: Vec<_> = batch.packets.iter().map(|packet| packet.data()[..3].to_vec()).collect();
        let (before_one, before_two) = (round * 3, round);
        let expected = [
            [before_one + 1, 1, first],
            [before_two + 1, 2, first],
            [before_one + 2, 1, 0],
            [before_one + 3, 1, 0],
        ];
        assert_eq!(said, expected);
    }
    assert_eq!((blocks.0[0][8], blocks.0[1][8], blocks.0[2][8]), (6, 2, 0));
}

/// State of flows, one block each.
struct Blocks(Vec<Vec<u8>>);

impl FlowStates for Blocks {
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        self.0.get_mut((number as usize).checked_sub(1)?).map(Vec::as_mut_slice)
    }
}

#[test]
fn the_end_of_a_flow_comes_with_its_state() {
    let body = format!(
        r#"{COUNTER}
        (func (export "millrace_flow_ended") (param $flow i32)
          (i32.store (i32.const 64) (i32.load8_u offset=7 (i32.wrap_i64 (i64.load offset=64 (local.get $flow))))))"#
    );
    let mut instance = begin_with(r#", "flow-state": 8"#, &body, Default::default()).unwrap();
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 6, (1, 2), PortId(0));
    instance.flow_ended(&FlowEnd { key, packets: 1, bytes: 0 }, &[0, 0, 0, 0, 0, 0, 0, 77]);
    assert_eq!(instance.save().unwrap().unwrap(), 77_u32.to_le_bytes());
}

#[test]
fn a_message_is_suspended_and_answered_later() {
    let slow = r#"(import "millrace" "reply" (func $reply (param i32 i32)))
        (data (i32.const 16) "7")
        (func (export "millrace_control") (param i32 i32 i32 i32) (result i32) (local $left i32)
          (local.set $left (i32.const 100000000))
          (loop $on (br_if $on (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (call $reply (i32.const 16) (i32.const 1)) i32.const 0)"#;
    let mut instance = begin_with(r#", "messages": {"on": "x"}"#, slow, Default::default()).unwrap();
    assert_eq!(instance.begin_control(&message("on", json!({}))), None);
    let mut none = Batch::equal(0, 0);
    while instance.resume(&mut none.packets(), Instant::ZERO) == Progress::Suspended {}
    assert_eq!(instance.take_reply(), Some(Ok(json!(7))));
    assert_eq!(instance.take_reply(), None);
    assert_eq!(instance.begin_control(&message("on", json!({}))), None);
    instance.abort();
    assert!(instance.take_reply().unwrap().unwrap_err().to_string().contains("it is dead"));
}

#[test]
fn baseline_code_is_suspended_and_goes_on() {
    let mut instance = begin_baseline(&slow(20_000_000));
    let batch = Batch::equal(4, 60).processed(&mut instance);
    assert_eq!(batch.verdicts, [Verdict::Drop(0); 4]);
    assert!(instance.counts().suspensions > 0);
    let mut forever = begin_baseline(&at_once(FOREVER));
    let mut batch = Batch::equal(1, 60);
    assert_eq!(forever.process(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    forever.abort();
    assert_eq!(forever.fault().map(|fault| fault.kind), Some(FaultKind::Overrun));
}

#[test]
fn traps_of_baseline_code_are_faults() {
    let mut instance = begin_baseline(&at_once("unreachable"));
    let _ = Batch::equal(1, 60).processed(&mut instance);
    assert_eq!(instance.fault().map(|fault| fault.kind), Some(FaultKind::Unreachable));
}

#[test]
fn better_code_is_taken_when_an_instance_begins_anew() {
    let mut instance = begin_baseline(&verdict(verdict::DROP));
    let wasm = module(&verdict(verdict::DROP));
    recompiled(instance.plugin(), &wasm, Tier::Optimised);
    assert_eq!(instance.plugin().current().tier(), Tier::Optimised);
    for _ in 0..2 {
        let batch = Batch::equal(2, 60).processed(&mut instance);
        assert_eq!(batch.verdicts, [Verdict::Drop(0); 2]);
        instance.restart().unwrap();
    }
    recompiled(instance.plugin(), &wasm, Tier::Baseline);
    assert_eq!(instance.plugin().current().tier(), Tier::Optimised);
}
