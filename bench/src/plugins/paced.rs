//! Two ports in memory: one generates packets at a fixed pace, the other receives them and measures each
//! packet's delay.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant as Clock};

use millrace_packet::{Batch, Pool};
use millrace_port::{Capabilities, Mode, Port, PortCounters};
use millrace_units::Instant;
use millrace_wire::MacAddr;

/// State that the generating and the receiving port share.
struct Wire {
    start: Clock,
    /// Template of each flow; each flow sends one packet per interval.
    templates: Vec<Vec<u8>>,
    interval: Duration,
    /// Number of packets of each flow so far.
    sent: u64,
    /// Number of packets of the current interval that are not sent yet.
    left: usize,
    /// Delays of the first flow's packets in nanoseconds.
    delays: Vec<u64>,
}

/// Port that generates packets at a fixed pace, or port that receives them.
pub(super) struct Paced {
    wire: Rc<RefCell<Wire>>,
    /// Whether the port generates packets; otherwise it receives them.
    gives: bool,
    capabilities: Capabilities,
    counters: PortCounters,
}

/// Counts and delays of the packets.
pub(super) struct Arrivals(Rc<RefCell<Wire>>);

/// Creates two ports. The first generates one packet per template in each interval; the second receives the
/// packets. The first port writes a time stamp into the last 8 bytes of each packet. [`Arrivals`] has the
/// results.
pub(super) fn paced(
    templates: Vec<Vec<u8>>,
    interval: Duration,
    macs: [MacAddr; 2],
) -> ([Paced; 2], Arrivals) {
    let start = Clock::now();
    let (sent, left, delays) = (0, 0, Vec::with_capacity(1 << 20));
    let wire = Rc::new(RefCell::new(Wire { start, templates, interval, sent, left, delays }));
    let port = |(mac, gives)| Paced {
        wire: wire.clone(),
        gives,
        capabilities: Capabilities {
            driver: "paced",
            mode: Mode::InProcess,
            why: String::new(),
            mac,
            mtu: 1500,
            ifindex: None,
        },
        counters: PortCounters::default(),
    };
    let [input, output] = macs;
    ([(input, true), (output, false)].map(port), Arrivals(wire.clone()))
}

impl Arrivals {
    /// Discards the results so far, and restarts the measurement.
    pub fn restart(&self) {
        let mut wire = self.0.borrow_mut();
        (wire.start, wire.sent, wire.left) = (Clock::now(), 0, 0);
        wire.delays.clear();
    }

    /// Returns the results of the first flow: number of sent and of arrived packets, median delay, and 99th
    /// percentile of the delay. Delays are in microseconds.
    pub fn of_first(&self) -> (u64, u64, f64, f64) {
        let mut wire = self.0.borrow_mut();
        wire.delays.sort_unstable();
        let delay = |percent: usize| {
            let rank = wire.delays.len() * percent / 100;
            wire.delays
                .get(rank.min(wire.delays.len().saturating_sub(1)))
                .map_or(0.0, |delay| *delay as f64 / 1e3)
        };
        (wire.sent, wire.delays.len() as u64, delay(50), delay(99))
    }

    /// Returns the delays of the first flow's arrived packets in microseconds.
    pub fn delays_of_first(&self) -> Vec<f64> {
        self.0.borrow().delays.iter().map(|delay| *delay as f64 / 1e3).collect()
    }
}

impl Wire {
    fn due(&self) -> bool {
        self.left > 0 || self.start.elapsed() >= self.interval.saturating_mul(self.sent as u32)
    }
}

impl Port for Paced {
    fn receive(&mut self, pool: &Pool, _now: Instant, batch: &mut Batch) {
        let mut wire = self.wire.borrow_mut();
        while self.gives && batch.room() > 0 && wire.due() {
            if wire.left == 0 {
                (wire.sent, wire.left) = (wire.sent + 1, wire.templates.len());
            }
            let flow = wire.templates.len() - wire.left;
            wire.left -= 1;
            self.counters.received += 1;
            let due = wire.interval.saturating_mul((wire.sent - 1) as u32);
            let Some(mut packet) = pool.packet_from(&wire.templates[flow]) else { continue };
            let data = packet.data_mut();
            let at = data.len() - 8;
            data[at..].copy_from_slice(&(due.as_nanos() as u64).to_be_bytes());
            let _ = batch.push(packet);
        }
    }

    fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        let mut wire = self.wire.borrow_mut();
        let (now, first) = (wire.start.elapsed().as_nanos() as u64, wire.templates[0][26..30].to_vec());
        for packet in batch.drain() {
            self.counters.transmitted += 1;
            let data = packet.data();
            let due = data.last_chunk().copied().map(u64::from_be_bytes).unwrap_or_default();
            if data.get(26..30) == Some(&first) {
                wire.delays.push(now.saturating_sub(due));
            }
        }
    }

    fn flush(&mut self, _pool: &Pool, _now: Instant) {}

    fn counters(&mut self) -> PortCounters {
        self.counters.clone()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}
