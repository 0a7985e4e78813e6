//! Tests of long calls: suspension, resumption and end of calls, calls on the worker's stack, and better code
//! after a restart.

use super::*;

#[test]
fn a_loop_without_end_is_suspended_while_others_run() {
    let mut endless = begin(&format!("{COUNTER}{}", at_once(FOREVER)));
    let mut other = begin(&verdict(verdict::DROP));
    let mut batch = Batch::equal(2, 60);
    assert_eq!(endless.process(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    assert!(endless.is_suspended());
    for _ in 0..5 {
        assert_eq!(Batch::equal(1, 60).processed(&mut other).verdicts, [Verdict::Drop(0)]);
        assert_eq!(endless.resume(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    }
    // A request during the call is refused.
    assert!(endless.save().unwrap_err().to_string().contains("in the middle of a call"));
    endless.abort();
    assert_eq!((endless.fault().unwrap().kind, endless.is_suspended()), (FaultKind::Overrun, false));
    endless.restart().unwrap();
}

#[test]
fn resumed_call_returns_its_verdicts() {
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
    assert_eq!(instance.fault().map(|fault| fault.kind), Some(FaultKind::Overrun));
}

#[test]
fn a_suspended_instance_can_be_dropped() {
    let mut instance = begin(&at_once(FOREVER));
    let mut batch = Batch::equal(1, 60);
    assert_eq!(instance.process(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    drop(instance);
}

#[test]
fn instance_continues_in_another_thread() {
    let mut instance = begin(&verdict(verdict::CONSUME));
    let count = std::thread::spawn(move || Batch::equal(2, 60).processed(&mut instance).verdicts);
    assert_eq!(count.join().unwrap(), [Verdict::Consume; 2]);
}

/// Returns a packet handler that loops `rounds` times for a packet that begins with 0xff, and does nothing
/// for others.
fn slow_when_told(rounds: u32) -> String {
    for_each(&format!(
        "(if (i32.eq (i32.load8_u (local.get $window)) (i32.const 0xff))
           (then (local.set $left (i32.const {rounds}))
             (loop $again (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
             (local.set $left (i32.const 1))))"
    ))
}

/// Returns an instance after 2,000 short calls. Its further calls run on the worker's stack, unless the
/// machine delayed some of the short calls.
fn after_short_calls(body: &str) -> WasmInstance {
    let mut instance = begin(body);
    for _ in 0..2000 {
        Batch::equal(1, 60).processed(&mut instance);
    }
    instance
}

/// Calls instances, each after 2,000 short calls, with a packet that begins with 0xff. Returns the first
/// instance whose call is not suspended, and the verdict.
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
fn usually_short_function_is_not_suspended_when_slightly_late() {
    let (instance, verdicts) = told_after_short_calls(&slow_when_told(400_000));
    assert_eq!((instance.fault(), verdicts), (None, vec![Verdict::Pass]));
}

/// Calls instances, each after short calls, with two packets: the first begins with 0x11, the second with 0xff.
/// Returns the first instance whose call the router cut, the batch, and the progress of the call.
fn cut_after_short_calls(keys: &str, body: &str) -> (WasmInstance, Batch, Progress) {
    // Few short calls are needed, because a busy machine delays some calls.
    let sandbox = Sandbox::new(SandboxSettings { short_calls: 4, ..Default::default() }).unwrap();
    let plugin = sandbox.compile(&module_with(keys, body)).unwrap();
    let told = |_| {
        let mut instance = WasmInstance::new(&plugin, InstanceSettings::default()).unwrap();
        (0..20).for_each(|_| drop(Batch::equal(2, 60).processed(&mut instance)));
        let mut batch = Batch::of(&[vec![0x11; 60], vec![0xff; 60]]);
        let progress = instance.process(&mut batch.packets(), Instant::ZERO);
        (instance.misjudged() == 1).then_some((instance, batch, progress))
    };
    (0..50).find_map(told).expect("the router never cuts the call")
}

#[test]
fn long_call_on_the_workers_stack_is_repeated_as_a_suspendable_one_without_a_fault() {
    let body = format!("{COUNTER}{}", slow_when_told(50_000_000));
    let (mut instance, mut batch, mut progress) = cut_after_short_calls("", &body);
    assert_eq!(progress, Progress::Suspended);
    while progress == Progress::Suspended {
        progress = instance.resume(&mut batch.packets(), Instant::ZERO);
    }
    assert_eq!(batch.verdicts, [Verdict::Pass; 2]);
    assert!(instance.fault().is_none() && instance.take_fault().is_none());
}

/// The end of a flow that comes before the repetition runs the plugin without the packets.
#[test]
fn call_that_is_repeated_after_the_end_of_a_flow_has_its_packets() {
    let dropped = "(i32.store8 offset=48 (local.get $at) (i32.const 1)) (local.set $at (i32.add";
    let slow = slow_when_told(50_000_000).replacen("(local.set $at (i32.add", dropped, 1);
    let body = format!(r#"(func (export "millrace_flow_ended") (param i32)){slow}"#);
    let (mut instance, mut batch, mut progress) = cut_after_short_calls("", &body);
    assert_eq!(progress, Progress::Suspended);
    let flow = FlowEnd { key: batch.keys[0], packets: 1, bytes: 60 };
    instance.flow_ended(&flow, &[]);
    while progress == Progress::Suspended {
        progress = instance.resume(&mut batch.packets(), Instant::ZERO);
    }
    assert_eq!(batch.verdicts, [Verdict::Drop(0); 2]);
}

#[test]
fn slow_packets_among_a_thousand_short_calls_are_never_faults() {
    let (mut instance, batch, _) = cut_after_short_calls("", &slow_when_told(20_000_000));
    instance.abort();
    assert_eq!(
        instance.fault().map(|fault| fault.kind),
        Some(FaultKind::Overrun),
        "an endless call is a fault"
    );
    drop(batch);
    for _ in 0..8 {
        // The instance remembers over a restart that its calls aren't short.
        instance.restart().unwrap();
        (0..1100).for_each(|_| drop(Batch::equal(1, 60).processed(&mut instance)));
        let batch = Batch::of(&[vec![0xff; 60]]).processed(&mut instance);
        assert_eq!((batch.verdicts, instance.take_fault()), (vec![Verdict::Pass], None));
    }
    assert_eq!(instance.misjudged(), 1);
}

#[test]
fn call_that_was_cut_after_an_effect_is_not_repeated() {
    let import = r#"(import "millrace" "packet_write" (func $write (param i32 i32 i32 i32) (result i32)))"#;
    let write = "(drop (call $write (i32.const 0) (i32.const 40) (i32.const 0) (i32.const 1)))";
    let slow = slow_when_told(50_000_000);
    let written = slow.replacen("(loop $next", &format!("{write}(loop $next"), 1);
    let keys = r#", "capabilities": ["packet-write"]"#;
    let (mut instance, batch, progress) = cut_after_short_calls(keys, &format!("{import}\n{written}"));
    assert_eq!((progress, batch.verdicts), (Progress::Done, vec![Verdict::Fault; 2]));
    assert!(instance.fault().is_none() && instance.take_fault().is_none());
    assert_eq!(Batch::equal(2, 60).processed(&mut instance).verdicts, [Verdict::Pass; 2]);
}

#[test]
fn plugin_without_write_permission_changes_only_its_own_view() {
    let body = for_each("(i32.store8 (local.get $window) (i32.const 0xee))");
    let mut instance = begin_with(r#", "capabilities": []"#, &body, Default::default()).unwrap();
    let batch = Batch::equal(2, 60).processed(&mut instance);
    assert_eq!(batch.packets[1].data()[0], 0x11);
}

#[test]
fn call_stopped_before_its_start_has_no_effect() {
    // With the shortest slices, almost every poll is suspended, often before it reaches the plugin's code.
    let settings = SandboxSettings { tick: Duration::from_nanos(1), slice: 1, ..Default::default() };
    let sandbox = Sandbox::new(settings).unwrap();
    let plugin = sandbox.compile(&module(&slow(2_000))).unwrap();
    // With such slices even the initialization may exceed its limit.
    let mut tries = (0..100).filter_map(|_| WasmInstance::new(&plugin, InstanceSettings::default()).ok());
    let mut instance = tries.next().unwrap();
    for _ in 0..2_000 {
        assert_eq!(Batch::equal(2, 60).processed(&mut instance).verdicts, [Verdict::Drop(0); 2]);
    }
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
    assert!(
        instance.take_reply().unwrap().unwrap_err().to_string().contains("the instance failed, and restarts")
    );
}

#[test]
fn baseline_code_is_suspended_and_resumed() {
    let mut instance = begin_baseline(&slow(20_000_000));
    let mut batch = Batch::equal(4, 60);
    assert_eq!(instance.process(&mut batch.packets(), Instant::ZERO), Progress::Suspended);
    while instance.resume(&mut batch.packets(), Instant::ZERO) == Progress::Suspended {}
    assert_eq!(batch.verdicts, [Verdict::Drop(0); 4]);
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
fn optimised_code_is_used_after_a_restart() {
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
