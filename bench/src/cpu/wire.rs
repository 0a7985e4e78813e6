//! Ports in memory under the real clock. A flow arrives at a fixed pace in a receive ring of limited size, or
//! always has some packets in the router.
//!
//! The frames carry three numbers behind the UDP header: work for the plugin, number of the flow, and time of
//! arrival. The receiving port reads the last two.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant as Clock};

use millrace_packet::{Batch, Packet, Pool};
use millrace_port::{Capabilities, Mode, Port, PortCounters};
use millrace_units::Instant;
use millrace_wire::MacAddr;

use crate::memory::setup::{IN_MAC, MTU, OUT_MAC};

/// Number of packets that a port's receive ring holds.
const RING: usize = 2048;
/// Offsets of the numbers in a frame.
const WORK: usize = 44;
pub(crate) const FLOW: usize = 48;
pub(crate) const TIME: usize = 52;

/// Arrival pattern of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// A packet arrives after each interval, also if the ring is full.
    Every(Duration),
    /// This number of packets is in the router: a packet arrives for each packet that leaves.
    Window(u64),
}

/// Flow of equal packets to an input port.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Index of the input port.
    pub port: usize,
    /// Template of the packets.
    pub frame: Vec<u8>,
    pub pace: Pace,
    /// Work of the plugin for each packet, used in rotation; empty without work.
    pub work: Vec<u32>,
}

/// Packets of a flow so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Packets that have arrived at the router, including lost ones.
    pub sent: u64,
    /// Packets that have left the router.
    pub left: u64,
    /// Times of arrival and of departure in nanoseconds, for flows with an interval.
    pub times: Vec<[u64; 2]>,
}

/// State that all ports share.
struct State {
    /// Time from which packets arrive; `None` before it.
    start: Option<Clock>,
    /// Whether no more packets arrive.
    ended: bool,
    flows: Vec<Flow>,
    seen: Vec<Seen>,
    /// Bytes of all packets of flows that have left the router.
    left_bytes: u64,
    /// Receive ring of each input port: flow, and time of arrival.
    rings: Vec<VecDeque<(usize, u64)>>,
}

/// Port that receives packets from the wire, or sends packets to it.
pub(crate) struct End {
    state: Rc<RefCell<State>>,
    /// Index of the input port; `None` for the output port.
    input: Option<usize>,
    capabilities: Capabilities,
    counters: PortCounters,
}

/// Far end of all ports.
pub(crate) struct Wire(Rc<RefCell<State>>);

impl Wire {
    /// Creates a wire with flows to `inputs` input ports. No packet arrives before [`start`](Self::start).
    pub fn new(inputs: usize, flows: Vec<Flow>) -> Self {
        Self(Rc::new(RefCell::new(State {
            start: None,
            ended: false,
            seen: vec![Seen::default(); flows.len()],
            left_bytes: 0,
            flows,
            rings: vec![VecDeque::new(); inputs],
        })))
    }

    /// Returns the port of an input.
    pub fn input(&self, number: usize) -> Box<dyn Port> {
        self.end(Some(number), IN_MAC)
    }

    /// Returns the output port.
    pub fn output(&self) -> Box<dyn Port> {
        self.end(None, OUT_MAC)
    }

    fn end(&self, input: Option<usize>, mac: [u8; 6]) -> Box<dyn Port> {
        let (driver, mode, why) = ("wire", Mode::InProcess, String::new());
        let capabilities = Capabilities { driver, mode, why, mac: MacAddr(mac), mtu: MTU, ifindex: None };
        Box::new(End { state: self.0.clone(), input, capabilities, counters: PortCounters::default() })
    }

    /// Lets packets arrive from now on.
    pub fn start(&self) {
        self.0.borrow_mut().start = Some(Clock::now());
    }

    /// Lets no more packets arrive. Packets in the rings stay.
    pub fn end_arrivals(&self) {
        self.0.borrow_mut().ended = true;
    }

