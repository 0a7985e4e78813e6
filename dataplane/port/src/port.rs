//! Interface of all ports.

use std::fmt;
use std::os::fd::RawFd;

use millrace_packet::{Batch, DropCounts, Pool};
use millrace_units::Instant;
use millrace_wire::MacAddr;

/// Source and sink of packets. A worker owns its ports, and only the worker's thread calls them.
///
/// Packets are whole link-layer frames, with VLAN tags in place, without frame check sequence. Packets from
/// [`receive`](Port::receive) have correct transport checksums, because a port completes partial checksums.
pub trait Port {
    /// Appends packets that have arrived to `batch`, as many as fit. Never blocks.
    fn receive(&mut self, pool: &Pool, now: Instant, batch: &mut Batch);

    /// Takes all packets of `batch`, in order. The port drops packets that the device can't take now, and
    /// counts them in [`PortCounters::drops`]. But it never drops the first [`room`](Port::room) packets, if
    /// each consists of one memory frame. Transmission may wait for [`flush`](Port::flush).
    fn transmit(&mut self, pool: &Pool, now: Instant, batch: &mut Batch);

    /// Returns the number of packets that the device has room for now. The caller keeps further packets in
    /// the port's queue, so that its scheduler orders them. A port that notices lack of room only when it
    /// sends returns `usize::MAX`.
    fn room(&mut self) -> usize {
        usize::MAX
    }

    /// Passes all packets taken so far to the device, and reclaims the memory of sent packets.
    fn flush(&mut self, pool: &Pool, now: Instant);

    /// Returns the counters since the port was opened. The call may make a system call, so don't use it for
    /// every batch.
    fn counters(&mut self) -> PortCounters;

    /// Sets the MTU of the device to `mtu` bytes. From then on the port cuts GSO packets into segments of at
    /// most `segment_mtu` bytes. Ports that don't check lengths ignore the call.
    fn set_mtu(&mut self, mtu: u16, segment_mtu: u16) {
        let _ = (mtu, segment_mtu);
    }

    /// Returns the properties that the port had when it was opened.
    fn capabilities(&self) -> &Capabilities;

    /// Returns a descriptor that becomes readable when packets arrive. `None` when the port must be polled or
    /// has ended.
    fn descriptor(&self) -> Option<RawFd>;

    /// Returns the time at which a delayed packet is due or a recorded packet arrives; `None` if no such
    /// event is pending.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// Returns the progress of the port in sending frames; `None` if the port can't tell. Makes no system
    /// call, so callers may use it in every iteration.
    fn progress(&mut self) -> Option<Progress> {
        None
    }

    /// Returns the number of receive queues that the port reads. Packets of one queue keep their order; there
    /// is no order between queues.
    fn receive_queues(&self) -> usize {
        1
    }

    /// Returns the device's number of the receive queue at index `queue`. The XDP program uses the same
    /// number.
    fn queue_number(&self, queue: usize) -> usize {
        queue
    }

    /// Returns the progress of the port in reading a receive queue. Makes no system call, so callers may use
    /// it in every iteration.
    fn arrivals(&self, queue: usize) -> Arrivals {
        let _ = queue;
        Arrivals::default()
    }

    /// Whether frames wait in a receive queue; `None` if the port can't tell. Makes no system call, so callers may
    /// use it several times in an iteration.
    fn has_arrivals(&self) -> Option<bool> {
        None
    }

    /// Returns the number of frames of a receive queue that were lost before they were read. The call makes a
    /// system call, so don't use it for every batch.
    fn lost(&self, queue: usize) -> u64 {
        let _ = queue;
        0
    }

    /// Returns whether no further packet can arrive, as at the end of a file.
    fn is_finished(&self) -> bool {
        false
    }
}

/// Progress of a port in sending frames, and the number of packets that the port keeps after reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Number of frames given to the port that the kernel or the device has not taken yet.
    pub unsent: u32,
    /// Number of frames that the kernel or the device has taken; a lower bound. `sent` + `unsent` is the
    /// number of frames given to the port.
    pub sent: u64,
    /// Number of packets that were read and that [`receive`](Port::receive) has not returned yet.
    pub kept: u32,
}

/// Progress of a port in reading one receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrivals {
    /// Number of frames read so far, without lost frames.
    pub read: u64,
    /// Whether the last [`receive`](Port::receive) emptied the queue.
    pub drained: bool,
}

/// Counters of a port, in link-layer frames and their bytes.
///
/// Incoming: `received` + `created` = frames returned by `receive` + frames lost (in `drops`) + `held`.
/// Outgoing: frames given to `transmit` + `created` = `transmitted` + frames lost (in `drops`) + `held`.
#[derive(Clone, Debug, Default)]
pub struct PortCounters {
    /// Number of frames that arrived, including frames lost before they were read.
    pub received: u64,
    /// Number of bytes of the frames that were read.
    pub received_bytes: u64,
    /// Number of frames that the kernel or the device took.
    pub transmitted: u64,
    /// Number of bytes of the transmitted frames.
    pub transmitted_bytes: u64,
    /// Number of transmitted frames that left by a [`BatchSend`](crate::BatchSend).
    pub batched: u64,
    /// Number of packets created by the port: duplicates of an impairment, and additional segments of
    /// GSO packets.
    pub created: u64,
    /// Frames lost in the port, by reason.
    pub drops: DropCounts,
    /// Number of frames that wait inside the port: the port delays them, or the device has not taken them.
    pub held: u64,
}

impl PortCounters {
    /// Adds the counters of another port.
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

    /// Subtracts earlier counters of the same port; `held` stays unchanged.
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

/// Properties of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Kind of port, as in the configuration: `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`.
    pub driver: &'static str,
    /// Mode of the port: `zero-copy`, `native`, `generic`, `ring`, …
    pub mode: Mode,
    /// Reason why the port works in no better mode; empty in the best mode.
    pub why: String,
    /// MAC address of the port.
    pub mac: MacAddr,
    /// Largest network-layer packet, in bytes.
    pub mtu: u16,
    /// Index of the device in the kernel, if there is one.
    pub ifindex: Option<u32>,
}

/// Method by which a port moves packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// AF_XDP in the driver, without a copy.
    ZeroCopy,
    /// AF_XDP in the driver, with a copy.
    Native,
    /// AF_XDP in the kernel's generic hook, on socket buffers.
    Generic,
    /// AF_PACKET with a receive ring.
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
