//! Measures the cost of calling a WebAssembly plugin: cycles per call, and nanoseconds per packet in batches
//! of 32.
//!
//! Run `cargo run --release -p millrace-plugin --example wasm_cost`. Each figure is the median of many runs.
//! Cycles are those of the time-stamp counter. Each packet has 128 bytes, and the plugin sees all of them.
//! The first two lines call the WebAssembly engine directly: they show the cost of a call without this crate.

#[cfg(target_arch = "x86_64")]
fn main() {
    measurement::run();
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("this measures by the time-stamp counter of x86-64");
}

#[cfg(target_arch = "x86_64")]
mod measurement {
    use std::future::Future;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use millrace_packet::{FlowKey, Packet, Pool};
    use millrace_plugin::wasm::{InstanceSettings, Sandbox, SandboxSettings, WasmInstance};
    use millrace_plugin_abi::{Instance as _, Instant, Packets, Progress, Verdict};
    use millrace_units::PortId;
    use wasmtime::{Config, Engine, Instance, Module, Store, TypedFunc};

    const ROUNDS: usize = 20_000;
    const BATCH: usize = 32;

    const PREAMBLE: &str = r#"(memory (export "memory") 4)
        (func (export "millrace_abi") (result i32) i32.const 1)
        (global $reserved (mut i32) (i32.const 1024))
        (func (export "millrace_reserve") (param $bytes i32) (result i32)
          global.get $reserved
          (global.set $reserved
            (i32.and (i32.add (i32.add (global.get $reserved) (local.get $bytes)) (i32.const 7)) (i32.const -8))))
        (func (export "millrace_release") (param i32 i32))
        (func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)"#;

