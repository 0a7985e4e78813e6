//! Parcels: buffers in which packets go from one worker to another.

use std::collections::VecDeque;

use millrace_packet::{Borrower, EndedLoan, Exceptions, Lender, Loan, Packet, Pool};
use millrace_units::{NextHopIndex, PortId, PrincipalId, QueueId};
use rtrb::{Consumer, Producer, RingBuffer};

use super::division::{Class, Division, HandoverLoad, Part};
use super::{Errand, Handed, Note, Transport};

/// Number of parcels for each ordered pair of workers.
pub(super) const PARCELS: usize = 32;
/// Length in bytes at which a parcel is full, and takes no further packet.
pub(super) const FULL: usize = 32 << 10;
/// Room in bytes of a parcel beyond [`FULL`], enough for the longest frame.
const LONGEST: usize = (64 << 10) + 64;
/// Number of unread parcels from which on only full parcels are sent, because the receiver is busy. With
/// fewer unread parcels, a partly filled parcel is sent at once.
pub(super) const UNDER_WAY: usize = 8;
/// Maximum number of packets lent at a time, for each ordered pair of workers.
pub(super) const LOANS: u16 = 512;

/// Code of a step record, in place of an errand. The record announces the sender's step, and follows all
/// earlier packets.
const STEP: u8 = u8::MAX;
/// Length in bytes of a record's header.
const HEADER: usize = 32;
/// Length in bytes of a filter's account word; these words follow the header.
const FILTER: usize = 8;
/// Maximum number of account words handed over with a packet; no path has more filters.
const FILTERS: usize = 255;
/// Bits of a header's last byte: whether the TCP flags are known, and whether the rest of the packet is lent.
const HAS_TCP_FLAGS: u8 = 1;
const IS_LENT: u8 = 2;

/// Records with their packets' bytes, and the loans of the records whose packets are lent, in the same order.
#[derive(Debug)]
pub(super) struct Parcel {
    bytes: Vec<u8>,
    loans: VecDeque<Loan>,
    /// Bytes by class. The sender reads them again when the parcel has come back.
    parts: Vec<Part>,
}

impl Parcel {
    fn new() -> Self {
        // A page takes no memory until it is written.
        Self {
            bytes: Vec::with_capacity(FULL + LONGEST),
            loans: VecDeque::with_capacity(LOANS.into()),
            parts: Vec::with_capacity(FULL / HEADER + 1),
        }
    }
}

/// Sending end of the rings to another worker.
#[derive(Debug)]
pub(super) struct OutgoingRings {
    parcels: Producer<Parcel>,
    empty: Consumer<Parcel>,
    ended: Consumer<EndedLoan>,
}

/// Receiving end of the rings from another worker.
#[derive(Debug)]
pub(super) struct IncomingRings {
    parcels: Consumer<Parcel>,
    empty: Producer<Parcel>,
    ended: Producer<EndedLoan>,
}

/// Creates the rings from one worker to another.
pub(super) fn way() -> (OutgoingRings, IncomingRings) {
    let (parcels, taken) = RingBuffer::new(PARCELS);
    let (mut back, empty) = RingBuffer::new(PARCELS);
    let (end, ended) = RingBuffer::new(LOANS.into());
    for _ in 0..PARCELS {
        // Can't fail: the ring has a slot for each parcel.
        let _ = back.push(Parcel::new());
    }
    (OutgoingRings { parcels, empty, ended }, IncomingRings { parcels: taken, empty: back, ended: end })
}

/// Hand-over to another worker.
#[derive(Debug)]
pub(super) struct Outgoing {
    rings: OutgoingRings,
    lender: Lender,
    open: Option<Parcel>,
    /// Parcels that have come back, to be opened.
    spare: Vec<Parcel>,
    division: Division,
    /// Number of parcels sent since the last [`take_sent`](Self::take_sent).
    sent: usize,
    /// Step announced last.
    announced: u64,
}

impl Outgoing {
    /// Begins the hand-over of a worker that lends at most `loans` packets at a time to the other one.
    pub fn new(rings: OutgoingRings, loans: u16) -> Self {
        Self {
            rings,
            lender: Lender::new(loans.min(LOANS)),
            open: None,
            spare: Vec::with_capacity(PARCELS),
            division: Division::default(),
            sent: 0,
            announced: 0,
        }
    }

    /// Makes sure that the open parcel has room. Returns `false` if all parcels are in use.
    fn has_room(&mut self) -> bool {
        if self.open.as_ref().is_some_and(|open| open.bytes.len() >= FULL) {
            self.send();
        }
        if self.open.is_none() {
            self.take_parcels_back();
            self.open = self.spare.pop();
        }
        self.open.is_some()
    }

