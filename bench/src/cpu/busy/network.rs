//! Delay of a plain flow between network namespaces, through Millrace beside busy principals and through the kernel.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use super::super::failed;
use super::PRINCIPALS;
use crate::interrupt::check;
use crate::plugins::module;
use crate::statistics::median;
use crate::testbed::network::{Network, RECEIVER};
use crate::testbed::process::{Processor, beside, on_processor};
use crate::testbed::router::{OWN_PROCESSOR, Router};
use crate::testbed::scratch::Scratch;
use crate::testbed::timed_packets::{delays_of, stamped};
use crate::{BenchError, Measurement, Options};

/// Processor of the hosts, and of the worker.
const HOSTS: Processor = 0;
const ROUTER: Processor = OWN_PROCESSOR;
/// Packets of the plain flow per second: fewer than in memory, because both hosts share a processor.
const RATE: u32 = 20_000;
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);
/// Duration of a run, and number of runs of each router.
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
/// Time until all principals are backlogged, and after which a packet counts as lost.
const WARM_UP: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(300);
/// UDP port of the plain flow, and of the first principal's flow.
const PLAIN: u16 = 9_000;
const FIRST: u16 = 10_000;
/// Iterations of the plugin for each packet, about a millisecond; and time between packets of a principal: more work
/// than a processor can do.
const WORK: u32 = 1_000_000;
const PAUSE: Duration = Duration::from_millis(4);

/// Lost packets of a run, and the median of the delays in microseconds.
struct Seen {
    lost: f64,
    delay: f64,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if std::thread::available_parallelism().map_or(1, usize::from) <= ROUTER {
        (options.progress)("busy: without a second processor, the kernel's forwarding is not measured");
        return Ok(Vec::new());
    }
    let network = Network::new()?;
    let (mut ours, mut kernel) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        kernel.push(measure(&network)?);
        let router = start(options, &network)?;
        ours.push(with_busy_principals(&network, || measure(&network))?);
        router.stop()?;
    }
    let of = |runs: &[Seen], figure: fn(&Seen) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
    let (delays, others) = (of(&ours, |seen| seen.delay), of(&kernel, |seen| seen.delay));
    (options.progress)(&format!(
        "busy, veth: median delay {:.1} us, {:.1} us through the kernel",
        median(&delays),
        median(&others)
    ));
    Ok(vec![
        Measurement::median_of("busy, veth, median delay", &delays, "us").beside_runs("kernel", &others),
        Measurement::median_of("busy, veth, lost packets", &of(&ours, |seen| seen.lost), "packets")
            .beside_runs("kernel", &of(&kernel, |seen| seen.lost)),
    ])
}

/// Starts a router with a sandboxed plugin and principals for its flows.
fn start(options: &Options<'_>, network: &Network) -> Result<Router, BenchError> {
    let scratch = Scratch::new()?;
    let module = scratch.write("burns.wasm", module!("burns"))?;
    let router = Router::start_alone(&options.binary, network)?;
    router.tell(&["plugin", "load", &module])?;
    for number in 0..PRINCIPALS {
        let name = format!("p{number}");
        let filter = format!("proto udp dport {}", u32::from(FIRST) + number);
        router.tell(&["principal", "add", &name, "weight=1"])?;
        router.tell(&["instance", "create", "bench", &name])?;
        router.tell(&["bind", &name, "--gate", "process", "--filter", &filter, "--principal", &name])?;
        check()?;
    }
    Ok(router)
}

/// Runs `work` while the flows of all principals are sent.
fn with_busy_principals<T>(
    network: &Network,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let socket = network.g.within(|| UdpSocket::bind("0.0.0.0:0"))?.map_err(failed)?;
    let stop = AtomicBool::new(false);
    // The plugin reads the iterations from byte 44 of the frame.
    let mut payload = [0; 64];
    payload[2..6].copy_from_slice(&WORK.to_le_bytes());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            beside(HOSTS, || {
                while !stop.load(Ordering::Relaxed) {
                    for port in (FIRST..).take(PRINCIPALS as usize) {
                        // An ICMP error of an earlier packet is no reason to stop.
                        let _ = socket.send_to(&payload, (RECEIVER, port));
                    }
                    std::thread::sleep(PAUSE);
                }
            })
        });
        std::thread::sleep(WARM_UP);
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Sends the plain flow for [`TIME`].
fn measure(network: &Network) -> Result<Seen, BenchError> {
    let receiver = network.s.within(|| UdpSocket::bind((RECEIVER, PLAIN)))?.map_err(failed)?;
    receiver.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let sender = network.g.within(|| UdpSocket::bind("0.0.0.0:0"))?.map_err(failed)?;
    let start = Clock::now();
    let (sent, delays) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| on_processor(HOSTS, || delays_of(&receiver, start)));
        let sent = beside(HOSTS, || send(&sender, start));
        let delays = receiving.join().map_err(|_| failed("a thread panicked"))??;
        Ok::<_, BenchError>((sent?, delays))
    })?;
    check()?;
    if delays.is_empty() {
        return Err(failed("no packet of the plain flow arrived"));
    }
    Ok(Seen { lost: sent.saturating_sub(delays.len() as u64) as f64, delay: median(&delays) * 1e3 })
}

/// Sends a packet with the time since `clock` in each interval. Returns the number of packets.
fn send(sender: &UdpSocket, clock: Clock) -> u64 {
    let (start, mut sent, mut due) = (Clock::now(), 0, Clock::now());
    while start.elapsed() < TIME && check().is_ok() {
        while Clock::now() < due {
            std::thread::yield_now();
        }
        due += INTERVAL;
        let packet = stamped::<64>(clock);
        sent += u64::from(sender.send_to(&packet, (RECEIVER, PLAIN)).is_ok());
    }
    sent
}
