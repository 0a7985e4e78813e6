//! Segmentation of GSO packets: a host with segmentation offload sends up to 64 KB in one frame, for its NIC
//! to segment.
//!
//! On a virtual link no NIC segments the frame. The port's segments equal those that a NIC would send (TCP:
//! RFC 9293, 3.7.1; flags as RFC 3168, 6.1.2 requires and as NICs set them).

use std::collections::VecDeque;

use millrace_packet::{DropReason, Packet, Pool};
use millrace_wire::Protocol;
use millrace_wire::checksum::{checksum, sum_slices, transport_checksum};

use super::transport_header::TransportHeader;

/// Maximum length in bytes of link, network and transport header together. This is enough for two tags, and
/// for more extension headers than occur.
const MAX_HEADERS: usize = 256;

/// Maximum number of segments of a GSO packet: 64 KiB in segments of 64 bytes. Senders with segmentation
/// offload use at least 88 bytes per segment. A higher limit would only let one frame become thousands of
/// packets.
const MOST_SEGMENTS: usize = 1024;

/// Properties of a GSO packet that its sender knows and that its bytes don't show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// Transport payload of each segment in bytes, as the sender requested from its NIC. `None` if unknown:
    /// then a TCP packet is cut to the MTU, and a UDP packet can't be cut.
    pub segment_payload: Option<u16>,
}

/// Result of the segmentation of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segmented {
    /// Number of packets added to the output: 1 for a frame that needed no cutting.
    Into(u64),
    /// The frame cannot be cut, or there was no memory; nothing was added to the output.
    Dropped(DropReason),
}

