//! Flow of numbered packets at a steady pace. Records the arrival time of each packet.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_lab::within;

use crate::BenchError;
use crate::testbed::network::Namespace;

/// Interval between two packets: 10,000 packets per second.
pub(super) const INTERVAL: Duration = Duration::from_micros(100);
const PORT: u16 = 7000;
/// Read timeout of the receiver. After a timeout, it checks whether to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// Packet that has arrived, by number and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Number of the packet, in sending order from 0.
    pub number: u64,
    /// Time at which the packet was read from the socket.
    pub at: Instant,
}

/// Interruption of a flow: its length, and the number of lost packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Interruption {
    /// Length of the interruption: the greater of two times. The first is the longest time without an
    /// arrival, minus the interval between two packets. The second is the time in which the longest run of
    /// lost packets was sent.
    pub gap: Duration,
    /// Number of lost packets.
    pub lost: u64,
}

impl Interruption {
    /// Returns the interruption of a flow between two times, from its arrivals.
    pub fn between(arrivals: &[Arrival], from: Instant, to: Instant) -> Self {
        let within = |arrival: &&Arrival| arrival.at >= from && arrival.at <= to;
        let inside: Vec<Arrival> = arrivals.iter().filter(within).copied().collect();
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
            return Self { gap: to - from, lost: packets(to - from) };
        };
        // Times without arrivals at the begin and the end count, too.
        let ends = (first.at - from).max(to - last.at);
        let silence =
            inside.windows(2).map(|pair| pair[1].at - pair[0].at).max().unwrap_or_default().max(ends);
        let mut numbers: Vec<u64> = inside.iter().map(|arrival| arrival.number).collect();
        numbers.sort_unstable();
        let missing = || numbers.windows(2).map(|pair| (pair[1] - pair[0]).saturating_sub(1));
        let row = missing().max().unwrap_or(0);
        let row = INTERVAL.saturating_mul(u32::try_from(row).unwrap_or(u32::MAX));
        Self { gap: silence.saturating_sub(INTERVAL).max(row), lost: missing().sum() }
    }
}

/// Returns the arrival rate between two times, for intervals of 10 ms. Each point has the middle of the
/// interval in seconds since `zero`, and packets per second.
pub(super) fn arrival_rate(
    arrivals: &[Arrival],
    (from, to): (Instant, Instant),
    zero: Instant,
) -> Vec<[f64; 2]> {
    const EACH: Duration = Duration::from_millis(10);
    let mut counts = vec![0_u32; ((to - from).as_nanos() / EACH.as_nanos()) as usize];
    for arrival in arrivals.iter().filter(|arrival| arrival.at >= from) {
        let interval = ((arrival.at - from).as_nanos() / EACH.as_nanos()) as usize;
        if let Some(count) = counts.get_mut(interval) {
            *count += 1;
        }
    }
    let offset = from.saturating_duration_since(zero).as_secs_f64()
        - zero.saturating_duration_since(from).as_secs_f64();
    let point = |(interval, count): (usize, u32)| {
        [offset + (interval as f64 + 0.5) * EACH.as_secs_f64(), f64::from(count) / EACH.as_secs_f64()]
    };
    counts.into_iter().enumerate().map(point).collect()
}

fn packets(duration: Duration) -> u64 {
    (duration.as_nanos() / INTERVAL.as_nanos()) as u64
}

/// Flow from one host to another. Dropping it ends the flow.
#[derive(Debug)]
pub(super) struct NumberedFlow {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<Vec<Arrival>, BenchError>>>,
}

impl NumberedFlow {
    /// Starts a flow from the host `from` to the `address` of the host `to`.
    pub fn start(from: &Namespace, to: &Namespace, address: Ipv4Addr) -> Result<Self, BenchError> {
        let mut flow = Self { stop: Arc::default(), sent: Arc::default(), threads: Vec::new() };
        let target = SocketAddrV4::new(address, PORT);
        let receiver =
            to.within(|| UdpSocket::bind(target))?.map_err(BenchError::system(format!("bind {target}")))?;
        let patience = receiver.set_read_timeout(Some(PATIENCE));
        patience.map_err(BenchError::system("set a socket's timeout"))?;
        let stop = Arc::clone(&flow.stop);
        flow.threads.push(std::thread::spawn(move || {
            receive(&receiver, &stop).map_err(BenchError::system("receive a numbered packet"))
        }));
        let (stop, sent, name) = (Arc::clone(&flow.stop), Arc::clone(&flow.sent), from.name().to_owned());
        flow.threads.push(std::thread::spawn(move || {
            within(&name, || send(target, &stop, &sent))?
                .map_err(BenchError::system("send a numbered packet"))?;
            Ok(Vec::new())
        }));
        Ok(flow)
    }

