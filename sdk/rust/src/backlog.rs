//! What waits before a packet.

use millrace_plugin_abi::binary::{RawBacklog, backlog};

/// What waits in the queue that a packet goes to, as of now: what comes later in its journey may send it elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBacklog {
    /// The port that it leaves by.
    pub port: u16,
    /// The leaf of the port's scheduler, as [`Verdict::Queue`](crate::Verdict::Queue) names it; 0 where the port has none.
    pub queue: u16,
    /// Whether only packets of its flow are counted; if not, those of all flows in the leaf.
    pub of_flow: bool,
    /// Packets that wait.
    pub packets: u32,
    /// Their bytes, link headers included.
    pub bytes: u64,
}

/// What waits before a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backlog {
    /// In its queue; `None` where its way is not known yet, or leads to no queue that its worker has.
    pub queue: Option<QueueBacklog>,
    /// Packets of all flows that wait for the instance to end the call that goes on.
    pub instance_packets: u32,
    /// Their bytes, link headers included.
    pub instance_bytes: u64,
}

impl Backlog {
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn raw(self) -> RawBacklog {
        let Self { queue, instance_packets, instance_bytes } = self;
        let size = core::mem::size_of::<RawBacklog>() as u16;
        let own = RawBacklog { size, instance_packets, instance_bytes, ..RawBacklog::default() };
        let Some(QueueBacklog { port, queue, of_flow, packets, bytes }) = queue else { return own };
        let of = if of_flow { backlog::FLOW } else { backlog::LEAF };
        RawBacklog { of, port, queue, packets, bytes, ..own }
    }

    pub(crate) fn of(raw: RawBacklog) -> Self {
        let RawBacklog { of, port, queue, packets, bytes, instance_packets, instance_bytes, .. } = raw;
        let known = QueueBacklog { port, queue, of_flow: of == backlog::FLOW, packets, bytes };
        Self { queue: (of != backlog::UNKNOWN).then_some(known), instance_packets, instance_bytes }
    }
}