    /// Makes sure that the open parcel has room for a record of a class.
    fn has_room_for(&mut self, class: Class, record: usize) -> bool {
        if !self.has_room() {
            return false;
        }
        if !self.division.admits(class, record, self.free()) {
            self.take_parcels_back();
        }
        self.division.admits(class, record, self.free())
    }

    /// Takes the parcels back that the other worker has returned, with the bytes of their classes.
    fn take_parcels_back(&mut self) {
        while let Ok(mut parcel) = self.rings.empty.pop() {
            self.division.take_back(&mut parcel.parts);
            self.spare.push(parcel);
        }
    }

    /// Returns the bytes that records may still take.
    fn free(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |open| FULL.saturating_sub(open.bytes.len()));
        open + self.spare.len() * FULL
    }

    /// Returns the load of a principal.
    pub fn load(&self, principal: PrincipalId) -> HandoverLoad {
        self.division.load_of(principal)
    }

    /// Forgets the lost packets of a principal.
    pub fn forget(&mut self, principal: PrincipalId) {
        self.division.forget(principal);
    }

    /// Puts a packet into the open parcel: its front, and a loan of the rest; or all its bytes.
    ///
    /// # Errors
    /// The packet, if no parcel has room for its class.
    pub fn put(&mut self, packet: Packet, note: Note<'_>) -> Result<(), Packet> {
        let Note { errand, transport, filters, payer } = note;
        let class = Class::of(errand, &packet, payer);
        let front = self.lender.front_of(&packet);
        let filters = filters.get(..FILTERS).unwrap_or(filters);
        let length = front.unwrap_or_else(|| packet.len()) as u32;
        let record = HEADER + filters.len() * FILTER + length as usize;
        if !self.has_room_for(class, record) {
            self.division.refuse(class);
            return Err(packet);
        }
        let Self { open: Some(open), lender, division, .. } = self else { return Err(packet) };
        division.add(class, record as u32, &mut open.parts);
        let mut header = header(errand, &packet, transport, filters.len());
        header[12..16].copy_from_slice(&length.to_le_bytes());
        header[31] |= if front.is_some() { IS_LENT } else { 0 };
        open.bytes.extend_from_slice(&header);
        filters.iter().for_each(|filter| open.bytes.extend_from_slice(&filter.to_le_bytes()));
        let Some(front) = front else {
            packet.frames().for_each(|bytes| open.bytes.extend_from_slice(bytes));
            return Ok(());
        };
        open.bytes.extend_from_slice(packet.data().get(..front).unwrap_or_default());
        // Can't fail: `front_of` has found a free slot, and the packet long enough.
        if let Ok(loan) = lender.lend(packet, front) {
            open.loans.push_back(loan);
        }
        Ok(())
    }

    /// Announces a step after all packets put so far. If no parcel has room, a later call announces it.
    pub fn announce(&mut self, step: u64) {
        if self.announced == step || !self.has_room() {
            return;
        }
        let Some(open) = &mut self.open else { return };
        let mut header = [0; HEADER];
        header[0] = STEP;
        header[16..24].copy_from_slice(&step.to_le_bytes());
        open.bytes.extend_from_slice(&header);
        self.announced = step;
    }

    fn send(&mut self) {
        if let Some(parcel) = self.open.take() {
            // Can't fail: the ring has a slot for each parcel.
            let _ = self.rings.parcels.push(parcel);
            self.sent += 1;
        }
    }

    /// Sends the open parcel if fewer than [`UNDER_WAY`] parcels are unread. Otherwise the parcel stays open
    /// until it is full.
    pub fn publish(&mut self) {
        if self.has_records() && PARCELS - self.rings.parcels.slots() < UNDER_WAY {
            self.send();
        }
    }

    /// Returns the number of parcels sent since the last call.
    pub fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    /// Releases the packets whose loans have ended, and takes returned parcels back.
    pub fn take_back(&mut self) {
        self.take_parcels_back();
        while let Ok(ended) = self.rings.ended.pop() {
            self.lender.take_back(ended);
        }
    }

    /// Returns the bytes of the open parcel.
    #[cfg(test)]
    pub fn unsent_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.bytes.len())
    }

    /// Returns whether a partly filled parcel or this step still has to be sent.
    pub fn is_waiting(&self, step: u64) -> bool {
        self.has_records() || self.announced != step
    }

    /// Whether the open parcel has records.
    fn has_records(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.bytes.is_empty())
    }
}

