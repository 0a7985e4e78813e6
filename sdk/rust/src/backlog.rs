//! Backlog of a packet: packets that wait in its queue, for the instance, and for the processor of the principal
//! that pays for the call.

use core::time::Duration;

use millrace_plugin_abi::binary::{NO_ALLOWANCE, RawBacklog, backlog};

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

/// Principal that pays for the call, at the start of the call or of its latest slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayerBacklog {
    /// Number of packets of all its flows that wait for the processor at this worker, without those of the
    /// call.
    pub packets: u32,
    /// Bytes of these packets, link headers included.
    pub bytes: u64,
    /// Processor time that the principal has left until others get their turn; `None` if the router can't measure
    /// it. A call that takes longer reduces the next slices of the principal.
    pub allowance: Option<Duration>,
}

/// Backlog of a packet: packets that wait in its queue, for the instance, and for the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Backlog of the packet's queue; `None` if the queue is not known yet or belongs to another worker.
    pub queue: Option<QueueBacklog>,
    /// Number of packets that arrived during the instance's current call and wait for its end.
    pub instance_packets: u32,
    /// Bytes of these packets, link headers included.
    pub instance_bytes: u64,
    /// Principal that pays for the call; `None` if nobody pays, or if the router is older than this value.
    pub payer: Option<PayerBacklog>,
}

impl Backlog {
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn raw(self) -> RawBacklog {
        let Self { queue, instance_packets, instance_bytes, payer } = self;
        let size = core::mem::size_of::<RawBacklog>() as u16;
        let allowance = payer.and_then(|payer| u64::try_from(payer.allowance?.as_nanos()).ok());
        let own = RawBacklog {
            size,
            instance_packets,
            instance_bytes,
            payer_packets: payer.map_or(0, |payer| payer.packets),
            payer_bytes: payer.map_or(0, |payer| payer.bytes),
            allowance: allowance.unwrap_or(NO_ALLOWANCE),
            paid: payer.is_some().into(),
            ..RawBacklog::default()
        };
        let Some(QueueBacklog { port, queue, of_flow, packets, bytes }) = queue else { return own };
        let of = if of_flow { backlog::FLOW } else { backlog::LEAF };
        RawBacklog { of, port, queue, packets, bytes, ..own }
    }

    pub(crate) fn of(raw: RawBacklog) -> Self {
        let RawBacklog { of, port, queue, packets, bytes, instance_packets, instance_bytes, .. } = raw;
        let allowance = (raw.allowance != NO_ALLOWANCE).then(|| Duration::from_nanos(raw.allowance));
        let payer = PayerBacklog { packets: raw.payer_packets, bytes: raw.payer_bytes, allowance };
        let known = QueueBacklog { port, queue, of_flow: of == backlog::FLOW, packets, bytes };
        Self {
            queue: (of != backlog::UNKNOWN).then_some(known),
            instance_packets,
            instance_bytes,
            payer: (raw.paid != 0).then_some(payer),
        }
    }
}
