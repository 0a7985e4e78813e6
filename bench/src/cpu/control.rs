//! `control`: time of control operations, while 100 principals with busy plugins take all that core leaves.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use super::failed;
use crate::interrupt::check;
use crate::plugins::module;
use crate::testbed::network::Network;
use crate::testbed::router::Router;
use crate::testbed::scratch::Scratch;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of principals.
const PRINCIPALS: u16 = 100;
/// UDP port of the first principal's flow.
const PORT: u16 = 10_000;
/// Iterations of the plugin for each packet: about a millisecond.
const WORK: u32 = 1_000_000;
/// Packets of each flow per second: more work than a processor can do.
const RATE: u32 = 40;
/// Time until all principals are backlogged.
const WARM_UP: Duration = Duration::from_secs(2);
/// Number of operations of each kind.
const ROUNDS: usize = 20;
/// Longest time of an operation, in milliseconds, the client's start included.
const LONGEST: f64 = 100.0;

/// Operations; each undoes the one before it.
const OPERATIONS: [&[&str]; 5] = [
    &["route", "add", "192.0.2.0/24", "via", "10.2.0.1"],
    &["route", "remove", "192.0.2.0/24"],
    &["principal", "set", "p0", "weight=200"],
    &["principal", "set", "p0", "weight=100"],
    &["show", "promises"],
];

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let network = Network::new()?;
    let scratch = Scratch::new()?;
    let module = scratch.write("burns.wasm", module!("burns"))?;
    let router = Router::start(&options.binary, &network, None)?;
    router.tell(&["plugin", "load", &module])?;
    for number in 0..PRINCIPALS {
        let name = format!("p{number}");
        let filter = format!("proto udp dport {}", PORT + number);
        router.tell(&["principal", "add", &name, "weight=100"])?;
        router.tell(&["instance", "create", "bench", &name])?;
        router.tell(&["bind", &name, "--gate", "process", "--filter", &filter, "--principal", &name])?;
        check()?;
    }
    let idle = times(&router)?;
    let socket = network.g.within(|| UdpSocket::bind("10.1.0.1:0"))?.map_err(failed)?;
    let stop = AtomicBool::new(false);
    let busy = std::thread::scope(|scope| {
        scope.spawn(|| send(&socket, &stop));
        std::thread::sleep(WARM_UP);
        let measured = times(&router);
        stop.store(true, Ordering::Relaxed);
        measured
    })?;
    router.stop()?;
    let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    (options.progress)(&format!(
        "control: longest operation {:.1} ms beside {PRINCIPALS} busy principals, {:.1} ms beside idle ones",
        longest(&busy),
        longest(&idle)
    ));
    Ok(vec![
        Measurement::median_of("control, time of an operation", &busy, "ms")
            .beside_runs("idle principals", &idle),
        Measurement::of("control, longest operation", longest(&busy), "ms")
            .beside("idle principals", longest(&idle))
            .promising(Bound::AtMost, LONGEST),
    ])
}

/// Returns the time of each operation in milliseconds.
fn times(router: &Router) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::new();
    for operation in (0..ROUNDS).flat_map(|_| OPERATIONS) {
        check()?;
        let start = Clock::now();
        router.tell(operation)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// Sends the flows of all principals until `stop`.
fn send(socket: &UdpSocket, stop: &AtomicBool) {
    // The plugin reads the iterations from byte 44 of the frame.
    let mut payload = [0; 64];
    payload[2..6].copy_from_slice(&WORK.to_le_bytes());
    let pause = Duration::from_secs(1) / RATE;
    while !stop.load(Ordering::Relaxed) {
        for number in 0..PRINCIPALS {
            // An ICMP error of an earlier packet is no reason to stop.
            let _ = socket.send_to(&payload, ("10.2.0.1", PORT + number));
        }
        std::thread::sleep(pause);
    }
}
