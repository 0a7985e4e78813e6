//! Port: the link scheduler with the curves of the flows, and other packets without an end.

use millrace_schedule::{
    BufferLimits, Curves, FlowNumber, Item, LinkOverhead, LinkRate, LinkScheduler, NodeId, NodeKind,
    QueueSettings, Rate, Share,
};
use millrace_units::Instant;

use super::flows::{Flow, LINK};
use super::{LONGEST, RATE, SimulationError};

/// Packet on the way to the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub flow: usize,
    /// Arrival at the router in nanoseconds.
    pub arrival: u64,
    /// Bytes on the wire.
    pub bytes: u32,
}

impl Item for Frame {
    fn length(&self) -> u32 {
        self.bytes
    }

    fn mark_congestion(&mut self) -> bool {
        false
    }
}

pub(super) struct Port {
    scheduler: LinkScheduler<Frame>,
    /// Number of the traffic without a deadline: one more than the last flow's.
    other: usize,
    next: u64,
}

impl Port {
    pub fn new(flows: &[Flow]) -> Result<Self, SimulationError> {
        let link = LinkRate { rate: Some(Rate(RATE)), slack: 0 };
        let mut scheduler = LinkScheduler::new(link, LinkOverhead::None, BufferLimits::default())?;
        let root = NodeId(flows.len() as u32 + 1);
        let fifo = NodeKind::Fifo(QueueSettings::default());
        scheduler.edit().add(root, None, Share::Only, &NodeKind::Hfsc, Instant::ZERO)?;
        for (number, flow) in (0..).zip(flows) {
            let Some(curve) = flow.grant.curve(LINK) else { continue };
            let share = Share::Curves(Curves { real_time: Some(curve), ..Curves::default() });
            scheduler.edit().add(NodeId(number), Some(root), share, &fifo, Instant::ZERO)?;
        }
        let share = Share::Curves(Curves::sharing(Rate(RATE)));
        scheduler.edit().add(NodeId(flows.len() as u32), Some(root), share, &fifo, Instant::ZERO)?;
        let mut port = Self { scheduler, other: flows.len(), next: 0 };
        (0..2).for_each(|_| port.add_other(0));
        Ok(port)
    }

    fn add_other(&mut self, now: u64) {
        self.arrive(Frame { flow: self.other, arrival: now, bytes: LONGEST }, now);
    }

    /// Queues a packet. Returns whether it stays: the queue of a flow that sends too much overflows.
    pub fn arrive(&mut self, frame: Frame, now: u64) -> bool {
        let (node, flow) = (NodeId(frame.flow as u32), FlowNumber(frame.flow as u32));
        self.scheduler.enqueue(node, flow, frame, Instant::from_nanos(now), &mut |_, _| {})
    }

    /// Returns the time at which the link is free, in nanoseconds.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Sends a packet. Returns a flow's packet, with the end of its transmission in nanoseconds.
    pub fn send(&mut self, now: u64) -> Option<(Frame, u64)> {
        let sent = self.scheduler.dequeue(Instant::from_nanos(now), &mut |_, _| {});
        self.next = self.scheduler.next_ready().as_nanos().max(now + 1);
        let frame = sent?;
        if frame.flow == self.other {
            self.add_other(now);
            return None;
        }
        Some((frame, now + Rate(RATE).time_for(frame.bytes.into())))
    }
}
