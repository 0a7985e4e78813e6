//! AF_XDP port: frames move directly between the driver and the packet memory
//! (`Documentation/networking/af_xdp.rst`).
//!
//! A port is one device, with a socket for each receive queue. All sockets share the pool, which is
//! registered with each. The port sends through the first socket only, so one call sends a batch. The caller
//! loads the XDP program that redirects frames to the sockets, and registers [`AfXdp::sockets`] in the
//! program's map.
//!
//! Counters: *transmitted* are the packets whose pieces the kernel has taken from the transmit ring; packets
//! that wait in the ring are *held*. Frames that the kernel lost before the receive ring (`XDP_STATISTICS`)
//! count as received and dropped.
//!
//! When a port in copy mode is dropped, its sockets close and the kernel no longer touches the lent memory
//! frames. So these return to the pool. In zero-copy mode the NIC may still write for a while, so lent memory
//! frames stay out of the pool until the process ends.

mod lent_frames;
mod options;
mod receive;
mod ring;
mod socket;
mod transmit;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use millrace_packet::{BATCH_SIZE, Batch, DropCounts, DropReason, FRAME_SIZE, Packet, Pool};
use millrace_units::Instant;
use millrace_wire::ethernet;

pub use options::{Bind, BusyPoll, Options, ProgramMode, RingSizes};

use crate::segment::{self, Segmented};
use crate::{
    Arrivals, BatchSend, Capabilities, Mode, Port, PortCounters, PortError, Progress, partial_checksum,
    readiness,
};
use lent_frames::LentFrames;
use receive::Receiver;
use socket::Socket;
pub use transmit::LEAST_BATCH;
use transmit::Transmitter;

/// Number of bytes before a received frame that the kernel reserves for the XDP program.
const XDP_HEADROOM: usize = 256;
/// Length of a link header with two VLAN tags.
const MAX_LINK_HEADER: usize = ethernet::HEADER_LEN + 8;
/// Length of a link header with one VLAN tag. The kernel accepts no longer link header in a redirected frame.
const REDIRECTED_LINK_HEADER: usize = ethernet::HEADER_LEN + 4;
/// Largest MTU at which a frame, including VLAN tags, fits one memory frame.
const SINGLE_FRAME_MTU: u16 = (FRAME_SIZE - XDP_HEADROOM - MAX_LINK_HEADER) as u16;
/// Number of entries of a ring that a socket must have but this port doesn't use.
const UNUSED_RING: u32 = 64;

/// AF_XDP port on a device.
#[derive(Debug)]
pub struct AfXdp {
    queues: Vec<(u32, Socket, Receiver)>,
    transmitter: Transmitter,
    lent: LentFrames,
    /// Segments of a GSO packet that the last batch had no room for.
    backlog: VecDeque<Packet>,
    /// Queue that the next batch reads first; it rotates so that no queue starves.
    first: usize,
    read_bytes: u64,
    created: u64,
    drops: DropCounts,
    readiness: Option<OwnedFd>,
    partial_checksums: bool,
    busy_poll: bool,
    mtu: u16,
    segment_mtu: u16,
    capabilities: Capabilities,
}

/// Sockets of a port that is not open yet, one per queue. Creating them needs privileges.
#[derive(Debug)]
pub struct Sockets(Vec<OwnedFd>);

impl AfXdp {
    /// Creates a socket for each queue, in the calling thread's network namespace, and does not bind it.
    ///
    /// # Errors
    /// [`PortError`]: no queue, no permission, ring sizes out of range.
    pub fn make_sockets(options: &Options) -> Result<Sockets, PortError> {
        options.rings.check(&options.device)?;
        if options.queues.is_empty() {
            let (device, problem) = (options.device.clone(), "no receive queue given".into());
            return Err(PortError::Queue { device, problem });
        }
        let made = options.queues.iter().map(|queue| Socket::create(&for_queue(options, *queue), *queue));
        made.collect::<Result<_, _>>().map(Sockets)
    }

    /// Opens a socket for each queue and lends it memory frames of `pool`. All packets of this port come from
    /// that pool. Waits up to 1 s for a queue that is still in use.
    ///
    /// # Errors
    /// [`PortError`]: no such device or queue, no permission, queue in use, no memory, ring sizes out of
    /// range.
    pub fn open(pool: &Pool, options: Options) -> Result<Self, PortError> {
        let sockets = Self::make_sockets(&options)?;
        Self::open_by(sockets, pool, options)
    }

