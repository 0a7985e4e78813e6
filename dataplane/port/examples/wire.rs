//! Measures the throughput of a port: a wire between two veths of a private network namespace, under
//! overload.
//!
//! `wire af_xdp|af_packet|none [one|two] [SECONDS] [THREAD]`: `one` core does everything, or a second core
//! runs the source of frames. With `none` only the source runs, and another program must forward from `r1` to
//! `r2` in the namespace; THREAD is the id of its thread. The example counts the frames at the far end, and
//! the processor time of the forwarding thread, which is meaningful even on a busy machine.
#![allow(clippy::disallowed_methods, reason = "it measures time")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_packet::{Batch, Pool};
use millrace_port::{AfPacket, AfXdp, Port, af_packet};
use support::redirect::{Generator, Redirect, sink};
use support::{device, options, veth};

const NOW: millrace_units::Instant = millrace_units::Instant::ZERO;
/// Length of a 64-byte Ethernet frame without its check sequence.
const FRAME: usize = 60;

fn udp_frame(destination: [u8; 6]) -> Vec<u8> {
    let mut frame = [&destination[..], &[2, 0, 0, 0, 0, 9, 8, 0]].concat();
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0x9d, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x30, 0x39, 0x14, 0x51, 0, 26, 0, 0]);
    frame.resize(FRAME, 0);
    frame
}

fn pin(core: usize) {
    let mut set = nix::sched::CpuSet::new();
    set.set(core).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).unwrap();
}

fn received(device: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with(device)).unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// Returns the processor time of a thread in nanoseconds, including system calls.
fn run_time(thread: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn source(generator: Generator, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        pin(1);
        while !stop.load(Ordering::Relaxed) {
            generator.send(1024).unwrap();
        }
    })
}

type Ports = (Box<dyn Port>, Box<dyn Port>, Vec<Redirect>);

fn ports(kind: &str, pool: &Pool) -> Ports {
    if kind == "af_packet" {
        // A veth loses redirected frames if its other end has neither XDP nor GRO.
        support::run("ethtool -K r1 gro on");
        let open = |name| {
            let (ifindex, mac) = device(name);
            Box::new(AfPacket::open(af_packet::Options::new(name, ifindex, mac, 1500)).unwrap())
        };
        return (open("r1"), open("r2"), Vec::new());
    }
    let open = |name| {
        let redirect = Redirect::attach(device(name).0, true, false).unwrap();
        let port = AfXdp::open(pool, options(name, 1500)).unwrap();
        port.sockets().for_each(|(queue, socket)| redirect.register(queue, socket).unwrap());
        (Box::new(port), redirect)
    };
    let ((left, first), (right, second)) = (open("r1"), open("r2"));
    (left, right, vec![first, second])
}

fn forward(left: &mut dyn Port, right: &mut dyn Port, pool: &Pool, batch: &mut Batch) {
    left.receive(pool, NOW, batch);
    if !batch.is_empty() {
        right.transmit(pool, NOW, batch);
    }
    right.flush(pool, NOW);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let kind = arguments.get(1).map_or("af_xdp", String::as_str);
    let two_cores = arguments.get(2).is_some_and(|cores| cores == "two");
    let thread = arguments.get(4).map_or("thread-self", String::as_str);
    let seconds = arguments.get(3).map_or(3, |seconds| seconds.parse().unwrap());
    if kind != "none" {
        assert!(support::enter_namespace("wire"), "needs root");
        veth("r1", "h1", 1500, 1);
        veth("r2", "h2", 1500, 1);
    }
    pin(0);
    let _sinks = [sink(device("h1").0).unwrap(), sink(device("h2").0).unwrap()];
    let generator = Generator::new(device("h1").0, &udp_frame(device("r1").1.0)).unwrap();
    let pool = Pool::new(16384).unwrap();
    let mut opened = (kind != "none").then(|| ports(kind, &pool));
    let stop = Arc::new(AtomicBool::new(false));
    let (own, other) = if two_cores || kind == "none" {
        (None, Some(source(generator, stop.clone())))
    } else {
        (Some(generator), None)
    };
    let mut batch = Batch::new();
    let (start, mut measured) = (Instant::now(), None);
    while start.elapsed() < Duration::from_secs(seconds + 1) {
        // The first second warms up caches and memory, so it isn't measured.
        if measured.is_none() && start.elapsed() > Duration::from_secs(1) {
            measured = Some((Instant::now(), received("h2"), run_time(thread)));
        }
        let Some((left, right, _)) = &mut opened else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        for _ in 0..100 {
            if let Some(generator) = &own {
                generator.send(256).unwrap();
            }
            forward(left.as_mut(), right.as_mut(), &pool, &mut batch);
        }
    }
    let (since, before, ran) = measured.unwrap();
    let frames = (received("h2") - before) as f64;
    let (rate, time) = (frames / since.elapsed().as_secs_f64(), (run_time(thread) - ran) as f64 / frames);
    stop.store(true, Ordering::Relaxed);
    if let Some(thread) = other {
        thread.join().unwrap();
    }
    println!("{kind}: {:.3} Mpps, {time:.0} ns of the forwarding thread per frame", rate / 1e6);
    if let Some((left, right, _)) = &mut opened {
        println!("in  {:?}\nout {:?}", left.counters(), right.counters());
    }
}
