//! Packet, port and clock for tests.

pub use millrace_schedule::*;
pub use millrace_units::Instant;
pub use proptest::prelude::*;

/// Packet of a flow, numbered in the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub flow: u32,
    pub number: u32,
    pub length: u32,
    /// Whether the sender is ECN-capable, and whether the packet carries an ECN mark.
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

/// Creates a port without link overhead. Without a rate, it sends at every call.
pub fn port(rate: Option<u64>) -> Port {
    let link = LinkRate { rate: rate.map(Rate), slack: 0 };
    LinkScheduler::new(link, LinkOverhead::None, BufferLimits::default()).unwrap()
}

pub fn add(port: &mut Port, node: u32, parent: impl Into<Option<u32>>, share: Share, kind: NodeKind) {
    port.edit().add(NodeId(node), parent.into().map(NodeId), share, &kind, Instant::ZERO).unwrap();
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

/// Enqueues a packet, and asserts that it stays.
pub fn put(port: &mut Port, node: u32, frame: Frame, now: u64) {
    assert!(port.enqueue(NodeId(node), FlowNumber(frame.flow), frame, at(now), &mut never));
}

/// Arrival: time, node and packet.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: u64,
    pub node: u32,
    pub frame: Frame,
}

/// Packet sent, and the start of its transmission.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: u64,
    pub frame: Frame,
}

/// Runs a port on arrivals, sorted by time, until `until` or until all packets are sent.
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

/// Returns the bytes of a flow sent in a time range.
pub fn bytes(sent: &[Sent], flow: u32, from: u64, to: u64) -> u64 {
    let inside = sent.iter().filter(|sent| sent.at >= from && sent.at < to && sent.frame.flow == flow);
    inside.map(|sent| u64::from(sent.frame.length)).sum()
}
