//! Tests of host functions: packets beyond the window, log lines, packets and requests, and functions without
//! capability.

use millrace_plugin_abi::{Request, RequestKinds};

use super::*;

#[test]
fn packets_are_read_and_written_behind_the_window() {
    let body = format!(
        r#"(import "millrace" "packet_read" (func $read (param i32 i32 i32 i32) (result i32)))
        (import "millrace" "packet_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (global $number (mut i32) (i32.const 0))
        {}"#,
        // The plugin reads 20 bytes at offset 100. It writes the first two of them to offset 98, and one of
        // them to offset 2, which is inside the window. The plugin also writes through the window, before and
        // after these calls. All these writes must stay.
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
    // 66 packets take two calls; packet numbers of the second call begin at 64.
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
    let keys = r#", "capabilities": ["log", "packet-make", "request-routes", "packet-write"]"#;
    let mut instance = begin_with(keys, &body, Default::default()).unwrap();
    assert!(instance.has_output() && !begin("").has_output());
    let batch = Batch::equal(12, 60).processed(&mut instance);
    assert_eq!(batch.packets[0].data()[..4], [0, 0, 1, 1]);
    let given: Vec<_> = std::iter::from_fn(|| instance.take_output()).collect();
    let log = Output::Log(LogLevel::Warning, "abc".to_owned());
    assert_eq!(
        given[..3],
        [
            log,
            Output::Packet { bytes: b"ab".to_vec(), port: PortId(4), passes: 0 },
            Output::Request(Request { json: "{}".to_owned(), granted: RequestKinds::ROUTES })
        ]
    );
    // Each of the twelve packets yields a packet and a request; only ten log lines pass the rate limit.
    assert_eq!(given.len(), 34);
    // 40 packets yield more than 64 outputs; the rest is refused.
    let batch = Batch::equal(40, 60).processed(&mut instance);
    assert_eq!((batch.packets[0].data()[0], batch.packets[39].data()[0]), (0, 1));
    assert_eq!(std::iter::from_fn(|| instance.take_output()).count(), 64);
}

#[test]
fn functions_of_other_capabilities_are_not_linked() {
    use super::super::super::inspect::ModuleError;
    let body = r#"(import "millrace" "packet_read" (func (param i32 i32 i32 i32) (result i32)))"#;
    let refused = SANDBOX.compile(&module(body)).unwrap_err();
    assert_eq!(refused, ModuleError::NotGranted { function: "packet_read", capability: "packet-read" });
}

#[test]
fn plugin_without_a_timer_waits_for_calls() {
    // With slices of 1,000 s, no tick suspends a call.
    let settings = SandboxSettings { tick: Duration::from_secs(1), slice: 1000, ..Default::default() };
    let sandbox = Sandbox::new(settings).unwrap();
    let plugin = sandbox.compile(&module(&verdict(verdict::DROP))).unwrap();
    let mut instance = WasmInstance::new(&plugin, InstanceSettings::default()).unwrap();
    for _ in 0..100 {
        assert_eq!(Batch::equal(2, 60).processed(&mut instance).verdicts, [Verdict::Drop(0); 2]);
    }
}

#[test]
fn service_state_survives_a_trap_and_is_handed_over() {
    // The plugin counts its calls. In a call with 3 packets, it overwrites the count and traps.
    let body = format!(
        r#"(import "millrace" "service_state" (func $common (result i32)))
        {}"#,
        at_once(
            "(i64.store (call $common) (i64.add (i64.load (call $common)) (i64.const 1)))
             (if (i32.eq (i32.load offset=4 (local.get $call)) (i32.const 3))
               (then (i64.store (call $common) (i64.const -1)) (unreachable)))"
        )
    );
    let begin = || begin_with(r#", "service-state": 12"#, &body, Default::default()).unwrap();
    let count = |instance: &WasmInstance| instance.service_state()[0];
    let mut instance = begin();
    assert_eq!(instance.service_state(), [0; 12]);
    for packets in [1, 2, 3] {
        Batch::equal(packets, 60).processed(&mut instance);
    }
    assert_eq!(instance.fault().unwrap().kind, FaultKind::Unreachable);
    // The state that the failed call wrote is discarded.
    assert_eq!(count(&instance), 2);
    instance.restart().unwrap();
    Batch::equal(1, 60).processed(&mut instance);
    assert_eq!(count(&instance), 3);
    let mut successor = begin();
    Batch::equal(1, 60).processed(&mut successor);
    successor.adopt_service_state(&[1; 11]);
    assert_eq!(count(&successor), 1);
    successor.adopt_service_state(&instance.service_state());
    Batch::equal(1, 60).processed(&mut successor);
    assert_eq!((count(&successor), count(&instance)), (4, 3));
}
