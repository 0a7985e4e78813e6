//! Backlog of a packet: packets that wait in its queue and for the instance.

use millrace_plugin_abi::binary::{RawBacklog, backlog};

/// Current backlog of the queue in which the packet will wait, as far as it is known now. A later filter or
/// instance may still select another queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBacklog {
    /// Number of the packet's egress port.
    pub port: u16,
    /// Scheduler leaf of the packet, as in [`Verdict::Queue`](crate::Verdict::Queue); 0 if the port has no
    /// scheduler.
    pub queue: u16,
    /// Whether `packets` and `bytes` count only the packet's flow. Otherwise they count all flows in the
    /// leaf.
    pub of_flow: bool,
    /// Number of waiting packets.
    pub packets: u32,
    /// Bytes of the waiting packets, link headers included.
    pub bytes: u64,
}

/// Backlog of a packet: packets that wait in its queue and for the instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backlog {
    /// Backlog of the packet's queue; `None` if the queue is not known yet or belongs to another worker.
    pub queue: Option<QueueBacklog>,
    /// Number of packets that arrived during the instance's current call and wait for its end.
    pub instance_packets: u32,
    /// Bytes of these packets, link headers included.
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
