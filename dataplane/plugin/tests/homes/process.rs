//! Tests of shared objects and executables in processes, and a keeper that starts these processes.
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant as Clock};

use millrace_packet::Pool;
use millrace_plugin::native::{DescribedPlugin, Form, NativePlugin, ObjectError, check_object};
use millrace_plugin::process::{Keeper, Order, ProcessPlugin, Seat};
use millrace_plugin_abi::{Instant, Packets, Plugin, Progress, Runtime, Verdict};
use serde_json::{Map, json};

use crate::native::text;
use crate::support::{Bench, Sent, executable, executable_of, message, object, object_of, source};

/// Keeper with a thread for each seat.
struct TestKeeper;

impl Keeper for TestKeeper {
    fn seat(&self, plugin: &ProcessPlugin) -> Result<Arc<Seat>, String> {
        let (sender, orders) = channel();
        let seat = Arc::new(Seat::new(move || _ = sender.send(())));
        let (kept, plugin) = (seat.clone(), plugin.clone());
        std::thread::spawn(move || while keep(&kept, &plugin, &orders) {});
        Ok(seat)
    }
}

/// Keeps one process of a seat until the process has ended. Returns whether the seat needs another one.
fn keep(seat: &Seat, plugin: &ProcessPlugin, orders: &Receiver<()>) -> bool {
    let number = seat.begin_start();
    let (link, memory) = plugin.link().unwrap();
    let tie = link.tie();
    let mut command = Command::new(match plugin.form().is_executable() {
        // The child opens the path, so it leads to the child's own standard input.
        true => "/proc/self/fd/0",
        false => env!("CARGO_BIN_EXE_plugin-process"),
    });
    let object = plugin.object().try_clone_to_owned().unwrap();
    command.stdin(object).stdout(memory).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    seat.give(number, Ok(link));
    let mut has_ended = false;
    loop {
        let _ = orders.recv_timeout(Duration::from_millis(1));
        match seat.take_order() {
            Some(Order::Retire) => {
                end(&mut child);
                return false;
            }
            Some(Order::Replace(replaced)) if replaced == number => {
                tie.end(end(&mut child));
                return true;
            }
            _ => {}
        }
        if !has_ended && child.try_wait().unwrap().is_some() {
            tie.end(end(&mut child));
            has_ended = true;
            if tie.is_ready() {
                return true;
            }
        }
    }
}

/// Kills a process. Returns its last words.
fn end(child: &mut Child) -> String {
    let _ = child.kill();
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
    format!("{status}: {}", said.trim())
}

/// Prepares a plugin whose instances run in processes.
pub fn in_process(bytes: &[u8]) -> ProcessPlugin {
    ProcessPlugin::new(bytes, Arc::new(TestKeeper)).unwrap()
}

/// Returns the rule as a shared object and as an executable.
fn rules() -> Vec<ProcessPlugin> {
    let built = [object(&source("rule.c"), &[]), executable(&source("rule.c"), false)];
    built.into_iter().flatten().map(|bytes| in_process(&bytes)).collect()
}

fn sent(port: u16) -> Sent {
    Sent { flow: 0, port, bytes: vec![0x11; 90] }
}

/// Returns plugins that run `statement` for each packet to port 666, and pass all packets: a shared object and
/// an executable.
fn that_do(statement: &str) -> Vec<ProcessPlugin> {
    let body = format!(
        "void millrace_packets(struct millrace_call *call) {{
            for (uint32_t i = 0; i < call->count; i++) {{
                struct millrace_packet *packet = millrace_packet(call, i);
                if (packet->destination_port == 666) {{ {statement} }}
            }} }}"
    );
    in_both_forms(&text("", &body))
}

/// Compiles a C text to a shared object and to an executable.
fn in_both_forms(text: &str) -> Vec<ProcessPlugin> {
    let built = [object_of(text), executable_of(text)];
    built.into_iter().flatten().map(|bytes| in_process(&bytes)).collect()
}

#[test]
fn plugin_runs_in_a_process_and_its_variables_belong_to_one_instance() {
    for (plugin, runtime) in rules().into_iter().zip([Runtime::Process, Runtime::Executable]) {
        assert_eq!(plugin.runtime(), runtime);
        let pool = Pool::new(128).unwrap();
        let mut benches: Vec<_> = (0..3).map(|_| Bench::of(&plugin)).collect();
        for (index, bench) in benches.iter_mut().enumerate() {
            (0..=index).for_each(|_| {
                bench.send(&pool, &[sent(80)], Instant::ZERO);
            });
        }
        for (index, bench) in benches.iter_mut().enumerate() {
            let reply = bench.instance.control(&message("read", json!({}))).unwrap();
            assert_eq!(reply["packets"], index + 1);
        }
    }
}

#[test]
fn crash_fails_its_call_and_another_process_takes_over_within_50_ms() {
    for plugin in that_do("__builtin_trap();") {
        let pool = Pool::new(128).unwrap();
        let mut bench = Bench::of(&plugin);
        assert_eq!(bench.send(&pool, &[sent(80)], Instant::ZERO).packets[0].0, Verdict::Pass);
        let mut times = Vec::new();
        for _ in 0..5 {
            let came = bench.send(&pool, &[sent(80), sent(666)], Instant::ZERO);
            let begun = Clock::now();
            assert_eq!(came.packets.iter().map(|packet| packet.0).collect::<Vec<_>>(), [Verdict::Fault; 2]);
            let fault = came.fault.unwrap();
            assert!(fault.kind == "crash" && fault.text.contains("signal: "), "{fault:?}");
            // Until the restart, packets fail at once.
            assert_eq!(bench.send(&pool, &[sent(80)], Instant::ZERO).packets[0].0, Verdict::Fault);
            bench.instance.restart().unwrap();
            assert_eq!(bench.send(&pool, &[sent(80)], Instant::ZERO).packets[0].0, Verdict::Pass);
            times.push(begun.elapsed());
        }
        times.sort();
        println!("restarts after a crash: {times:?}");
        assert!(times[2] < Duration::from_millis(50), "{times:?}");
    }
}