    /// Whether the receive rings are empty.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().rings.iter().all(VecDeque::is_empty)
    }

    /// Returns the bytes of all packets of flows that have left the router.
    pub fn left_bytes(&self) -> u64 {
        self.0.borrow().left_bytes
    }

    /// Returns the packets of a flow.
    pub fn seen(&self, flow: usize) -> Seen {
        self.0.borrow().seen.get(flow).cloned().unwrap_or_default()
    }
}

impl State {
    fn elapsed(&self) -> Option<u64> {
        Some(self.start?.elapsed().as_nanos() as u64)
    }

    /// Lets the packets arrive that are due at an input port.
    fn arrive(&mut self, input: usize) {
        let Some(now) = self.elapsed().filter(|_| !self.ended) else { return };
        while let Some((flow, due)) = self.next_due(input).filter(|(_, due)| *due <= now) {
            self.seen[flow].sent += 1;
            if self.rings[input].len() < RING {
                self.rings[input].push_back((flow, due));
            }
        }
        while self.top_up(input, now) {}
    }

    /// Returns the flow with an interval whose next packet is due first, and its time.
    fn next_due(&self, input: usize) -> Option<(usize, u64)> {
        let due = self.flows.iter().zip(&self.seen).enumerate().filter_map(|(number, (flow, seen))| {
            let Pace::Every(interval) = flow.pace else { return None };
            (flow.port == input).then(|| (number, seen.sent * interval.as_nanos() as u64))
        });
        due.min_by_key(|(_, due)| *due)
    }

    /// Adds a packet of each flow whose window has room. Returns whether there was any.
    fn top_up(&mut self, input: usize, now: u64) -> bool {
        let mut any = false;
        for (number, (flow, seen)) in self.flows.iter().zip(&mut self.seen).enumerate() {
            let Pace::Window(window) = flow.pace else { continue };
            if flow.port == input && seen.sent - seen.left < window && self.rings[input].len() < RING {
                seen.sent += 1;
                self.rings[input].push_back((number, now));
                any = true;
            }
        }
        any
    }

    /// Returns the next packet of an input port.
    fn next(&mut self, input: usize, pool: &Pool) -> Option<Packet> {
        let (number, due) = self.rings[input].pop_front()?;
        let flow = &self.flows[number];
        let mut packet = pool.packet_from(&flow.frame)?;
        let data = packet.data_mut();
        let place = self.seen[number].sent as usize % flow.work.len().max(1);
        if let Some(work) = flow.work.get(place) {
            data[WORK..FLOW].copy_from_slice(&work.to_le_bytes());
        }
        data[FLOW..TIME].copy_from_slice(&(number as u32).to_be_bytes());
        data[TIME..TIME + 8].copy_from_slice(&due.to_be_bytes());
        Some(packet)
    }

    /// Counts a packet that the router sends.
    fn leave(&mut self, packet: &Packet, now: u64) {
        let Some(numbers) = packet.data().get(FLOW..TIME + 8) else { return };
        let (Some(flow), Some(due)) = (numbers.first_chunk(), numbers.last_chunk()) else { return };
        let number = u32::from_be_bytes(*flow) as usize;
        let Some((flow, seen)) = self.flows.get(number).zip(self.seen.get_mut(number)) else { return };
        seen.left += 1;
        self.left_bytes += packet.data().len() as u64;
        if matches!(flow.pace, Pace::Every(_)) {
            seen.times.push([u64::from_be_bytes(*due), now]);
        }
    }
}

impl Port for End {
    fn receive(&mut self, pool: &Pool, _now: Instant, batch: &mut Batch) {
        let Some(input) = self.input else { return };
        let mut state = self.state.borrow_mut();
        state.arrive(input);
        while batch.room() > 0
            && let Some(packet) = state.next(input, pool)
        {
            self.counters.received += 1;
            // The loop condition ensures that there is room.
            let _ = batch.push(packet);
        }
    }

    fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        let mut state = self.state.borrow_mut();
        let now = state.elapsed().unwrap_or_default();
        for packet in batch.drain() {
            self.counters.transmitted += 1;
            state.leave(&packet, now);
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