/// Returns the header of a packet's record, without its length.
fn header(errand: Errand, packet: &Packet, transport: Transport, filters: usize) -> [u8; HEADER] {
    let Transport { protocol, ports, tcp_flags } = transport;
    let mut header = [0; HEADER];
    header[0] = errand as u8;
    header[1] = packet.exceptions.bits();
    header[2..4].copy_from_slice(&(packet.network_offset() as u16).to_le_bytes());
    header[4..6].copy_from_slice(&packet.port.0.to_le_bytes());
    header[6..8].copy_from_slice(&packet.out_port.0.to_le_bytes());
    header[8..10].copy_from_slice(&ports.0.to_le_bytes());
    header[10..12].copy_from_slice(&ports.1.to_le_bytes());
    header[16..20].copy_from_slice(&packet.hash.to_le_bytes());
    header[20..22].copy_from_slice(&packet.queue.0.to_le_bytes());
    header[22] = filters as u8;
    header[23] = protocol;
    match errand {
        // The next hop follows from the flow.
        Errand::Flow => header[24..27].copy_from_slice(&[packet.tag, packet.passes, packet.is_framed.into()]),
        Errand::Transmit | Errand::Host => {
            header[24..28].copy_from_slice(&packet.next_hop.0.to_le_bytes());
        }
    }
    header[28..30].copy_from_slice(&packet.trace.to_le_bytes());
    header[30] = tcp_flags.unwrap_or(0);
    header[31] = if tcp_flags.is_some() { HAS_TCP_FLAGS } else { 0 };
    header
}

/// Hand-over from another worker.
#[derive(Debug)]
pub(super) struct Incoming {
    rings: IncomingRings,
    borrower: Borrower,
    /// Parcel that is being read, and the offset of its next record.
    open: Option<(Parcel, usize)>,
    /// Step received last.
    step: u64,
}

impl Incoming {
    pub fn new(rings: IncomingRings) -> Self {
        Self { rings, borrower: Borrower::new(LOANS), open: None, step: 0 }
    }

    /// Returns the step that the other worker has announced last.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Opens the next parcel if the open parcel has been read to its end. Returns whether a parcel is open.
    fn advance(&mut self) -> bool {
        if self.open.as_ref().is_some_and(|(parcel, at)| *at < parcel.bytes.len()) {
            return true;
        }
        if let Some((mut parcel, _)) = self.open.take() {
            parcel.bytes.clear();
            // Can't fail: the ring has a slot for each parcel.
            let _ = self.rings.empty.push(parcel);
        }
        self.open = self.rings.parcels.pop().ok().map(|parcel| (parcel, 0));
        self.open.is_some()
    }

    /// Returns the header of the next record, if there is one.
    fn header(&mut self) -> Option<[u8; HEADER]> {
        if !self.advance() {
            return None;
        }
        let (parcel, at) = self.open.as_ref()?;
        parcel.bytes.get(*at..)?.first_chunk().copied()
    }

    /// Returns the next packet, in memory of `pool`; `None` if there is none.
    pub fn next(&mut self, pool: &Pool) -> Option<Handed<'_>> {
        let mut header = self.header()?;
        while header[0] == STEP {
            self.step = u64::from_le_bytes(header[16..24].try_into().unwrap_or_default());
            self.open.iter_mut().for_each(|(_, at)| *at += HEADER);
            header = self.header()?;
        }
        let half = |from: usize| u16::from_le_bytes([header[from], header[from + 1]]);
        let word = |from: usize| u32::from(half(from)) | u32::from(half(from + 2)) << 16;
        let (Parcel { bytes, loans, .. }, at) = self.open.as_mut()?;
        let length = word(12) as usize;
        let filters = *at + HEADER;
        let start = filters + usize::from(header[22]) * FILTER;
        *at = start + length;
        let front = bytes.get(start..start + length)?;
        let packet = match header[31] & IS_LENT != 0 {
            true => self.borrower.borrow(pool, front, loans.pop_front()?),
            false => pool.packet_from(front),
        };
        Some(Handed {
            errand: match header[0] {
                0 => Errand::Flow,
                1 => Errand::Transmit,
                _ => Errand::Host,
            },
            packet: packet.map(|mut packet| {
                packet.set_network(half(2).into());
                packet
            }),
            exceptions: Exceptions::from_bits(header[1]),
            port: PortId(half(4)),
            out_port: PortId(half(6)),
            transport: Transport {
                protocol: header[23],
                ports: (half(8), half(10)),
                tcp_flags: (header[31] & HAS_TCP_FLAGS != 0).then_some(header[30]),
            },
            hash: word(16),
            queue: QueueId(half(20)),
            next_hop: NextHopIndex(word(24)),
            tag: header[24],
            passes: header[25],
            is_framed: header[26] != 0,
            trace: half(28),
            counts_for: bytes.get(filters..start)?,
        })
    }

    /// Returns the loans that have ended to the lender.
    pub fn return_loans(&mut self) {
        while let Some(ended) = self.borrower.ended() {
            // Can't fail: the ring has a slot for each loan.
            let _ = self.rings.ended.push(ended);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.open.as_ref().is_none_or(|(parcel, at)| *at >= parcel.bytes.len())
            && self.rings.parcels.is_empty()
    }
}
