//! AF_PACKET port: works on every device, and copies each frame (`packet(7)`).
//!
//! The kernel also forwards the frames that it gives to the port, unless the port's tcx program drops them in
//! the kernel. [`Options::filter`] keeps frames that are for the kernel out of the port.
//!
//! The port corrects received frames in two ways. The kernel removes the outer VLAN tag of a frame and
//! reports the tag separately; the port inserts the tag again. The kernel also reports partial transport
//! checksums, and the segment size of GSO packets (`struct virtio_net_hdr`). The port completes the checksums
//! and segments the GSO packets.
//!
//! Counters: *transmitted* are the frames that `sendmmsg` took. Frames for which the kernel had no slot
//! (`PACKET_STATISTICS`) count as received and dropped.

mod options;
mod ring;
mod socket;
#[expect(clippy::indexing_slicing, reason = "messages of a batch, by the packet's place in it")]
mod transmit;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use millrace_packet::{Batch, DropCounts, DropReason, Packet, Pool};
use millrace_units::Instant;
use millrace_wire::ethernet;

pub use options::Options;
pub use socket::open_bound;

use crate::segment::{self, Known, Segmented};
use crate::{Capabilities, Mode, Port, PortCounters, PortError, partial_checksum, socket_option};
use ring::{Header, ReceiveRing, VNET_HEADER};
use transmit::Transmitter;

/// Length of a link header with two VLAN tags.
const MAX_LINK_HEADER: usize = ethernet::HEADER_LEN + 8;
/// Length in bytes of the buffer for a frame that doesn't fit a ring slot: room for 64 KiB of data and all
/// headers.
const MAX_COPY: usize = 1 << 17;
const NEEDS_CHECKSUM: u8 = 1;

/// AF_PACKET port on a device.
#[derive(Debug)]
pub struct AfPacket {
    ring: ReceiveRing,
    receiver: OwnedFd,
    sender: OwnedFd,
    transmitter: Transmitter,
    /// Segments of a GSO packet that the last batch had no room for.
    backlog: VecDeque<Packet>,
    copy: Box<[u8]>,
    read: u64,
    read_bytes: u64,
    lost: u64,
    created: u64,
    drops: DropCounts,
    partial_checksums: bool,
    segment_mtu: u16,
    capabilities: Capabilities,
}

/// Bound sockets of a port. A worker that must not bind sockets opens the port with these.
#[derive(Debug)]
pub struct Sockets(socket::Both);

impl AfPacket {
    /// Creates and binds the sockets, in the calling thread's network namespace. From then on the receive
    /// ring collects frames.
    ///
    /// # Errors
    /// [`PortError`]: no such device, down, no permission, no memory, a ring size out of range.
    pub fn make_sockets(options: &Options) -> Result<Sockets, PortError> {
        options.check()?;
        socket::create_both(options).map(Sockets)
    }

    /// Creates the sockets and opens the port.
    ///
    /// # Errors
    /// [`PortError`]: no such device, down, no permission, no memory, a ring size out of range.
    pub fn open(options: Options) -> Result<Self, PortError> {
        let sockets = Self::make_sockets(&options)?;
        Self::open_by(sockets, options)
    }

    /// Opens the port with sockets from [`make_sockets`](Self::make_sockets). Needs no privileges, and makes
    /// no socket system calls.
    pub fn open_by(Sockets(sockets): Sockets, options: Options) -> Result<Self, PortError> {
        let ring = sockets.map_ring(&options)?;
        let socket::Both { receiver, sender, .. } = sockets;
        Ok(Self {
            ring,
            receiver,
            sender,
            transmitter: Transmitter::new(),
            backlog: VecDeque::new(),
            copy: vec![0; MAX_COPY].into_boxed_slice(),
            read: 0,
            read_bytes: 0,
            lost: 0,
            created: 0,
            drops: DropCounts::default(),
            partial_checksums: options.partial_checksums,
            segment_mtu: options.segment_mtu.min(options.mtu),
            capabilities: Capabilities {
                driver: "af_packet",
                mode: Mode::Ring,
                why: "AF_PACKET copies each frame; AF_XDP does without a socket buffer".to_owned(),
                mac: options.mac,
                mtu: options.mtu,
                ifindex: Some(options.ifindex),
            },
        })
    }