/// Cuts `packet` into segments of at most `segment_mtu` network-layer bytes, if it is longer than `mtu` or
/// holds several UDP datagrams. Segments are complete packets with correct checksums, and are appended to
/// `out` in order.
///
/// Drops two kinds of packets as [`DropReason::LinkOversize`]. The first are packets longer than `mtu` that
/// are neither TCP nor known to hold several UDP datagrams. The second are packets that would become more
/// than 1,024 segments.
pub fn segment(
    pool: &Pool,
    packet: Packet,
    mtu: u16,
    segment_mtu: u16,
    known: Known,
    out: &mut VecDeque<Packet>,
) -> Segmented {
    match Cut::plan(&packet, mtu, segment_mtu, known) {
        Plan::Whole => {
            out.push_back(packet);
            Segmented::Into(1)
        }
        Plan::Impossible => Segmented::Dropped(DropReason::LinkOversize),
        Plan::Cut(cut) => {
            let before = out.len();
            for number in 0..cut.segments() {
                let Some(segment) = cut.make(pool, &packet, number) else {
                    out.truncate(before);
                    return Segmented::Dropped(DropReason::NoMemory);
                };
                out.push_back(segment);
            }
            Segmented::Into((out.len() - before) as u64)
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "it lives on the stack for one call; a box would allocate")]
enum Plan {
    Whole,
    Impossible,
    Cut(Cut),
}

/// Parameters of the segmentation of a packet.
struct Cut {
    header: TransportHeader,
    headers: [u8; MAX_HEADERS],
    headers_length: usize,
    payload: usize,
    segment_payload: usize,
}

impl Cut {
    fn plan(packet: &Packet, mtu: u16, segment_mtu: u16, known: Known) -> Plan {
        let mut headers = [0; MAX_HEADERS];
        let count = packet.read(0, &mut headers);
        let read = headers.get(..count).unwrap_or(&headers);
        let Some(header) = TransportHeader::locate(read) else {
            return if is_short(packet, read, mtu) { Plan::Whole } else { Plan::Impossible };
        };
        let fits = header.transport + header.length - header.network <= usize::from(mtu);
        if fits && (header.protocol != Protocol::UDP || known.segment_payload.is_none()) {
            return Plan::Whole;
        }
        match Self::measure(header, headers, count, packet.len(), segment_mtu, known) {
            Some(cut) if cut.segments() > MOST_SEGMENTS => Plan::Impossible,
            Some(cut) if cut.segments() > 1 => Plan::Cut(cut),
            _ if fits => Plan::Whole,
            _ => Plan::Impossible,
        }
    }

    fn measure(
        header: TransportHeader,
        headers: [u8; MAX_HEADERS],
        count: usize,
        packet_length: usize,
        segment_mtu: u16,
        known: Known,
    ) -> Option<Self> {
        let transport_length = match header.protocol {
            Protocol::TCP => usize::from(headers.get(header.transport + 12)? >> 4) * 4,
            Protocol::UDP => 8,
            _ => return None,
        };
        let headers_length = header.transport + transport_length;
        let is_whole = transport_length >= 8
            && headers_length <= count
            && header.transport + header.length <= packet_length
            && (header.protocol == Protocol::UDP || transport_length >= 20);
        let room = (usize::from(segment_mtu) + header.network).checked_sub(headers_length)?;
        let segment_payload = match (header.protocol, known.segment_payload) {
            (Protocol::UDP, asked) => usize::from(asked?),
            (_, Some(asked)) => room.min(asked.into()),
            (_, None) => room,
        };
        let payload = header.length.checked_sub(transport_length)?;
        (is_whole && segment_payload > 0).then_some(Self {
            header,
            headers,
            headers_length,
            payload,
            segment_payload,
        })
    }

    fn segments(&self) -> usize {
        self.payload.div_ceil(self.segment_payload)
    }

    /// Creates segment `number`, counted from 0; `None` when the pool is empty.
    fn make(&self, pool: &Pool, packet: &Packet, number: usize) -> Option<Packet> {
        let start = number * self.segment_payload;
        let length = self.segment_payload.min(self.payload.saturating_sub(start));
        let mut segment = pool.allocate()?;
        if !segment.append(pool, self.headers.get(..self.headers_length)?)
            || !copy_range(pool, &mut segment, packet, self.headers_length + start, length)
        {
            return None;
        }
        self.write_network_header(segment.data_mut(), number, length)?;
        self.write_transport_header(segment.data_mut(), number, length)?;
        self.write_checksum(&mut segment, length)?;
        Some(segment)
    }

    /// Writes the network header of a segment. Returns `None` for a segment that ends within its headers.
    fn write_network_header(&self, data: &mut [u8], number: usize, payload: usize) -> Option<()> {
        let behind = self.headers_length.checked_sub(self.header.network)? + payload;
        let header = data.get_mut(self.header.network..self.header.transport)?;
        if self.header.is_v6 {
            *field(header, 4)? = (behind.checked_sub(40)? as u16).to_be_bytes();
            return Some(());
        }
        *field(header, 2)? = (behind as u16).to_be_bytes();
        let identification = field(header, 4)?;
        *identification = u16::from_be_bytes(*identification).wrapping_add(number as u16).to_be_bytes();
        *field(header, 10)? = [0; 2];
        let checksum = checksum(header);
        *field(header, 10)? = checksum.to_be_bytes();
        Some(())
    }

    fn write_transport_header(&self, data: &mut [u8], number: usize, payload: usize) -> Option<()> {
        let header = data.get_mut(self.header.transport..self.headers_length)?;
        if self.header.protocol == Protocol::UDP {
            *field(header, 4)? = ((8 + payload) as u16).to_be_bytes();
            return Some(());
        }
        const FIN_PSH: u8 = 0x09;
        const CWR: u8 = 0x80;
        let sequence = field(header, 4)?;
        let sent = u32::from_be_bytes(*sequence).wrapping_add((number * self.segment_payload) as u32);
        *sequence = sent.to_be_bytes();
        let [flags] = field(header, 13)?;
        if number + 1 < self.segments() {
            *flags &= !FIN_PSH;
        }
        if number > 0 {
            *flags &= !CWR;
        }
        Some(())
    }

    fn write_checksum(&self, segment: &mut Packet, payload: usize) -> Option<()> {
        let at = if self.header.protocol == Protocol::UDP { 6 } else { 16 };
        let transport = self.header.transport;
        let place = field(segment.data_mut(), transport + at)?;
        // If the sender omitted the UDP checksum, the segments have no checksum either.
        if at == 6 && *place == [0; 2] {
            return Some(());
        }
        *place = [0; 2];
        let length = self.headers_length.checked_sub(transport)? + payload;
        let pseudo = self.header.pseudo_header(segment.data(), length).folded();
        let pseudo = pseudo.to_be_bytes();
        let skip = |(n, bytes): (usize, _)| -> &[u8] {
            let bytes: &[u8] = bytes;
            if n == 0 { bytes.get(transport..).unwrap_or_default() } else { bytes }
        };
        let sum = sum_slices(std::iter::once(&pseudo[..]).chain(segment.frames().enumerate().map(skip)));
        let checksum = transport_checksum(self.header.protocol, sum).to_be_bytes();
        *field(segment.data_mut(), transport + at)? = checksum;
        Some(())
    }
}

/// Returns the `N` bytes of a header at `at` for writing; `None` unless all exist.
fn field<const N: usize>(header: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    header.get_mut(at..)?.first_chunk_mut()
}

/// Returns whether a frame without a known transport header has at most `mtu` bytes after its tags.
fn is_short(packet: &Packet, headers: &[u8], mtu: u16) -> bool {
    let is_tag = |at: usize| matches!(headers.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    let tags = usize::from(is_tag(12)) * (1 + usize::from(is_tag(16)));
    packet.len() <= usize::from(mtu) + 14 + 4 * tags
}

/// Appends `length` bytes of `from`, starting at `offset`.
fn copy_range(pool: &Pool, to: &mut Packet, from: &Packet, offset: usize, length: usize) -> bool {
    let (mut skip, mut left) = (offset, length);
    for bytes in from.frames() {
        let (skipped, rest) = bytes.split_at_checked(skip).unwrap_or((bytes, &[]));
        let here = rest.get(..left).unwrap_or(rest);
        skip -= skipped.len();
        left -= here.len();
        if !here.is_empty() && !to.append(pool, here) {
            return false;
        }
    }
    left == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stateless_offload::test_frame::{Network, TestFrame, sum};
    use proptest::prelude::*;

    const V4: Network = Network::V4 { source: [10, 0, 0, 1], destination: [10, 0, 0, 2], options: 1 };
    const V6: Network = Network::V6 { source: [1; 16], destination: [2; 16], extensions: 1 };

    fn cut(frame: &TestFrame, mtu: u16, known: Known) -> (Segmented, Vec<Vec<u8>>) {
        let pool = Pool::new(4096).unwrap();
        let packet = pool.packet_from(&frame.with_partial_checksum()).unwrap();
        let mut out = VecDeque::new();
        let answer = segment(&pool, packet, mtu, mtu, known, &mut out);
        (answer, out.iter().map(Packet::to_vec).collect())
    }

    /// Returns the expected segment `number` of a frame, with its own part of the payload.
    fn expected(frame: &TestFrame, size: usize, number: usize) -> Vec<u8> {
        let pieces = frame.payload.len().div_ceil(size);
        let piece = frame.payload.chunks(size).nth(number).unwrap().to_vec();
        let mut bytes = TestFrame { payload: piece, ..frame.clone() }.with_partial_checksum();
        let (network, transport) = (14 + 4 * frame.tags, frame.transport_offset());
        if matches!(frame.network, Network::V4 { .. }) {
            let id = 0xfffeu16.wrapping_add(number as u16).to_be_bytes();
            bytes[network + 4..network + 6].copy_from_slice(&id);
            bytes[network + 10..network + 12].fill(0);
            let checksum = (!sum(&bytes[network..transport])).to_be_bytes();
            bytes[network + 10..network + 12].copy_from_slice(&checksum);
        }
        if frame.tcp {
            let sequence = 0xffff_ff00u32.wrapping_add((number * size) as u32).to_be_bytes();
            bytes[transport + 4..transport + 8].copy_from_slice(&sequence);
            let first = if number == 0 { 0x80 } else { 0 };
            let last = if number + 1 == pieces { 0x09 } else { 0 };
            bytes[transport + 13] = 0x10 | first | last;
        }
        let at = transport + if frame.tcp { 16 } else { 6 };
        // The checksum field holds the partial sum, so the sum of all bytes is that of the pseudo-header and
        // the data.
        let checksum = (!sum(&bytes[transport..])).to_be_bytes();
        let checksum = if !frame.tcp && checksum == [0, 0] { [0xff, 0xff] } else { checksum };
        bytes[at..at + 2].copy_from_slice(&checksum);
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn segments_equal_those_of_a_nic(
            v6: bool, tags in 0usize..=2, mtu in 576u16..9000, seed: u8, length in 9000usize..60000,
        ) {
            let payload = (0..length).map(|n| (n as u8).wrapping_mul(seed)).collect();
            let network = if v6 { V6 } else { V4 };
            let frame = TestFrame { network, tcp: true, tags, payload };
            let headers = frame.transport_offset() - 14 - 4 * tags + 32;
            let size = usize::from(mtu) - headers;
            let (answer, segments) = cut(&frame, mtu, Known::default());
            prop_assert_eq!(answer, Segmented::Into(length.div_ceil(size) as u64));
            for (number, segment) in segments.iter().enumerate() {
                prop_assert_eq!(segment, &expected(&frame, size, number));
                prop_assert!(segment.len() <= usize::from(mtu) + 14 + 4 * tags);
            }
        }

        #[test]
        fn datagrams_of_a_known_size_are_cut(v6: bool, size in 1u16..1400, length in 1401usize..20000) {
            let network = if v6 { V6 } else { V4 };
            let frame = TestFrame { network, tcp: false, tags: 0, payload: vec![0x5a; length] };
            let (answer, segments) = cut(&frame, 1500, Known { segment_payload: Some(size) });
            let count = length.div_ceil(size.into());
            if count > MOST_SEGMENTS {
                prop_assert_eq!(answer, Segmented::Dropped(DropReason::LinkOversize));
                return Ok(());
            }
            prop_assert_eq!(answer, Segmented::Into(count as u64));
            for (number, segment) in segments.iter().enumerate() {
                prop_assert_eq!(segment, &expected(&frame, size.into(), number));
            }
        }
    }

    #[test]
    fn frame_that_fits_passes_unchanged() {
        for tcp in [true, false] {
            let frame = TestFrame { network: V4, tcp, tags: 2, payload: vec![1; 1400] };
            let (answer, segments) = cut(&frame, 1500, Known::default());
            assert_eq!((answer, segments), (Segmented::Into(1), vec![frame.with_partial_checksum()]));
        }
    }

    #[test]
    fn frame_that_cannot_be_segmented_is_dropped() {
        let udp = TestFrame { network: V4, tcp: false, tags: 0, payload: vec![1; 3000] };
        assert_eq!(cut(&udp, 1500, Known::default()).0, Segmented::Dropped(DropReason::LinkOversize));
        let pool = Pool::new(8).unwrap();
        let packet = pool.packet_from(&[0xff; 3000]).unwrap();
        let answer = segment(&pool, packet, 1500, 1500, Known::default(), &mut VecDeque::new());
        assert_eq!(answer, Segmented::Dropped(DropReason::LinkOversize));
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn super_frame_of_tiny_segments_is_dropped() {
        for (tcp, size, length) in
            [(true, 1, 60_000), (true, 58, 60_000), (false, 1, 60_000), (false, 1, 1025)]
        {
            let frame = TestFrame { network: V4, tcp, tags: 0, payload: vec![1; length] };
            let (answer, segments) = cut(&frame, 1500, Known { segment_payload: Some(size) });
            assert_eq!(answer, Segmented::Dropped(DropReason::LinkOversize), "{tcp} {size} {length}");
            assert_eq!(segments.len(), 0);
        }
        let frame = TestFrame { network: V4, tcp: true, tags: 0, payload: vec![1; 60_000] };
        let (answer, _) = cut(&frame, 1500, Known { segment_payload: Some(88) });
        assert_eq!(answer, Segmented::Into(60_000_u64.div_ceil(88)));
    }

    #[test]
    fn without_memory_nothing_is_left_behind() {
        let tcp = TestFrame { network: V4, tcp: true, tags: 0, payload: vec![1; 9000] };
        let pool = Pool::new(8).unwrap();
        let packet = pool.packet_from(&tcp.with_partial_checksum()).unwrap();
        let mut out = VecDeque::new();
        let answer = segment(&pool, packet, 1500, 1500, Known::default(), &mut out);
        assert_eq!((answer, out.len()), (Segmented::Dropped(DropReason::NoMemory), 0));
        assert_eq!(pool.in_use(), 0);
    }
}
