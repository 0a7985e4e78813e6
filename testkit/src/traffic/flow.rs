//! Flow of numbered UDP packets at a steady pace, with a report of its losses and delays.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::namespace::Namespace;

/// Minimum payload in bytes. It holds the packet number and the sending time.
const HEADER: usize = 16;
/// Time for which the receiver still listens after the last packet was sent.
const AFTER: Duration = Duration::from_millis(500);
/// Maximum number of packets of a flow: enough for days at any pace. The receiver needs one bit per packet.
const MOST: u64 = 1 << 32;
/// Maximum number of packets that the sender sends at once after a pause. A veth device holds only 256
/// packets, and would drop further ones before the tested router.
const BURST: u32 = 32;
/// Size of the receive buffer in bytes. It holds packets that arrive while other threads occupy the
/// receiver's processor.
const WAITING: usize = 16 << 20;

/// Running flow of numbered UDP packets. [`finish`](Flow::finish) or dropping it ends the flow.
#[derive(Debug)]
pub struct Flow {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    interval: Duration,
    sender: Option<JoinHandle<u64>>,
    receiver: Option<JoinHandle<Tally>>,
}

/// Count of the arrived packets, updated during the flow.
#[derive(Debug, Default)]
struct Tally {
    /// Bit field with one bit for each packet number that has arrived.
    seen: Vec<u64>,
    received: u64,
    duplicated: u64,
    reordered: u64,
    highest: Option<u64>,
    longest_delay: Duration,
    slowest_sent: Duration,
}

/// Results of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// Number of sent packets.
    pub sent: u64,
    /// Number of different packets received.
    pub received: u64,
    /// Number of repeated arrivals of packets that had already arrived.
    pub duplicated: u64,
    /// Number of packets that arrived after a packet with a higher number.
    pub reordered: u64,
    /// Longest run of consecutive lost packets, as the time to send them at the flow's pace.
    pub longest_loss: Duration,
    /// Number of all lost packets, as the time to send them at the flow's pace.
    pub total_loss: Duration,
    /// Longest delay of a packet. Pauses of the sender on a busy machine count as neither loss nor delay.
    pub longest_delay: Duration,
    /// Time from the start of the flow until the packet with this delay was sent.
    pub slowest_sent: Duration,
}

impl FlowReport {
    /// Returns the number of lost packets.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

impl Flow {
    /// Starts to send `rate` packets per second, with `payload` bytes each (16 or more). They go from the
    /// host `from` to the address `to` at the host `at`. A busy machine may send fewer.
    ///
    /// # Panics
    /// The sockets can't be opened.
    pub fn start(from: &Namespace, at: &Namespace, to: SocketAddr, rate: u32, payload: usize) -> Self {
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let receiver = at.within(|| UdpSocket::bind(to)).unwrap_or_else(|error| panic!("{to}: {error}"));
        setsockopt(&receiver, RcvBufForce, &WAITING).expect("a large buffer, as root may have");
        let sender = from.within(|| UdpSocket::bind((any, 0))).expect("a UDP socket");
        sender.connect(to).unwrap_or_else(|error| panic!("{to}: {error}"));
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (sent, received) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let interval = Duration::from_secs(1) / rate;
        let start = Instant::now();
        let sending = {
            let (stop, sent) = (stop.clone(), sent.clone());
            std::thread::spawn(move || send(&sender, (start, interval), payload.max(HEADER), &stop, &sent))
        };
        let receiving = {
            let (done, received) = (done.clone(), received.clone());
            std::thread::spawn(move || receive(&receiver, start, &done, &received))
        };
        Self { stop, done, sent, received, interval, sender: Some(sending), receiver: Some(receiving) }
    }