    /// Opens the port with sockets that were created for the same options. This needs only the capability
    /// CAP_IPC_LOCK, to lock the packet memory.
    ///
    /// # Errors
    /// [`PortError`]: no such device or queue, queue in use, no memory.
    pub fn open_by(Sockets(sockets): Sockets, pool: &Pool, options: Options) -> Result<Self, PortError> {
        let mut lent = LentFrames::new(pool);
        let mut queues = Vec::new();
        for (&queue, socket) in options.queues.iter().zip(sockets) {
            let socket = Socket::open(socket, pool, &for_queue(&options, queue), queue)?;
            let receiver = Receiver::new(options.rings.fill);
            queues.push((queue, socket, receiver));
        }
        for (_, socket, receiver) in &mut queues {
            receiver.refill(socket, &mut lent);
        }
        let readiness = match queues.len() {
            1 => None,
            _ => Some(readiness::any_of(queues.iter().map(|(_, socket, _)| socket.as_fd())).map_err(
                |source| PortError::Kernel { device: options.device.clone(), call: "epoll", source },
            )?),
        };
        let capabilities = capabilities(&options, &queues[0].1);
        Ok(Self {
            queues,
            transmitter: Transmitter::default(),
            lent,
            backlog: VecDeque::new(),
            first: 0,
            read_bytes: 0,
            created: 0,
            drops: DropCounts::default(),
            readiness,
            partial_checksums: options.partial_checksums,
            busy_poll: options.busy_poll.is_some(),
            mtu: options.mtu,
            segment_mtu: options.segment_mtu.min(options.mtu),
            capabilities,
        })
    }

    /// Sets an alternative sender for batches of [`LEAST_BATCH`] packets or more.
    pub fn set_batch_send(&mut self, batch_send: Box<dyn BatchSend>) {
        self.transmitter.batch_send = Some(batch_send);
    }

    /// Iterates over device queues and their sockets, for registration in the XDP program's map.
    pub fn sockets(&self) -> impl Iterator<Item = (u32, RawFd)> + '_ {
        self.queues.iter().map(|(queue, socket, _)| (*queue, socket.as_fd().as_raw_fd()))
    }

    /// Returns the number of memory frames that the kernel holds for this port, for reception and
    /// transmission.
    pub fn lent_frames(&self) -> u32 {
        self.lent.count()
    }

    /// Returns the queue to read after `queue`.
    #[inline]
    fn behind(&self, queue: usize) -> usize {
        if queue + 1 == self.queues.len() { 0 } else { queue + 1 }
    }

    /// Reads one queue until it is empty or the batch is full.
    fn receive_queue(&mut self, queue: usize, batch: &mut Batch) {
        let limit = usize::from(self.mtu) + ethernet::HEADER_LEN;
        loop {
            let (_, socket, receiver) = &mut self.queues[queue];
            let before = batch.len();
            let long = receiver.receive(socket, &mut self.lent, limit, batch);
            self.read_bytes += batch[before..].iter().map(|packet| packet.len() as u64).sum::<u64>();
            match long {
                None => return,
                Some(packet) => self.receive_long(packet, batch),
            }
            if batch.room() == 0 {
                return;
            }
        }
    }

    /// Handles a received frame longer than the MTU plus an Ethernet header: a frame with VLAN tags, or a
    /// GSO packet.
    #[cold]
    fn receive_long(&mut self, packet: Packet, batch: &mut Batch) {
        self.read_bytes += packet.len() as u64;
        let known = segment::Known::default();
        match segment::segment(self.lent.pool(), packet, self.mtu, self.segment_mtu, known, &mut self.backlog)
        {
            Segmented::Into(count) => self.created += count - 1,
            Segmented::Dropped(reason) => self.drops.add(reason, 1),
        }
        self.release_backlog(batch);
    }

    #[inline]
    fn release_backlog(&mut self, batch: &mut Batch) {
        if !self.backlog.is_empty() {
            batch.take_from(&mut self.backlog, usize::MAX);
        }
    }

    /// Returns two numbers: received frames that the kernel dropped, and outgoing frames that the kernel
    /// refused.
    fn kernel_losses(&self) -> (u64, u64) {
        let statistics = self.queues.iter().map(|(_, socket, _)| socket.statistics());
        statistics.fold((0, 0), |(received, sent), socket| {
            (received + lost(&socket), sent + socket.tx_invalid_descs)
        })
    }
}

fn lost(statistics: &libc::xdp_statistics) -> u64 {
    statistics.rx_dropped + statistics.rx_ring_full
}

/// Returns the options of a queue. Only the first queue sends, so the others get small transmit rings.
fn for_queue(options: &Options, queue: u32) -> Options {
    let mut options = options.clone();
    if options.queues.first() != Some(&queue) {
        options.rings.transmit = UNUSED_RING;
        options.rings.completion = UNUSED_RING;
    }
    options
}

fn capabilities(options: &Options, socket: &Socket) -> Capabilities {
    let (mode, reason) = match (socket.zero_copy, options.program) {
        (true, _) => (Mode::ZeroCopy, ""),
        (false, ProgramMode::Generic) => (Mode::Generic, ""),
        (false, ProgramMode::Native) if options.bind == Bind::Copy => {
            (Mode::Native, "copy mode was requested")
        }
        (false, ProgramMode::Native) => (Mode::Native, "the driver does not support zero-copy"),
    };
    let why = [options.why.as_str(), reason].into_iter().filter(|text| !text.is_empty());
    Capabilities {
        driver: "af_xdp",
        mode,
        why: why.collect::<Vec<_>>().join("; "),
        mac: options.mac,
        mtu: options.mtu,
        ifindex: Some(options.ifindex),
    }
}

