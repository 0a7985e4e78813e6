//! A packet, a port and a clock for tests.

pub use millrace_schedule::*;
pub use millrace_units::Instant;
pub use proptest::prelude::*;

/// A packet of a flow, numbered in the order of its arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub flow: u32,
    pub number: u32,
    pub length: u32,
    /// Whether its sender understands marks, and whether it carries one.
    pub capable: bool,
    pub marked: bool,
}

impl Item for Frame {
    fn length(&self) -> u32 {
        self.length
    }

    fn mark_congestion(&mut self) -> bool {
        self.marked |= self.capable;
        self.capable
    }
}

pub fn frame(flow: u32, number: u32, length: u32) -> Frame {
    Frame { flow, number, length, capable: false, marked: false }
}

pub type Port = LinkScheduler<Frame>;

/// A port without overhead; no rate sends whenever asked.
pub fn port(rate: Option<u64>) -> Port {
    let link = LinkRate { rate: rate.map(Rate), slack: 0 };
    LinkScheduler::new(link, LinkOverhead::None, BufferLimits::default()).unwrap()
}

pub fn add(port: &mut Port, node: u32, parent: impl Into<Option<u32>>, share: Share, kind: NodeKind) {
    port.add(NodeId(node), parent.into().map(NodeId), share, &kind, Instant::ZERO).unwrap();
}

pub fn fifo() -> NodeKind {
    NodeKind::Fifo(QueueSettings { threshold: 1 << 30, aqm: Aqm::TailDrop })
}

pub fn never(frame: Frame, cause: DropCause) {
    panic!("{frame:?} dropped: {cause}");
}

pub fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanos(nanoseconds)
}

/// Puts a packet in that must stay.
pub fn put(port: &mut Port, node: u32, frame: Frame, now: u64) {
    assert!(port.enqueue(NodeId(node), FlowNumber(frame.flow), frame, at(now), &mut never));
}

/// An arrival: when, at which node, and what.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: u64,
    pub node: u32,
    pub frame: Frame,
}

/// A packet that was sent, and when its sending began.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: u64,
    pub frame: Frame,
}

/// Runs a port over arrivals, which are in order of time, until `until` or all is sent.
pub fn run(port: &mut Port, arrivals: &[Arrival], until: u64) -> Vec<Sent> {
    let (mut sent, mut next, mut now) = (Vec::new(), 0, 0);
    loop {
        while let Some(arrival) = arrivals.get(next).filter(|arrival| arrival.at <= now) {
            put(port, arrival.node, arrival.frame.clone(), now);
            next += 1;
        }
        while let Some(frame) = port.dequeue(at(now), &mut never) {
            sent.push(Sent { at: now, frame });
        }
        let ready = port.next_ready().as_nanos();
        assert!(ready > now, "ready at {ready}, but nothing came at {now}");
        let arrival = arrivals.get(next).map_or(u64::MAX, |arrival| arrival.at);
        now = ready.min(arrival);
        if now >= until {
            return sent;
        }
    }
}

/// Bytes of a flow among what was sent from one moment to another.
pub fn bytes(sent: &[Sent], flow: u32, from: u64, to: u64) -> u64 {
    let inside = sent.iter().filter(|sent| sent.at >= from && sent.at < to && sent.frame.flow == flow);
    inside.map(|sent| u64::from(sent.frame.length)).sum()
}
