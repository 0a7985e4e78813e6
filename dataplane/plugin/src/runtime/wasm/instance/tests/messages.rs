//! Tests of messages and other calls without packets: state hand-over, ends of flows, periodic calls and
//! timers.

use super::*;

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
    assert_eq!(unknown.to_string(), "plugin test has no message \"ehco\"; its messages: echo, fault");
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
    assert!(error.contains("the instance failed, and restarts"), "{error}");
}

#[test]
fn replies_that_are_no_json_are_refused() {
    let body = r#"(import "millrace" "reply" (func $reply (param i32 i32)))
        (func (export "millrace_control") (param i32 i32 i32 i32) (result i32)
          (call $reply (i32.const 0) (i32.const 3)) i32.const 0)"#;
    let mut instance = begin_with(r#", "messages": {"on": "x"}"#, body, Default::default()).unwrap();
    let error = instance.control(&message("on", json!({}))).unwrap_err().to_string();
    assert!(error.contains("the plugin's reply is not valid JSON"), "{error}");
    let outside = body.replace("(i32.const 3)", "(i32.const 0x7fffffff)");
    let mut instance = begin_with(r#", "messages": {"on": "x"}"#, &outside, Default::default()).unwrap();
    instance.control(&message("on", json!({}))).unwrap_err();
    assert_eq!(instance.fault().unwrap().kind, FaultKind::OutOfBounds);
}

#[test]
fn fault_names_its_function() {
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
    assert_eq!(refused, "plugin test: restore: the plugin returned 1 without an error message");
    assert_eq!(begin("").save(), Ok(None));
    assert!(begin("").restore(&[], 0).unwrap_err().to_string().contains("can't restore state"));
}

#[test]
fn ends_of_flows_are_heard() {
    // The plugin sums the packet counts of ended flows.
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
fn flow_ends_wait_for_a_running_call() {
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
fn instance_is_called_by_period_and_by_timer() {
    let body = format!(
        r#"(import "millrace" "timer" (func $timer (param i64)))
        {COUNTER}
        (func (export "millrace_periodic") (param $now i64)
          (i64.store (i32.const 64) (local.get $now))
          (call $timer (i64.const 5000000)))"#
    );
    let keys = r#", "period": 20, "capabilities": ["timer"]"#;
    let mut instance = begin_with(keys, &body, Default::default()).unwrap();
    assert_eq!(instance.next_call(), Some(Instant::ZERO));
    instance.periodic(Instant::from_millis(100));
    assert_eq!(instance.save().unwrap().unwrap(), 100_000_000_u32.to_le_bytes());
    assert_eq!(instance.next_call(), Some(Instant::from_millis(105)));
    instance.periodic(Instant::from_millis(105));
    assert_eq!(instance.next_call(), Some(Instant::from_millis(110)));
    assert_eq!(begin("").next_call(), None);
}

#[test]
fn flow_end_comes_with_the_flow_state() {
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
