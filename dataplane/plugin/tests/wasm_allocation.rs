//! Tests that short calls of a WebAssembly plugin allocate no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use millrace_packet::{FlowKey, Pool};
use millrace_plugin::wasm::{InstanceSettings, Sandbox, SandboxSettings, WasmInstance};
use millrace_plugin_abi::{Instance, Instant, Packets, Progress, SharedMap, Verdict};
use millrace_units::PortId;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Plugin that, for each packet, reads eight bytes and the backlog, counts in its service state, and writes
/// and reads a map. It drops packets to port 53.
const PLUGIN: &str = r#"(module
  (@custom "millrace.manifest" "{\"abi\": 1, \"name\": \"dns\", \"version\": \"1.0.0\", \"summary\": \"Drops DNS.\", \"positions\": [\"late\"], \"capabilities\": [\"packet-read\", \"flow-backlog\", \"map-read\", \"map-write\"], \"service-state\": 64, \"maps\": [{\"name\": \"m\", \"key\": 4, \"value\": 8, \"entries\": 9}]}")
  (import "millrace" "packet_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "millrace" "flow_backlog" (func $backlog (param i32 i32 i32) (result i32)))
  (import "millrace" "service_state" (func $common (result i32)))
  (import "millrace" "map_get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "millrace" "map_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "millrace_abi") (result i32) i32.const 1)
  (global $reserved (mut i32) (i32.const 1024))
  (func (export "millrace_reserve") (param $bytes i32) (result i32)
    global.get $reserved
    (global.set $reserved
      (i32.and (i32.add (i32.add (global.get $reserved) (local.get $bytes)) (i32.const 7)) (i32.const -8))))
  (func (export "millrace_release") (param i32 i32))
  (func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)
  (func (export "millrace_packets") (param $call i32) (local $at i32) (local $left i32)
    (local.set $at (i32.wrap_i64 (i64.load offset=16 (local.get $call))))
    (local.set $left (i32.load offset=4 (local.get $call)))
    (loop $next
      (drop (call $read (i32.load16_u offset=30 (local.get $at)) (i32.const 0) (i32.const 64) (i32.const 8)))
      (drop (call $backlog (i32.load16_u offset=30 (local.get $at)) (i32.const 128) (i32.const 32)))
      (i64.store (call $common) (i64.add (i64.load (call $common)) (i64.const 1)))
      (if (i32.or (call $set (i32.const 0) (i32.const 64) (i32.const 4) (i32.const 64) (i32.const 8))
                  (call $get (i32.const 0) (i32.const 64) (i32.const 4) (i32.const 96) (i32.const 8)))
        (then unreachable))
      (i32.store8 offset=48 (local.get $at) (i32.eq (i32.load16_u offset=46 (local.get $at)) (i32.const 53)))
      (local.set $at (i32.add (local.get $at) (i32.const 64)))
      (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#;

/// Number of consecutive rounds of 20 calls that must not allocate.
const QUIET: u32 = 20;

#[test]
fn short_calls_allocate_nothing() {
    // A slice that a busy machine seldom makes a short call exceed.
    let settings =
        SandboxSettings { tick: Duration::from_millis(10), short_calls: 16, ..SandboxSettings::default() };
    let sandbox = Sandbox::new(settings).unwrap();
    let plugin = sandbox.compile(&wat::parse_str(PLUGIN).unwrap()).unwrap();
    let mut instance = WasmInstance::new(&plugin, InstanceSettings::default()).unwrap();
    let maps = instance.plugin().manifest().maps.iter().map(|shape| SharedMap::new(shape.clone(), 2));
    let maps = maps.map(|map| map.handle(0, true)).collect();
    instance.attach_maps(maps);
    let pool = Pool::new(128).unwrap();
    let mut batch: Vec<_> = (0..5).map(|_| pool.packet_from(&[1; 90]).unwrap()).collect();
    let key = |index: u16| {
        FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (7, 50 + index % 5), PortId(1))
    };
    let (keys, members): (Vec<_>, Vec<_>) = (0..5).map(|index| (key(index), index)).unzip();
    let mut verdicts = vec![Verdict::Pass; 5];
    let mut allocated_by = |calls: usize| {
        let before = ALLOCATIONS.get();
        for _ in 0..calls {
            let mut packets = Packets::new(&mut batch, &keys, &members, &mut verdicts);
            let mut progress = instance.process(&mut packets, Instant::ZERO);
            while progress == Progress::Suspended {
                progress = instance.resume(&mut packets, Instant::ZERO);
            }
        }
        ALLOCATIONS.get() - before
    };
    // At first, each call runs on its own stack, for which the engine allocates memory once.
    assert_eq!(allocated_by(7), 7);
    // Functions with short calls run on the worker's stack. If the machine delays a call, this call and the
    // following ones run on their own stacks, until the function counts as short again. Therefore the test
    // waits for a series of rounds without an allocation.
    let mut quiet = 0;
    for round in 0..5000 {
        let allocated = allocated_by(20);
        assert!(allocated <= 20, "more than one in a call of round {round}: {allocated}");
        quiet = if allocated == 0 { quiet + 1 } else { 0 };
        if quiet == QUIET {
            break;
        }
    }
    assert_eq!(quiet, QUIET, "rounds of 20 calls without an allocation, one behind the other");
    assert_eq!(instance.fault(), None);
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Drop(0)).count(), 1);
}