    /// Returns the WebAssembly text of a packet handler that executes the instructions `what` for each
    /// packet. In `what`, `$at` is the address of the packet's description (`RawPacket`).
    fn for_each(what: &str) -> String {
        format!(
            r#"(func (export "millrace_packets") (param $call i32) (local $at i32) (local $left i32)
                 (local.set $at (i32.wrap_i64 (i64.load offset=16 (local.get $call))))
                 (local.set $left (i32.load offset=4 (local.get $call)))
                 (loop $next
                   {what}
                   (local.set $at (i32.add (local.get $at) (i32.const 64)))
                   (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1))))))"#
        )
    }

    fn module(imports: &str, packets: &str) -> Vec<u8> {
        let manifest = r#"{"abi": 1, "name": "cost", "version": "1.0.0", "summary": "For measuring.",
            "positions": ["late"], "capabilities": ["packet-read"]}"#;
        let manifest = manifest.replace('"', "\\\"").replace('\n', " ");
        let text = format!(
            "(module (@custom \"millrace.manifest\" \"{manifest}\")\n{imports}\n{PREAMBLE}\n{packets})"
        );
        wat::parse_str(text).expect("the module is right")
    }

    fn cycles() -> u64 {
        // SAFETY: reading the counter has no precondition.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    /// Returns the median number of cycles that `call` takes.
    fn median(mut call: impl FnMut()) -> u64 {
        let mut taken: Vec<u64> = (0..ROUNDS)
            .map(|_| {
                let start = cycles();
                call();
                cycles() - start
            })
            .collect();
        taken.sort_unstable();
        taken[ROUNDS / 2]
    }

    /// Measures the frequency of the time-stamp counter, in cycles per nanosecond.
    fn cycles_per_nanosecond() -> f64 {
        #[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
        let now = std::time::Instant::now;
        let (start, from) = (now(), cycles());
        std::thread::sleep(std::time::Duration::from_millis(200));
        (cycles() - from) as f64 / start.elapsed().as_nanos() as f64
    }

    const EMPTY: &str = r#"(module (func (export "f")))"#;

    fn engine(epochs: bool) -> (Store<()>, TypedFunc<(), ()>) {
        let mut config = Config::new();
        config.epoch_interruption(epochs);
        let engine = Engine::new(&config).expect("an engine");
        let module = Module::new(&engine, wat::parse_str(EMPTY).expect("text")).expect("a module");
        let mut store = Store::new(&engine, ());
        if epochs {
            store.set_epoch_deadline(1);
            store.epoch_deadline_async_yield_and_update(1);
        }
        let instance = finished(Instance::new_async(&mut store, &module, &[])).expect("an instance");
        let function = instance.get_typed_func(&mut store, "f").expect("a function");
        (store, function)
    }

    /// Returns the result of a future that is ready at its first poll.
    fn finished<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits"),
        }
    }

    struct Batch {
        packets: Vec<Packet>,
        keys: Vec<FlowKey>,
        members: Vec<u16>,
        verdicts: Vec<Verdict>,
    }

    impl Batch {
        fn new(pool: &Pool, count: usize) -> Self {
            let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0));
            Self {
                packets: (0..count).map(|_| pool.packet_from(&[7; 128]).expect("memory")).collect(),
                keys: vec![key; count],
                members: (0..count as u16).collect(),
                verdicts: vec![Verdict::Pass; count],
            }
        }

        /// Calls a plugin with the batch many times. Returns the median number of cycles of a call.
        fn cost(&mut self, wasm: &[u8]) -> u64 {
            let sandbox = Sandbox::new(SandboxSettings::default()).expect("a sandbox");
            let plugin = sandbox.compile(wasm).expect("a plugin");
            let mut instance = WasmInstance::new(&plugin, InstanceSettings::default()).expect("an instance");
            let taken = median(|| {
                let mut packets =
                    Packets::new(&mut self.packets, &self.keys, &self.members, &mut self.verdicts);
                let mut progress = instance.process(&mut packets, Instant::ZERO);
                while progress == Progress::Suspended {
                    progress = instance.resume(&mut packets, Instant::ZERO);
                }
            });
            assert_eq!(instance.fault(), None);
            taken
        }
    }

    pub fn run() {
        let rate = cycles_per_nanosecond();
        let line = |what: &str, cycles: u64| {
            println!("{what:<66} {cycles:>7} cycles {:>8.1} ns", cycles as f64 / rate);
        };
        let (mut store, function) = engine(false);
        line("the engine, without pre-emption", median(|| function.call(&mut store, ()).expect("a call")));
        let (mut store, function) = engine(true);
        let called = median(|| finished(function.call_async(&mut store, ())).expect("a call"));
        line("the engine, with pre-emption: a stack for each call", called);

        let pool = Pool::new(256).expect("packet memory");
        let nothing = module("", r#"(func (export "millrace_packets") (param i32))"#);
        let (mut none, mut one, mut batch) =
            (Batch::new(&pool, 0), Batch::new(&pool, 1), Batch::new(&pool, BATCH));
        line("an instance, no packets", none.cost(&nothing));
        line("an instance, 1 packet, nothing done", one.cost(&nothing));
        let read = r#"(import "millrace" "packet_read" (func $read (param i32 i32 i32 i32) (result i32)))"#;
        let once = r#"(func (export "millrace_packets") (param i32)
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 64) (i32.const 8))))"#;
        line("an instance, 1 packet, one call back (packet_read)", one.cost(&module(read, once)));

        let per_packet = |what: &str, cycles: u64| {
            let each = cycles as f64 / BATCH as f64;
            println!("{what:<66} {each:>7.1} cycles {:>8.2} ns", each / rate);
        };
        println!("for each packet, in batches of {BATCH}:");
        per_packet("  nothing done", batch.cost(&nothing));
        let looked = "(i32.store8 offset=48 (local.get $at)
            (i32.eq (i32.load16_u offset=46 (local.get $at)) (i32.const 99)))";
        per_packet("  a verdict by the destination port", batch.cost(&module("", &for_each(looked))));
        let changed = "(i64.store offset=8 (i32.wrap_i64 (i64.load offset=8 (local.get $at)))
            (i64.add (i64.load offset=8 (i32.wrap_i64 (i64.load offset=8 (local.get $at)))) (i64.const 1)))";
        per_packet("  eight bytes changed", batch.cost(&module("", &for_each(changed))));
        let asked = "(drop (call $read (i32.load16_u offset=30 (local.get $at)) (i32.const 0) (i32.const 64)
            (i32.const 8)))";
        per_packet("  one call back (packet_read)", batch.cost(&module(read, &for_each(asked))));
    }
}
