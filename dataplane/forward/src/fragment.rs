//! Fragmentation of IPv4 packets: RFC 791, 3.2; RFC 1812, 4.2.2.7.

use millrace_packet::{Packet, Pool};
use millrace_wire::ipv4::{self, HEADER_LEN, MAX_HEADER_LEN, option};
use millrace_wire::tlv;

/// Reason why a packet could not be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// The header is not whole, or the packet ends before its total length.
    #[error("ipv4: the packet is shorter than its header or total length")]
    Truncated,
    /// The packet has the don't-fragment flag.
    #[error("ipv4: the packet has \"don't fragment\" set")]
    DontFragment,
    /// The MTU leaves less than 8 bytes of payload after the header.
    #[error(
        "ipv4: an MTU of {mtu} bytes leaves less than 8 bytes of payload after a header of {header_len} \
         bytes; the least MTU that always suffices is 68 bytes"
    )]
    MtuTooSmall {
        /// MTU in bytes.
        mtu: usize,
        /// Length of the packet's header in bytes.
        header_len: usize,
    },
    /// The packet is a fragment of a packet that would be longer than 65,535 bytes.
    #[error("ipv4: the fragment ends beyond byte 65535 of its original packet")]
    TooLong,
    /// The pool has too few frames.
    #[error("no packet memory left for fragments")]
    NoMemory,
}

/// Cuts an IPv4 packet into fragments of at most `mtu` bytes, and appends them to `out`. The packet's network
/// offset must be set. The fragments begin at the network header, keep the packet's annotations and have
/// headroom. A packet that fits becomes a single fragment without link header and padding. The packet may be
/// a chain, and may be a fragment itself.
///
/// # Errors
/// [`FragmentError`], with the packet; in this case `out` is unchanged.
pub fn fragment4(
    pool: &Pool,
    packet: Packet,
    mtu: usize,
    out: &mut Vec<Packet>,
) -> Result<(), (FragmentError, Packet)> {
    let before = out.len();
    match cut(pool, &packet, mtu, out) {
        Ok(()) => Ok(()),
        Err(error) => {
            out.truncate(before);
            Err((error, packet))
        }
    }
}

/// IPv4 header that fragments share, before the fields that differ between them are set.
struct Template {
    octets: [u8; MAX_HEADER_LEN],
    len: usize,
}

impl Template {
    /// Returns the template for the first fragment: the whole header.
    fn first(header: &[u8]) -> Self {
        let mut octets = [0; MAX_HEADER_LEN];
        octets.iter_mut().zip(header).for_each(|(place, octet)| *place = *octet);
        Self { octets, len: header.len().min(MAX_HEADER_LEN) }
    }

    /// Returns the template for later fragments: the header with only those options that each fragment must
    /// have.
    fn later(header: &[u8]) -> Self {
        let options = ipv4::Packet::new_unchecked(header);
        let options = options.options().map_while(Result::ok);
        let kept = options.filter(|found| found.kind() != tlv::NO_OPERATION && option::is_copied(found));
        let octets = header.iter().take(HEADER_LEN).chain(kept.flat_map(|found| found.octets));
        let mut later = Self { octets: [0; MAX_HEADER_LEN], len: 0 };
        for (place, octet) in later.octets.iter_mut().zip(octets) {
            *place = *octet;
            later.len += 1;
        }
        // The padding to a whole word is 0, which is the end-of-options octet.
        later.len = later.len.next_multiple_of(4);
        ipv4::Packet::new_unchecked(&mut later.octets[..]).set_header_len(later.len);
        later
    }
}