impl Port for AfXdp {
    fn receive(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        let start = batch.len();
        self.release_backlog(batch);
        self.queues.iter_mut().for_each(|(_, _, receiver)| receiver.begin());
        let mut queue = self.first;
        for _ in 0..self.queues.len() {
            if batch.room() == 0 {
                break;
            }
            self.receive_queue(queue, batch);
            queue = self.behind(queue);
        }
        self.first = self.behind(self.first);
        if self.busy_poll && batch.len() == start {
            self.queues.iter().for_each(|(_, socket, _)| socket.kick_receive());
        }
        for (_, socket, receiver) in &mut self.queues {
            receiver.refill(socket, &mut self.lent);
        }
        if self.partial_checksums {
            for packet in &mut batch[start..] {
                partial_checksum::complete(packet);
            }
        }
    }

    fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        let (_, socket, _) = &mut self.queues[0];
        let limit = usize::from(self.mtu) + MAX_LINK_HEADER;
        if self.transmitter.send_batch(socket, usize::from(self.mtu) + REDIRECTED_LINK_HEADER, batch) {
            return;
        }
        for packet in batch.drain() {
            self.transmitter.send(socket, &mut self.lent, limit, packet);
        }
        socket.transmit.publish();
    }

    fn room(&mut self) -> usize {
        self.queues[0].1.transmit.free(BATCH_SIZE as u32) as usize
    }

    fn flush(&mut self, _pool: &Pool, _now: Instant) {
        self.transmitter.flush(&mut self.queues[0].1, &mut self.lent);
    }

    fn progress(&mut self) -> Option<Progress> {
        let kept = u32::try_from(self.backlog.len()).unwrap_or(u32::MAX);
        let unsent = self.queues[0].1.transmit.waiting();
        let sent = self.transmitter.queued().saturating_sub(unsent.into());
        Some(Progress { unsent, sent, kept })
    }

    fn receive_queues(&self) -> usize {
        self.queues.len()
    }

    fn queue_number(&self, queue: usize) -> usize {
        self.queues.get(queue).map_or(queue, |(number, ..)| *number as usize)
    }

    fn arrivals(&self, queue: usize) -> Arrivals {
        self.queues.get(queue).map(|(_, _, receiver)| receiver.arrivals()).unwrap_or_default()
    }

    fn has_arrivals(&self) -> Option<bool> {
        // A busy-polled device delivers frames only during a system call.
        let is_filled = || self.queues.iter().any(|(_, socket, _)| socket.receive.is_filled());
        (!self.busy_poll).then(|| !self.backlog.is_empty() || is_filled())
    }

    fn lost(&self, queue: usize) -> u64 {
        self.queues.get(queue).map_or(0, |(_, socket, _)| lost(&socket.statistics()))
    }

    fn counters(&mut self) -> PortCounters {
        let (lost, refused) = self.kernel_losses();
        let (taken, taken_bytes, waiting) = self.transmitter.taken(&mut self.queues[0].1);
        let mut drops = self.drops.clone();
        for (reason, count) in self.transmitter.drops.iter() {
            drops.add(reason, count);
        }
        drops.add(DropReason::ReceiveRingFull, lost);
        drops.add(DropReason::TransmitFailed, refused);
        let partial = self.queues.iter().map(|(_, _, receiver)| receiver.held()).sum::<u64>();
        let read = self.queues.iter().map(|(_, _, receiver)| receiver.arrivals().read).sum::<u64>();
        PortCounters {
            received: read + partial + lost,
            received_bytes: self.read_bytes,
            transmitted: taken - refused,
            transmitted_bytes: taken_bytes,
            batched: self.transmitter.batched,
            created: self.created,
            drops,
            held: waiting + partial + self.backlog.len() as u64,
        }
    }

    fn set_mtu(&mut self, mtu: u16, segment_mtu: u16) {
        // Without scatter a packet must fit one memory frame, whatever the device accepts.
        let longest = if self.queues[0].1.scatter { u16::MAX } else { SINGLE_FRAME_MTU };
        self.mtu = mtu.min(longest);
        self.segment_mtu = segment_mtu.min(self.mtu);
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn descriptor(&self) -> Option<RawFd> {
        let socket = || self.queues[0].1.as_fd();
        Some(self.readiness.as_ref().map_or_else(socket, AsFd::as_fd).as_raw_fd())
    }
}

impl Drop for AfXdp {
    fn drop(&mut self) {
        let zero_copy = self.queues.iter().any(|(_, socket, _)| socket.zero_copy);
        // Each socket unmaps its rings before it closes. A close with unmapped rings waits until no receive
        // path uses the socket any more (`xsk_release`).
        self.queues.clear();
        if !zero_copy {
            self.lent.take_back_all();
        }
    }
}
