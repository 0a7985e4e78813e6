//! What every port can do.

use std::fmt;
use std::os::fd::RawFd;

use millrace_packet::{Batch, DropCounts, Pool};
use millrace_units::Instant;
use millrace_wire::MacAddr;

/// A source and sink of packets. A worker owns its ports; none of this is called from two threads.
///
/// Packets are whole link-layer frames, VLAN tags in place, without frame check sequence. Transport checksums are
/// right on what [`receive`](Port::receive) gives: a port completes partial ones.
pub trait Port {
    /// Adds packets that have arrived to the end of `batch`, as many as are there and fit. Never blocks.
    fn receive(&mut self, pool: &Pool, now: Instant, batch: &mut Batch);

    /// Takes all packets of `batch`, in order. What the device can't take now is dropped and counted in
    /// [`PortCounters::drops`]: at most [`room`](Port::room) packets of one frame find none of that. Sending may be put off until
    /// [`flush`](Port::flush).
    fn transmit(&mut self, pool: &Pool, now: Instant, batch: &mut Batch);

    /// Packets that the device has room for now; what is more waits in the port's queue, where it is scheduled. Without a limit
    /// where that is not known before a packet is sent.
    fn room(&mut self) -> usize {
        usize::MAX
    }

    /// Hands everything taken so far to the device, and takes back memory of what was sent.
    fn flush(&mut self, pool: &Pool, now: Instant);

    /// Counters since the port was opened. May ask the kernel: not for every batch.
    fn counters(&mut self) -> PortCounters;

    /// The device's largest packet is now `mtu` bytes long, and super-frames are to be cut so that their pieces fit
    /// `segment_mtu`. Ports that don't look at lengths do nothing.
    fn set_mtu(&mut self, mtu: u16, segment_mtu: u16) {
        let _ = (mtu, segment_mtu);
    }

    /// What the port was and could do when it was opened.
    fn capabilities(&self) -> &Capabilities;

    /// A descriptor that becomes readable when packets arrive; `None` when the port must be polled or has no more.
    fn descriptor(&self) -> Option<RawFd>;

    /// When the port itself next has something to do (a delayed packet falls due, a recorded one is played).
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// How far the port is with what it was given; `None` where that is not known. Asks nobody: for every round.
    fn progress(&mut self) -> Option<Progress> {
        None
    }

    /// Receive queues of the device that the port reads; each is read in order, but none waits for another.
    fn receive_queues(&self) -> usize {
        1
    }

    /// By which number the device, and its XDP program, know the receive queue at that place.
    fn queue_number(&self, queue: usize) -> usize {
        queue
    }

    /// How far the port is with the receive queue at that place. Asks nobody: for every round.
    fn arrivals(&self, queue: usize) -> Arrivals {
        let _ = queue;
        Arrivals::default()
    }

    /// Frames of a receive queue that were lost before they could be read. Asks the kernel: not for every batch.
    fn lost(&self, queue: usize) -> u64 {
        let _ = queue;
        0
    }

    /// Whether nothing will ever arrive any more: the end of a file.
    fn is_finished(&self) -> bool {
        false
    }
}

/// How far a port is with its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Frames that the kernel or the device has not taken yet.
    pub unsent: u32,
    /// Frames that it has taken, or fewer; together with those it has not, all that were given to the port.
    pub sent: u64,
    /// Packets that were read and are not given by [`receive`](Port::receive) yet.
    pub kept: u32,
}

/// How far a port is with a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrivals {
    /// Frames read so far: those that were lost before are not among them.
    pub read: u64,
    /// Whether the last [`receive`](Port::receive) left nothing behind.
    pub drained: bool,
}

/// Counters of a port, frames and bytes of link-layer frames.
///
/// `received` + `created` on the way in = frames given by `receive` + frames in `drops` that were lost on the way in +
/// `held` on the way in; frames given to `transmit` + `created` on the way out = `transmitted` + those in `drops` that were
/// lost on the way out + `held` on the way out.
#[derive(Clone, Debug, Default)]
pub struct PortCounters {
    /// Frames that arrived, those lost before they were read included.
    pub received: u64,
    /// Bytes of the frames that were read.
    pub received_bytes: u64,
    /// Frames that the kernel or the device took.
    pub transmitted: u64,
    /// Their bytes.
    pub transmitted_bytes: u64,
    /// Of them, frames that left by a [`BatchSend`](crate::BatchSend).
    pub batched: u64,
    /// Packets more than arrived: duplicates by impairment, segments of a super-frame.
    pub created: u64,
    /// Frames lost in the port, by reason.
    pub drops: DropCounts,
    /// Frames that wait inside the port (delayed, or not yet taken by the device).
    pub held: u64,
}

impl PortCounters {
    /// Adds what another port counted.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.transmitted += other.transmitted;
        self.transmitted_bytes += other.transmitted_bytes;
        self.batched += other.batched;
        self.created += other.created;
        self.held += other.held;
        other.drops.iter().for_each(|(reason, count)| self.drops.add(reason, count));
    }

    /// Takes away what the same port had counted earlier; what it holds stays as it is.
    pub fn subtract(&mut self, before: &Self) {
        self.received -= before.received;
        self.received_bytes -= before.received_bytes;
        self.transmitted -= before.transmitted;
        self.transmitted_bytes -= before.transmitted_bytes;
        self.batched -= before.batched;
        self.created -= before.created;
        before.drops.iter().for_each(|(reason, count)| self.drops.subtract(reason, count));
    }
}

/// What a port is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The kind of port, as in the configuration: `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`.
    pub driver: &'static str,
    /// How the kind works here: `zero-copy`, `native`, `generic`, `ring`, …
    pub mode: Mode,
    /// Why it works in no better mode, in words; empty when it is the best.
    pub why: String,
    /// The port's own MAC address.
    pub mac: MacAddr,
    /// Largest network-layer packet, in bytes.
    pub mtu: u16,
    /// The kernel's index of the device below, if there is one.
    pub ifindex: Option<u32>,
}

/// How a port moves packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// AF_XDP in the driver, without a copy.
    ZeroCopy,
    /// AF_XDP in the driver, with a copy.
    Native,
    /// AF_XDP behind the driver, on socket buffers.
    Generic,
    /// AF_PACKET rings.
    Ring,
    /// One system call per packet.
    Call,
    /// Files or memory.
    InProcess,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ZeroCopy => "zero-copy",
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Ring => "ring",
            Self::Call => "call",
            Self::InProcess => "in-process",
        })
    }
}