fn cut(pool: &Pool, packet: &Packet, mtu: usize, out: &mut Vec<Packet>) -> Result<(), FragmentError> {
    let header = ipv4::Packet::new_checked(packet.network()).map_err(|_| FragmentError::Truncated)?;
    let (header_len, total) = (header.header_len(), usize::from(header.total_len()));
    let payload = total.checked_sub(header_len).ok_or(FragmentError::Truncated)?;
    if total > packet.network_len() {
        return Err(FragmentError::Truncated);
    }
    if header.dont_fragment() && total > mtu {
        return Err(FragmentError::DontFragment);
    }
    if total > mtu && mtu < header_len + 8 {
        return Err(FragmentError::MtuTooSmall { mtu, header_len });
    }
    if usize::from(header.fragment_offset()) + payload > 65_535 && total > mtu {
        return Err(FragmentError::TooLong);
    }
    let mut template = Template::first(header.header());
    let mut done = 0;
    loop {
        let rest = payload.saturating_sub(done);
        let last = rest + template.len <= mtu;
        let here = if last { rest } else { mtu.saturating_sub(template.len) & !7 };
        out.push(piece(pool, packet, &template, done, here, last).ok_or(FragmentError::NoMemory)?);
        done += here;
        if last {
            return Ok(());
        }
        if done == here {
            template = Template::later(header.header());
        }
    }
}

/// Returns the fragment with `count` bytes of the packet's payload, from offset `from` on.
fn piece(
    pool: &Pool,
    packet: &Packet,
    template: &Template,
    from: usize,
    count: usize,
    last: bool,
) -> Option<Packet> {
    let whole = ipv4::Packet::new_unchecked(packet.network());
    let mut fragment = pool.packet_from(template.octets.get(..template.len)?)?;
    let mut header = ipv4::Packet::new_unchecked(fragment.data_mut());
    header.set_total_len((template.len + count) as u16);
    header.set_fragment_offset(whole.fragment_offset().wrapping_add(from as u16));
    header.set_more_fragments(!last || whole.more_fragments());
    header.fill_checksum();
    let start = packet.network_offset() + whole.header_len() + from;
    if !append_range(pool, &mut fragment, packet, start, count) {
        return None;
    }
    *fragment = **packet;
    fragment.set_network(0);
    fragment.set_transport(template.len);
    Some(fragment)
}

