//! Tests of shared objects in processes, and a keeper that starts these processes.
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant as Clock};

use millrace_packet::Pool;
use millrace_plugin::process::{Keeper, Order, ProcessPlugin, Seat};
use millrace_plugin_abi::{Instant, Packets, Plugin, Progress, Runtime, Verdict};
use serde_json::{Map, json};

use crate::native::text;
use crate::support::{Bench, Sent, message, object, object_of, source};

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
    let mut command = Command::new(env!("CARGO_BIN_EXE_plugin-process"));
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

fn rule() -> Option<ProcessPlugin> {
    object(&source("rule.c"), &[]).map(|bytes| in_process(&bytes))
}

fn sent(port: u16) -> Sent {
    Sent { flow: 0, port, bytes: vec![0x11; 90] }
}

/// Returns a plugin that runs `statement` for each packet to port 666, and passes all packets.
fn that_does(statement: &str) -> Option<ProcessPlugin> {
    let body = format!(
        "void millrace_packets(struct millrace_call *call) {{
            for (uint32_t i = 0; i < call->count; i++) {{
                struct millrace_packet *packet = millrace_packet(call, i);
                if (packet->destination_port == 666) {{ {statement} }}
            }} }}"
    );
    object_of(&text("", &body)).map(|bytes| in_process(&bytes))
}

#[test]
fn plugin_runs_in_a_process_and_its_variables_belong_to_one_instance() {
    let Some(plugin) = rule() else { return };
    assert_eq!(plugin.runtime(), Runtime::Process);
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

#[test]
fn crash_fails_its_call_and_another_process_takes_over_within_50_ms() {
    let Some(plugin) = that_does("__builtin_trap();") else { return };
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

#[test]
fn exit_is_a_crash() {
    let Some(plugin) = that_does("_exit(3);") else { return };
    let pool = Pool::new(128).unwrap();
    let fault = Bench::of(&plugin).send(&pool, &[sent(666)], Instant::ZERO).fault.unwrap();
    assert!(fault.kind == "crash" && fault.text.contains("exit status: 3"), "{fault:?}");
}

#[test]
fn hanging_call_is_aborted_and_another_process_takes_over() {
    let Some(plugin) = that_does("for (;;) __asm__ volatile(\"\");") else { return };
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

#[test]
fn refused_start_reports_its_reason() {
    let Some(plugin) = rule() else { return };
    let settings = json!({ "port": 70000 }).as_object().cloned().unwrap();
    let refused = plugin.create(&settings).err().unwrap().to_string();
    assert_eq!(refused, "plugin rule: init: port: give 0 to 65535");
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
    let Some(plugin) = that_does(
        "if (!millrace_resize(packet, 4) || !millrace_make(\"a\", 1, 0)) millrace_drop(packet, 9);",
    ) else {
        return;
    };
    let pool = Pool::new(128).unwrap();
    let came = Bench::of(&plugin).send(&pool, &[sent(666)], Instant::ZERO);
    assert_eq!(came.packets[0].0, Verdict::Drop(9));
    assert_eq!(came.fault.unwrap().kind, "not_granted");
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
    let Some(bytes) = object_of(&text(r#","capabilities":["packet-read","packet-write"]"#, body)) else {
        return;
    };
    let pool = Pool::new(128).unwrap();
    let packet = Sent { bytes: (0..1500).map(|byte| byte as u8).collect(), ..sent(80) };
    let came = Bench::of(&in_process(&bytes)).send(&pool, std::slice::from_ref(&packet), Instant::ZERO);
    let expected = packet.bytes.iter().map(|byte| !byte).collect();
    assert_eq!(came.packets, [(Verdict::Pass, Some((0, expected)))]);
}