#[test]
fn exit_is_a_crash() {
    let pool = Pool::new(128).unwrap();
    for code in [0, 3] {
        for plugin in that_do(&format!("_exit({code});")) {
            let fault = Bench::of(&plugin).send(&pool, &[sent(666)], Instant::ZERO).fault.unwrap();
            let ended = format!("exit status: {code}");
            assert!(fault.kind == "crash" && fault.text.contains(&ended), "{fault:?}");
        }
    }
}

#[test]
fn hanging_call_is_aborted_and_another_process_takes_over() {
    for plugin in that_do("for (;;) __asm__ volatile(\"\");") {
        let pool = Pool::new(128).unwrap();
        let mut bench = Bench::of(&plugin);
        let mut packets = [pool.packet_from(&[0x11; 90]).unwrap()];
        let keys = [Bench::key(&sent(666))];
        let mut verdicts = [Verdict::Pass];
        let mut call = Packets::new(&mut packets, &keys, &[0], &mut verdicts);
        assert_eq!(bench.instance.process(&mut call, Instant::ZERO), Progress::Awaited);
        for _ in 0..1000 {
            assert_eq!(bench.instance.resume(&mut call, Instant::ZERO), Progress::Awaited);
        }
        bench.instance.abort();
        assert_eq!(bench.instance.take_fault().unwrap().kind, "overrun");
        bench.instance.restart().unwrap();
        assert_eq!(bench.send(&pool, &[sent(80)], Instant::ZERO).packets[0].0, Verdict::Pass);
    }
}

#[test]
fn refused_start_reports_its_reason() {
    for plugin in rules() {
        let settings = json!({ "port": 70000 }).as_object().cloned().unwrap();
        let refused = plugin.create(&settings).err().unwrap().to_string();
        assert_eq!(refused, "plugin rule: init: port: give 0 to 65535");
    }
    let broken = text(
        "",
        "void nobody_has_this(void);\nvoid millrace_periodic(uint64_t now) { (void)now; nobody_has_this(); }",
    );
    let Some(broken) = object_of(&broken) else { return };
    let refused = in_process(&broken).create(&Map::new()).err().unwrap().to_string();
    assert!(refused.contains("can't be loaded: undefined symbol: nobody_has_this"), "{refused}");
}

#[test]
fn function_that_was_not_granted_refuses_and_is_a_fault() {
    for plugin in
        that_do("if (!millrace_resize(packet, 4) || !millrace_make(\"a\", 1, 0)) millrace_drop(packet, 9);")
    {
        let pool = Pool::new(128).unwrap();
        let came = Bench::of(&plugin).send(&pool, &[sent(666)], Instant::ZERO);
        assert_eq!(came.packets[0].0, Verdict::Drop(9));
        assert_eq!(came.fault.unwrap().kind, "not_granted");
    }
}

#[test]
fn plugin_reads_and_writes_packets_beyond_the_window() {
    let body = "#include <string.h>
        void millrace_packets(struct millrace_call *call) {
            for (uint32_t i = 0; i < call->count; i++) {
                struct millrace_packet *packet = millrace_packet(call, i);
                uint8_t bytes[2000];
                uint32_t read = millrace_read(packet, 0, bytes, sizeof bytes);
                for (uint32_t j = 0; j < read; j++) bytes[j] ^= 0xff;
                millrace_write(packet, 0, bytes, read);
            } }";
    let pool = Pool::new(128).unwrap();
    let packet = Sent { bytes: (0..1500).map(|byte| byte as u8).collect(), ..sent(80) };
    for plugin in in_both_forms(&text(r#","capabilities":["packet-read","packet-write"]"#, body)) {
        let came = Bench::of(&plugin).send(&pool, std::slice::from_ref(&packet), Instant::ZERO);
        let expected = packet.bytes.iter().map(|byte| !byte).collect();
        assert_eq!(came.packets, [(Verdict::Pass, Some((0, expected)))]);
    }
}

#[test]
fn executable_runs_in_no_other_process() {
    let Some(executable) = executable_of(&text("", "")) else { return };
    assert_eq!(check_object(&executable), Ok(Form::Static));
    let refused = NativePlugin::new(&executable).unwrap_err();
    assert_eq!(refused, ObjectError::Executable);
    assert_eq!(DescribedPlugin::new(&executable, Runtime::Trusted).unwrap_err(), refused);
    let described = DescribedPlugin::new(&executable, Runtime::Process).unwrap();
    assert_eq!(described.runtime(), Runtime::Executable);
}

#[test]
fn program_that_is_no_plugin_is_refused() {
    let program = std::fs::read("/proc/self/exe").unwrap();
    // The program of the tests may exceed the limit of a plugin.
    let refused = ProcessPlugin::new(&program, Arc::new(TestKeeper)).unwrap_err();
    assert!(matches!(refused, ObjectError::NoManifest | ObjectError::TooLarge(_)), "{refused}");
}