/// Appends `count` bytes of `from`, from offset `start` on, to `to`. Returns `false` if the pool has too few
/// frames.
pub(crate) fn append_range(pool: &Pool, to: &mut Packet, from: &Packet, start: usize, count: usize) -> bool {
    let (mut skip, mut left) = (start, count);
    for frame in from.frames() {
        let (skipped, rest) = frame.split_at_checked(skip).unwrap_or((frame, &[]));
        let here = rest.get(..left).unwrap_or(rest);
        skip -= skipped.len();
        left -= here.len();
        if !here.is_empty() && !to.append(pool, here) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_packets::{change4, ip4};
    use millrace_packet::Annotations;
    use millrace_units::PortId;
    use millrace_wire::Protocol;
    use proptest::prelude::*;

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// Puts a link header before a packet and link padding after it, and cuts the packet into fragments.
    /// `bytes`: the packet without both.
    fn fragments(bytes: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, FragmentError> {
        let pool = Pool::new(4096).unwrap();
        let mut packet = pool.packet_from(&[&[0xee; 14][..], bytes, &[0xdd; 9]].concat()).unwrap();
        packet.set_network(14);
        packet.out_port = PortId(5);
        let mut out = Vec::new();
        fragment4(&pool, packet, mtu, &mut out).map_err(|(error, _)| error)?;
        for fragment in &out {
            assert_eq!((fragment.network_offset(), fragment.out_port), (0, PortId(5)));
            assert!(fragment.headroom() >= 22);
        }
        Ok(out.iter().map(Packet::to_vec).collect())
    }

    /// Reassembles fragments in any order. Returns the payload, whether the last fragment is present, and the
    /// offset of the first fragment.
    fn reassemble(fragments: &[Vec<u8>]) -> (Vec<u8>, bool, usize) {
        let mut parts: Vec<_> = fragments
            .iter()
            .map(|octets| {
                let header = ipv4::Packet::new_checked(&octets[..]).unwrap();
                (usize::from(header.fragment_offset()), header.more_fragments(), header.payload().to_vec())
            })
            .collect();
        parts.sort();
        let start = parts[0].0;
        let mut whole = Vec::new();
        for (offset, more, part) in &parts {
            assert_eq!(*offset, start + whole.len(), "no gap and no overlap");
            assert!(*more || *offset == parts[parts.len() - 1].0, "only the last may end the packet");
            whole.extend_from_slice(part);
        }
        (whole, !parts[parts.len() - 1].1, start)
    }

    fn check_each(fragments: &[Vec<u8>], mtu: usize) {
        for (number, octets) in fragments.iter().enumerate() {
            assert!(octets.len() <= mtu);
            assert_eq!(ipv4::sanity(octets, octets.len()), Ok(()), "fragment {number}");
            let header = ipv4::Packet::new_checked(&octets[..]).unwrap();
            assert_eq!(usize::from(header.total_len()), octets.len());
            assert!(number + 1 == fragments.len() || header.payload().len() % 8 == 0);
        }
    }

    /// Test case FR-01.
    #[test]
    fn four_thousand_bytes_at_several_mtus() {
        let bytes = ip4(Protocol::UDP, &[], &payload(3980));
        for mtu in [68, 576, 1006, 1500] {
            let fragments = fragments(&bytes, mtu).unwrap();
            check_each(&fragments, mtu);
            assert_eq!(reassemble(&fragments), (payload(3980), true, 0));
        }
        assert_eq!(fragments(&bytes, 1500).unwrap().len(), 3);
        assert_eq!(fragments(&bytes, 4000).unwrap(), [bytes], "what fits stays as it is");
    }

    /// Test case FR-02.
    #[test]
    fn fragments_of_a_fragment_keep_its_offset() {
        for (offset, more) in [(800u16, true), (800, false), (0, true)] {
            let mut bytes = ip4(Protocol::UDP, &[], &payload(1000));
            change4(&mut bytes, |header| {
                header.set_fragment_offset(offset);
                header.set_more_fragments(more);
            });
            let fragments = fragments(&bytes, 300).unwrap();
            check_each(&fragments, 300);
            assert_eq!(reassemble(&fragments), (payload(1000), !more, offset.into()));
            let flags: Vec<_> =
                fragments.iter().map(|f| ipv4::Packet::new_unchecked(&f[..]).more_fragments()).collect();
            assert_eq!(flags, [true, true, true, more]);
        }
    }

    /// Test case FR-03: option 0x9e has the copy flag, option 7 (record route) does not have it.
    #[test]
    fn copied_options_are_in_all_fragments_and_others_in_the_first() {
        let options = [1, 7, 7, 4, 0, 0, 0, 0, 0x9e, 4, 0xaa, 0xbb, 1];
        let bytes = ip4(Protocol::UDP, &options, &payload(500));
        let fragments = fragments(&bytes, 200).unwrap();
        check_each(&fragments, 200);
        assert_eq!(reassemble(&fragments).0, payload(500));
        let header = |number: usize| ipv4::Packet::new_unchecked(&fragments[number][..]).header().to_vec();
        assert_eq!((header(0).len(), &header(0)[20..33]), (36, &options[..]));
        for number in 1..fragments.len() {
            assert_eq!(header(number)[20..], [0x9e, 4, 0xaa, 0xbb]);
        }
    }

    /// Test case FR-04: the caller gets the packet back, so that it can send "fragmentation needed".
    #[test]
    fn a_packet_that_must_not_be_fragmented_comes_back() {
        let pool = Pool::new(8).unwrap();
        let mut bytes = ip4(Protocol::UDP, &[], &payload(1481));
        change4(&mut bytes, |header| header.set_dont_fragment(true));
        let mut out = Vec::new();
        let (error, packet) =
            fragment4(&pool, pool.packet_from(&bytes).unwrap(), 1500, &mut out).unwrap_err();
        assert_eq!((error, packet.to_vec(), out.len()), (FragmentError::DontFragment, bytes, 0));
    }

    #[test]
    fn without_memory_nothing_is_lost() {
        let pool = Pool::new(6).unwrap();
        let packet = pool.packet_from(&ip4(Protocol::UDP, &[], &payload(1900))).unwrap();
        let (before, mut out) = (pool.in_use(), Vec::new());
        let (error, packet) = fragment4(&pool, packet, 100, &mut out).unwrap_err();
        assert_eq!((error, pool.in_use(), out.len()), (FragmentError::NoMemory, before, 0));
        assert_eq!(packet.len(), 1920);
    }

    #[test]
    fn an_mtu_without_room_and_an_offset_without_end_are_refused() {
        let options = [0x9e, 40].into_iter().chain([0; 38]).collect::<Vec<_>>();
        let bytes = ip4(Protocol::UDP, &options, &payload(100));
        assert_eq!(fragments(&bytes, 67), Err(FragmentError::MtuTooSmall { mtu: 67, header_len: 60 }));
        assert!(fragments(&bytes, 68).is_ok());
        let mut bytes = ip4(Protocol::UDP, &[], &payload(100));
        change4(&mut bytes, |header| header.set_fragment_offset(65_528));
        assert_eq!(fragments(&bytes, 68), Err(FragmentError::TooLong));
    }

    #[test]
    fn annotations_travel_with_each_fragment() {
        let pool = Pool::new(8).unwrap();
        let mut packet = pool.packet_from(&ip4(Protocol::UDP, &[], &payload(100))).unwrap();
        *packet = Annotations { hash: 77, ..Annotations::EMPTY };
        let mut out = Vec::new();
        fragment4(&pool, packet, 100, &mut out).unwrap();
        assert!(out.len() == 2 && out.iter().all(|fragment| fragment.hash == 77));
    }

    /// A plugin may have cut a packet off, so the function has to check the lengths itself.
    #[test]
    fn packet_shorter_than_its_header_or_total_length_is_refused() {
        let whole = ip4(Protocol::UDP, &[1; 40], &payload(1400));
        let pool = Pool::new(64).unwrap();
        let refusal = |bytes: &[u8]| {
            let mut out = Vec::new();
            fragment4(&pool, pool.packet_from(bytes).unwrap(), 576, &mut out).err().map(|(error, _)| error)
        };
        assert_eq!(refusal(&whole), None);
        for length in 0..whole.len() {
            assert_eq!(refusal(&whole[..length]), Some(FragmentError::Truncated), "{length} bytes");
        }
        for words in 0..5 {
            let mut lying = whole.clone();
            lying[0] = 0x40 | words;
            assert_eq!(refusal(&lying), Some(FragmentError::Truncated), "{words} words");
        }
        let mut lying = whole;
        lying[2..4].copy_from_slice(&59_u16.to_be_bytes());
        assert_eq!(refusal(&lying), Some(FragmentError::Truncated));
    }

    proptest! {
        /// Test cases FR-01 to FR-03.
        #[test]
        fn reassembled_fragments_are_the_original(
            len in 0usize..9000, mtu in 68usize..2500, options in proptest::collection::vec(any::<u8>(), 0..=40),
            offset in 0u16..3000, more: bool,
        ) {
            let mut bytes = ip4(Protocol::UDP, &options, &payload(len));
            change4(&mut bytes, |header| {
                header.set_fragment_offset(offset * 8);
                header.set_more_fragments(more);
            });
            let fragments = fragments(&bytes, mtu).unwrap();
            check_each(&fragments, mtu);
            prop_assert_eq!(reassemble(&fragments), (payload(len), !more, usize::from(offset) * 8));
        }
    }
}
