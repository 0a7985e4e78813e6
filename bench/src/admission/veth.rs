//! `veth`: flows with a deadline at 90 % of what is promised, through a full link between network namespaces.
//!
//! Flows are reserved until a request is refused. All of them then send at once, again and again, and other packets
//! without a reservation fill the link. Meanwhile further requests are refused. A packet is late if it takes longer
//! than its deadline and the jitter of the machine: the longest delay of the packets of one flow through a router
//! without other work.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use super::failed;
use crate::interrupt::check;
use crate::testbed::network::{Network, RECEIVER};
use crate::testbed::process::{Processor, beside};
use crate::testbed::router::{OWN_PROCESSOR, Router};
use crate::testbed::timed_packets::{delays_of, stamped};
use crate::{BenchError, Bound, Measurement, Options, Quantiles, Subject};

/// Processor of the hosts, and of the worker.
const HOSTS: Processor = 0;
const ROUTER: Processor = OWN_PROCESSOR;
/// Rate of the link in megabits per second.
const LINK: u32 = 20;
/// Promised longest time of a packet in the router.
const DEADLINE: Duration = Duration::from_millis(10);
/// Packets of a flow per second, as promised and as sent.
const PROMISED: u32 = 100;
const SENT: u32 = 90;
/// Promised minimum: part of the link that the flows' declared rates take, in percent.
const LEAST_PROMISED: f64 = 75.0;
/// Payload of a packet, and its size on the wire.
const PAYLOAD: usize = 934;
const SIZE: u32 = 1_000;
/// Processor time of a packet that is reserved.
const COST: &str = "20us";
/// Words of the error for a deadline that can't be kept.
const REFUSAL: &str = "no deadline: ";
/// Most flows: the link has room for fewer.
const MOST: u16 = 100;
/// UDP port of the first flow, and of the packets without a reservation.
const FIRST: u16 = 9_100;
const OTHERS: u16 = 9_000;
/// Interval of these: 25 Mb/s.
const FLOOD: Duration = Duration::from_micros(320);
/// Times of both runs, and the interval of requests that are refused.
const ALONE: Duration = Duration::from_secs(10);
const TIME: Duration = Duration::from_secs(60);
const ASKED: Duration = Duration::from_millis(500);
/// Time after which a packet counts as lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// Packets of a run.
struct Seen {
    sent: u64,
    /// Delays of the packets that arrived, in milliseconds.
    delays: Vec<f64>,
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if std::thread::available_parallelism().map_or(1, usize::from) <= ROUTER {
        return Err(failed("`veth` needs two processors"));
    }
    let network = Network::new()?;
    let router = start(options, &network)?;
    let alone = send(&network, 1, false, ALONE, || Ok(()))?;
    router.stop()?;
    let jitter = longest(&alone.delays);
    let router = start(options, &network)?;
    let reserved = reserve(&router)?;
    let mut refused = 0;
    let seen = send(&network, reserved, true, TIME, || {
        // The client may not take the worker's processor.
        if beside(HOSTS, || ask(&router, MOST))?? {
            return Err(failed("a request was granted although an equal one had been refused"));
        }
        refused += 1;
        Ok(())
    })?;
    router.stop()?;
    Ok(results(reserved, refused, jitter, &seen, options))
}

fn results(
    reserved: u16,
    refused: u64,
    jitter: f64,
    seen: &Seen,
    options: &mut Options<'_>,
) -> Vec<Measurement> {
    let deadline = DEADLINE.as_secs_f64() * 1e3;
    let late = seen.delays.iter().filter(|delay| **delay > deadline + jitter).count() as u64;
    let lost = seen.sent.saturating_sub(seen.delays.len() as u64);
    let most = longest(&seen.delays);
    let bits = f64::from(reserved) * f64::from(SIZE * 8 * PROMISED);
    let promised = bits / f64::from(LINK * 1_000_000) * 100.0;
    (options.progress)(&format!(
        "veth: {reserved} flows, {refused} more refused meanwhile; {} packets, longest {most:.2} ms of {deadline} ms, \
         jitter {jitter:.2} ms",
        seen.sent
    ));
    let distribution = Quantiles::of("delay, ms").with(Subject::Millrace, "reserved", &seen.delays);
    vec![
        Measurement::of("veth, part of the link that is promised as rates", promised, "%")
            .promising(Bound::AtLeast, LEAST_PROMISED),
        Measurement::of(
            "veth, packets later than deadline and jitter, or lost",
            (late + lost) as f64,
            "packets",
        )
        .promising(Bound::AtMost, 0.0),
        Measurement::of("veth, longest delay", most, "ms")
            .beside("jitter without other work", jitter)
            .with_distribution(distribution),
    ]
}

fn longest(delays: &[f64]) -> f64 {
    delays.iter().copied().fold(0.0, f64::max)
}

/// Starts a router whose second port has the rate of the link, with a plugin for the packets of all flows.
fn start(options: &Options<'_>, network: &Network) -> Result<Router, BenchError> {
    let router = Router::start_alone(&options.binary, network)?;
    let all = format!("proto udp dport {FIRST}-{}", FIRST + MOST);
    for arguments in [
        &["scheduler", "add", "r2", "rest", "--kind", "fifo"][..],
        &["scheduler", "set", "r2", &format!("rate={LINK}mbit"), "default=rest"],
        &["instance", "create", "statistics", "counts"],
        &["bind", "counts", "--gate", "monitor", "--filter", &all],
    ] {
        router.tell(arguments)?;
    }
    Ok(router)
}