    /// Returns the number of packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of packets received so far, including duplicates.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits for `time` while the flow continues.
    pub fn go_on(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Waits until a packet arrives.
    ///
    /// # Panics
    /// No packet arrives within 5 s.
    pub fn wait_for_arrival(&self) {
        let before = self.received();
        crate::wait::eventually("a packet of the flow arrives", Duration::from_secs(5), || {
            (self.received() > before).then_some(())
        });
    }

    /// Stops sending, waits for packets in flight, and returns the report.
    ///
    /// # Panics
    /// A thread of the flow has panicked.
    pub fn finish(mut self) -> FlowReport {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.take().map_or(0, |thread| thread.join().expect("the sender"));
        std::thread::sleep(AFTER);
        self.done.store(true, Ordering::Relaxed);
        let tally =
            self.receiver.take().map_or_else(Tally::default, |thread| thread.join().expect("the receiver"));
        tally.report(sent, self.interval)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.done.store(true, Ordering::Relaxed);
    }
}

fn send(
    socket: &UdpSocket,
    (start, interval): (Instant, Duration),
    payload: usize,
    stop: &AtomicBool,
    count: &AtomicU64,
) -> u64 {
    let mut bytes = vec![0x5a; payload];
    let mut number = 0_u64;
    let mut due = start;
    while !stop.load(Ordering::Relaxed) && number < MOST {
        let now = Instant::now();
        std::thread::sleep(due.saturating_duration_since(now));
        due = due.max(now.checked_sub(interval * BURST).unwrap_or(now)) + interval;
        let now = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..HEADER].copy_from_slice(&now.to_be_bytes());
        // Sending fails if an ICMP error for an earlier packet has arrived. The packet was not sent then, so
        // its number is used again.
        if socket.send(&bytes).is_ok() {
            number += 1;
            count.store(number, Ordering::Relaxed);
        }
    }
    number
}

fn receive(socket: &UdpSocket, start: Instant, done: &AtomicBool, count: &AtomicU64) -> Tally {
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let mut tally = Tally::default();
    let mut bytes = [0; 65_536];
    while !done.load(Ordering::Relaxed) {
        let Ok(length) = socket.recv(&mut bytes) else { continue };
        let field = |at: usize| bytes[..length].get(at..)?.first_chunk().copied().map(u64::from_be_bytes);
        if let (Some(number), Some(sent)) = (field(0).filter(|number| *number < MOST), field(8)) {
            let sent = Duration::from_nanos(sent);
            tally.add(number, sent, start.elapsed().saturating_sub(sent));
            count.store(tally.received + tally.duplicated, Ordering::Relaxed);
        }
    }
    tally
}

impl Tally {
    /// Counts an arrived packet, with the time at which it was sent and its delay.
    fn add(&mut self, number: u64, sent: Duration, delay: Duration) {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        self.received += u64::from(is_new);
        self.duplicated += u64::from(!is_new);
        self.reordered += u64::from(self.highest.is_some_and(|highest| number < highest));
        self.highest = self.highest.max(Some(number));
        if delay > self.longest_delay {
            (self.longest_delay, self.slowest_sent) = (delay, sent);
        }
    }

    fn has(&self, number: u64) -> bool {
        self.seen.get((number / 64) as usize).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn report(&self, sent: u64, interval: Duration) -> FlowReport {
        let time = |packets: u64| interval.saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX));
        let (mut run, mut longest) = (0, 0);
        for number in 0..sent {
            run = if self.has(number) { 0 } else { run + 1 };
            longest = longest.max(run);
        }
        FlowReport {
            sent,
            received: self.received,
            duplicated: self.duplicated,
            reordered: self.reordered,
            longest_loss: time(longest),
            total_loss: time(sent.saturating_sub(self.received)),
            longest_delay: self.longest_delay,
            slowest_sent: self.slowest_sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_repetitions_and_delays_are_found() {
        let mut tally = Tally::default();
        for (number, ms) in [(0, 1), (1, 1), (5, 50), (4, 2), (5, 3)] {
            tally.add(number, Duration::from_millis(10 * number), Duration::from_millis(ms));
        }
        let report = tally.report(8, Duration::from_millis(10));
        let expected = FlowReport {
            sent: 8,
            received: 4,
            duplicated: 1,
            reordered: 1,
            longest_loss: Duration::from_millis(20),
            total_loss: Duration::from_millis(40),
            longest_delay: Duration::from_millis(50),
            slowest_sent: Duration::from_millis(50),
        };
        assert_eq!(report, expected);
        assert_eq!(report.lost(), 4);
    }

    #[test]
    fn a_flow_in_which_nothing_arrived_is_lost_as_a_whole() {
        let report = Tally::default().report(5, Duration::from_millis(2));
        let time = Duration::from_millis(10);
        assert_eq!((report.lost(), report.longest_loss, report.total_loss), (5, time, time));
    }

    #[test]
    fn a_flow_of_an_hour_and_more_is_counted_whole_in_little_memory() {
        let mut tally = Tally::default();
        let packets = 5_000_000;
        (0..packets)
            .filter(|number| *number != 4_000_000)
            .for_each(|number| tally.add(number, Duration::ZERO, Duration::ZERO));
        let report = tally.report(packets, Duration::from_millis(1));
        assert_eq!((report.received, report.longest_loss), (packets - 1, Duration::from_millis(1)));
        assert!(tally.seen.len() * 8 < 1 << 20, "{} words", tally.seen.len());
    }
}