    /// Reads the frame that `header` describes, and releases its slot.
    fn read_frame(&mut self, pool: &Pool, header: &Header) {
        self.read += 1;
        if header.is_whole() {
            let (vnet, bytes) = self.ring.frame(header);
            self.read_bytes += bytes.len() as u64;
            let packet = with_tag(pool, bytes, header.tag());
            self.ring.release();
            return self.accept(pool, packet, vnet, header);
        }
        let has_copy = header.status & libc::TP_STATUS_COPY != 0;
        self.ring.release();
        let length = if has_copy { socket::read_copy(self.receiver.as_fd(), &mut self.copy) } else { 0 };
        let Some((vnet, bytes)) =
            self.copy.get(..length).and_then(|copy| copy.split_first_chunk::<VNET_HEADER>())
        else {
            return self.drops.add(DropReason::ReceiveRingFull, 1);
        };
        self.read_bytes += bytes.len() as u64;
        let (packet, vnet) = (with_tag(pool, bytes, header.tag()), *vnet);
        self.accept(pool, packet, vnet, header);
    }

    /// Corrects a frame and appends it to the backlog. If the frame is a GSO packet, appends its segments.
    fn accept(&mut self, pool: &Pool, packet: Option<Packet>, vnet: [u8; VNET_HEADER], header: &Header) {
        let Some(mut packet) = packet else { return self.drops.add(DropReason::NoMemory, 1) };
        let [flags, segment_type, _, _, size @ .., a, b, c, d] = vnet;
        let (segment_payload, start, offset) =
            (u16::from_ne_bytes(size), u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
        let mtu = self.capabilities.mtu;
        if segment_type != 0 || packet.len() > usize::from(mtu) + ethernet::HEADER_LEN {
            let known = Known { segment_payload: (segment_type != 0).then_some(segment_payload) };
            match segment::segment(pool, packet, mtu, self.segment_mtu, known, &mut self.backlog) {
                Segmented::Into(1) => {}
                Segmented::Into(count) => return self.created += count - 1,
                Segmented::Dropped(reason) => return self.drops.add(reason, 1),
            }
            let Some(whole) = self.backlog.pop_back() else { return };
            packet = whole;
        }
        if flags & NEEDS_CHECKSUM != 0 {
            let moved = if header.tag().is_some() { 4 } else { 0 };
            partial_checksum::complete_at(&mut packet, usize::from(start) + moved, offset.into());
        } else if self.partial_checksums {
            partial_checksum::complete(&mut packet);
        }
        self.backlog.push_back(packet);
    }

    #[inline]
    fn release_backlog(&mut self, batch: &mut Batch) {
        if !self.backlog.is_empty() {
            batch.take_from(&mut self.backlog, usize::MAX);
        }
    }
}

/// Creates a packet of `bytes`, with the VLAN tag inserted after the addresses; `None` when the pool is
/// empty.
fn with_tag(pool: &Pool, bytes: &[u8], tag: Option<[u8; 4]>) -> Option<Packet> {
    const ADDRESSES: usize = 12;
    let (Some(tag), true) = (tag, bytes.len() >= ADDRESSES) else { return pool.packet_from(bytes) };
    let mut packet = pool.packet_from(bytes)?;
    let front = packet.prepend(tag.len())?.first_chunk_mut::<{ ADDRESSES + 4 }>()?;
    front.copy_within(tag.len().., 0);
    *front.last_chunk_mut()? = tag;
    Some(packet)
}

impl Port for AfPacket {
    fn receive(&mut self, pool: &Pool, _now: Instant, batch: &mut Batch) {
        self.release_backlog(batch);
        while batch.room() > 0 {
            let Some(header) = self.ring.peek() else { return };
            self.read_frame(pool, &header);
            self.release_backlog(batch);
        }
    }

    fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        let limit = usize::from(self.capabilities.mtu) + MAX_LINK_HEADER;
        for packet in batch.drain() {
            self.transmitter.send(self.sender.as_fd(), limit, packet);
        }
    }

    fn flush(&mut self, _pool: &Pool, _now: Instant) {
        self.transmitter.flush(self.sender.as_fd());
    }

    fn has_arrivals(&self) -> Option<bool> {
        Some(!self.backlog.is_empty() || self.ring.is_filled())
    }

    fn counters(&mut self) -> PortCounters {
        // Each reading resets the kernel's counters.
        let fresh = socket_option::get::<libc::tpacket_stats>(
            self.receiver.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
        );
        self.lost += fresh.map_or(0, |statistics| u64::from(statistics.tp_drops));
        let mut drops = self.drops.clone();
        for (reason, count) in self.transmitter.drops.iter() {
            drops.add(reason, count);
        }
        drops.add(DropReason::ReceiveRingFull, self.lost);
        PortCounters {
            received: self.read + self.lost,
            received_bytes: self.read_bytes,
            transmitted: self.transmitter.sent,
            transmitted_bytes: self.transmitter.sent_bytes,
            batched: 0,
            created: self.created,
            drops,
            held: self.transmitter.held() + self.backlog.len() as u64,
        }
    }

    fn set_mtu(&mut self, mtu: u16, segment_mtu: u16) {
        self.capabilities.mtu = mtu;
        self.segment_mtu = segment_mtu.min(mtu);
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.receiver.as_raw_fd())
    }
}