/// Reserves flows until a request is refused. Returns their number.
fn reserve(router: &Router) -> Result<u16, BenchError> {
    for number in 0..MOST {
        check()?;
        if !ask(router, number)? {
            return Ok(number);
        }
    }
    Err(failed("every request was granted"))
}

/// Asks for a flow with a deadline. Returns whether it was granted.
///
/// # Errors
/// The request failed for another reason than that the deadline can't be kept.
fn ask(router: &Router, number: u16) -> Result<bool, BenchError> {
    let filter = format!("proto udp dport {}", FIRST + number);
    let (rate, size) = (PROMISED.to_string(), format!("{SIZE}B"));
    let deadline = format!("{}ms", DEADLINE.as_millis());
    let request = ["flow", "reserve", &filter, "--deadline", &deadline, "--rate", &rate, "--size", &size];
    match router.tell(&[&request[..], &["--cost", COST, "--port", "r2"]].concat()) {
        Ok(_) => Ok(true),
        Err(error) if error.to_string().contains(REFUSAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sends the packets of `flows` flows for `time`, all at once in each interval, and perhaps a flood beside them.
/// Calls `meanwhile` now and then. Returns the packets.
fn send(
    network: &Network,
    flows: u16,
    is_flooded: bool,
    time: Duration,
    mut meanwhile: impl FnMut() -> Result<(), BenchError>,
) -> Result<Seen, BenchError> {
    let opened = |error| BenchError::system("open a UDP socket")(error);
    let mut receivers = Vec::new();
    for number in 0..flows {
        let socket = network.s.within(|| UdpSocket::bind((RECEIVER, FIRST + number)))?.map_err(opened)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(opened)?;
        receivers.push(socket);
    }
    let _others = network.s.within(|| UdpSocket::bind((RECEIVER, OTHERS)))?.map_err(opened)?;
    let sender = network.g.within(|| UdpSocket::bind(("0.0.0.0", 0)))?.map_err(opened)?;
    let (start, done) = (Clock::now(), &AtomicBool::new(false));
    let (sender, receivers) = (&sender, &receivers);
    std::thread::scope(|scope| {
        let receiving: Vec<_> = receivers
            .iter()
            .map(|socket| scope.spawn(move || beside(HOSTS, || delays_of(socket, start))))
            .collect();
        let flooding = is_flooded.then(|| scope.spawn(move || beside(HOSTS, || flood(sender, start, done))));
        let sending = scope.spawn(move || beside(HOSTS, || send_flows(sender, flows, time, start)));
        let mut asked = Clock::now();
        let mut result = Ok(());
        while !sending.is_finished() && result.is_ok() {
            std::thread::sleep(Duration::from_millis(20));
            result = check();
            if asked.elapsed() > ASKED && result.is_ok() {
                result = meanwhile();
                asked = Clock::now();
            }
        }
        let panicked = |_| failed("a thread panicked");
        let sent = sending.join();
        done.store(true, Ordering::Relaxed);
        let sent = sent.map_err(panicked)??;
        flooding.map(|thread| thread.join().map_err(panicked)).transpose()?;
        let mut delays = Vec::new();
        for thread in receiving {
            delays.extend(thread.join().map_err(panicked)??);
        }
        result.map(|()| Seen { sent, delays })
    })
}

/// Sends a packet of each flow in each interval, with the time since `clock`. Returns the number of packets.
fn send_flows(sender: &UdpSocket, flows: u16, time: Duration, clock: Clock) -> u64 {
    let (start, interval) = (Clock::now(), Duration::from_secs(1) / SENT);
    let (mut sent, mut round) = (0, 0);
    while start.elapsed() < time && check().is_ok() {
        let due = start + interval * round;
        std::thread::sleep(due.saturating_duration_since(Clock::now()));
        round += 1;
        for number in 0..flows {
            let packet = stamped::<PAYLOAD>(clock);
            sent += u64::from(sender.send_to(&packet, (RECEIVER, FIRST + number)).is_ok());
        }
    }
    sent
}

/// Sends packets without a reservation, until `done`.
fn flood(sender: &UdpSocket, start: Clock, done: &AtomicBool) {
    let packet = [0; PAYLOAD];
    let mut due = start;
    while !done.load(Ordering::Relaxed) && check().is_ok() {
        std::thread::sleep(due.saturating_duration_since(Clock::now()));
        due += FLOOD;
        // A packet that can't be sent makes the flood smaller.
        let _ = sender.send_to(&packet, (RECEIVER, OTHERS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_are_late_or_lost_count() {
        let mut options =
            Options { binary: std::path::PathBuf::new(), workload: None, case: None, progress: &mut |_| {} };
        let seen = Seen { sent: 5, delays: vec![1.0, 10.5, 11.0, 12.1] };
        let results = results(20, 1, 2.0, &seen, &mut options);
        assert_eq!((results[0].ours, results[0].holds), (80.0, Some(true)));
        assert_eq!((results[1].ours, results[1].holds, results[2].ours), (2.0, Some(false), 12.1));
    }
}