    /// Ends the flow; returns the arrived packets.
    pub fn finish(mut self) -> Result<Vec<Arrival>, BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut arrivals = Vec::new();
        for thread in self.threads.drain(..) {
            arrivals.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(arrivals)
    }

    /// Returns the number of packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for NumberedFlow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Ignore the thread's error: the error that caused this drop is reported instead.
            let _ = thread.join();
        }
    }
}

/// Sends a packet at each multiple of the interval. After a delay, sends the missed packets at once.
fn send(target: SocketAddrV4, stop: &AtomicBool, sent: &AtomicU64) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // With the default timer slack, a sleep takes 50 µs longer than requested.
    let _ = nix::sys::prctl::set_timerslack(1);
    let (start, mut number) = (Instant::now(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        let due = packets(start.elapsed());
        while number <= due {
            match socket.send_to(&number.to_be_bytes(), target) {
                // While the router starts or stops, sending may fail. The packet then counts as lost.
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            number += 1;
        }
        sent.store(number, Ordering::Relaxed);
        let next = start + INTERVAL * u32::try_from(number).unwrap_or(u32::MAX);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
    ) || error.raw_os_error() == Some(libc::ENOBUFS)
}

fn receive(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<Vec<Arrival>> {
    let mut arrivals = Vec::with_capacity(1 << 17);
    let mut number = [0; 8];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv(&mut number) {
            Ok(8) => arrivals.push(Arrival { number: u64::from_be_bytes(number), at: Instant::now() }),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the arrivals of a steady flow. Packet n is `late(n)` microseconds late; it is missing if
    /// `lost(n)` is true.
    fn flow(start: Instant, lost: impl Fn(u64) -> bool, late: impl Fn(u64) -> u64) -> Vec<Arrival> {
        let at = |number: u64| start + INTERVAL * number as u32 + Duration::from_micros(late(number));
        (0..1000).filter(|number| !lost(*number)).map(|number| Arrival { number, at: at(number) }).collect()
    }

    fn of(arrivals: &[Arrival], start: Instant) -> (u128, u64) {
        let end = arrivals.last().map_or(start, |last| last.at);
        let found = Interruption::between(arrivals, start, end);
        (found.gap.as_micros(), found.lost)
    }

    #[test]
    fn a_flow_that_is_whole_has_no_gap() {
        let start = Instant::now();
        assert_eq!(of(&flow(start, |_| false, |_| 0), start), (0, 0));
    }

    #[test]
    fn lost_packets_are_a_gap() {
        let start = Instant::now();
        assert_eq!(of(&flow(start, |n| (100..150).contains(&n), |_| 0), start), (5000, 50));
    }

    #[test]
    fn packets_that_are_held_up_are_a_gap_though_none_is_lost() {
        let start = Instant::now();
        let late = |n: u64| if (100..150).contains(&n) { (150 - n) * 100 } else { 0 };
        assert_eq!(of(&flow(start, |_| false, late), start), (5000, 0));
    }

    #[test]
    fn the_rate_of_arrivals_falls_where_packets_are_missing() {
        let start = Instant::now();
        let arrivals = flow(start, |n| (100..200).contains(&n), |_| 0);
        let zero = start + Duration::from_millis(10);
        let rate = arrival_rate(&arrivals, (start, start + Duration::from_millis(30)), zero);
        let rounded: Vec<[i64; 2]> =
            rate.iter().map(|[at, rate]| [(at * 1e3).round() as i64, *rate as i64]).collect();
        assert_eq!(rounded, [[-5, 10_000], [5, 0], [15, 10_000]]);
    }

    #[test]
    fn silence_until_the_end_is_a_gap() {
        let start = Instant::now();
        let arrivals = flow(start, |n| n >= 500, |_| 0);
        let found = Interruption::between(&arrivals, start, start + INTERVAL * 1000);
        assert!(found.gap >= INTERVAL * 499, "{found:?}");
        let found = Interruption::between(&[], start, start + INTERVAL * 1000);
        assert_eq!(found, Interruption { gap: INTERVAL * 1000, lost: 1000 });
    }
}
