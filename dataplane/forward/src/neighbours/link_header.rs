//! Link header of outgoing packets: Ethernet, with up to two VLAN tags.

use millrace_packet::Packet;
use millrace_wire::vlan::StackedTag;
use millrace_wire::{EtherType, MacAddr};

const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const MAX_LEN: usize = ETHERNET_LEN + 2 * TAG_LEN;

/// Prebuilt link header: built once per neighbour and family, applied to each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    bytes: [u8; MAX_LEN],
    len: u8,
}

impl LinkHeader {
    /// Builds the link header of frames from `source` to `destination`. `tags`: VLAN tags, outer first; tags
    /// beyond the second are ignored. `ether_type`: type of the payload.
    pub fn new(source: MacAddr, destination: MacAddr, tags: &[StackedTag], ether_type: EtherType) -> Self {
        let next = ether_type.0;
        let (words, tags) = match tags {
            [] => ([next, 0, 0, 0, 0], 0),
            [tag] => ([tag.tag_protocol.0, tag.control.0, next, 0, 0], 1),
            [outer, inner, ..] => {
                ([outer.tag_protocol.0, outer.control.0, inner.tag_protocol.0, inner.control.0, next], 2)
            }
        };
        let mut bytes = [0; MAX_LEN];
        if let Some((to, rest)) = bytes.split_first_chunk_mut()
            && let Some((from, rest)) = rest.split_first_chunk_mut()
        {
            (*to, *from) = (destination.0, source.0);
            for (place, word) in rest.as_chunks_mut().0.iter_mut().zip(words) {
                *place = word.to_be_bytes();
            }
        }
        let len = (ETHERNET_LEN + tags * TAG_LEN) as u8;
        Self { bytes, len }
    }

    /// Returns the header's bytes: 14, 18 or 22.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or(&self.bytes)
    }

    /// Returns the header's length in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a link header has bytes")]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Replaces the bytes before the packet's network header by this header. The bytes from the network
    /// header on stay unchanged (FW-05). Returns `false`, with nothing changed, if the headroom is too small.
    #[inline(always)]
    #[must_use]
    pub fn apply(&self, packet: &mut Packet) -> bool {
        let old = packet.network_offset();
        if old == ETHERNET_LEN
            && self.len() == ETHERNET_LEN
            && let Some(front) = packet.data_mut().first_chunk_mut::<ETHERNET_LEN>()
            && let Some(header) = self.bytes.first_chunk()
        {
            // Usual case: a copy of constant length is faster.
            *front = *header;
            return true;
        }
        self.replace(old, packet)
    }

    fn replace(&self, old: usize, packet: &mut Packet) -> bool {
        let new = self.as_bytes();
        if packet.headroom() + old < new.len() {
            return false;
        }
        if !packet.trim_front(old) {
            return false;
        }
        let front = packet.prepend(new.len()).and_then(|data| data.get_mut(..new.len()));
        front.map(|front| front.copy_from_slice(new)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_packet::{HEADROOM, Pool};
    use millrace_wire::vlan::Control;
    use proptest::prelude::*;

    const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const DESTINATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    /// Test case ET-03: both tags are written, outer first.
    #[test]
    fn two_tags_stand_between_the_addresses_and_the_type() {
        let tags = [
            StackedTag { tag_protocol: EtherType::SERVICE_VLAN, control: Control(0x6064) },
            StackedTag { tag_protocol: EtherType::VLAN, control: Control(10) },
        ];
        let header = LinkHeader::new(SOURCE, DESTINATION, &tags, EtherType(0x0800));
        let tail = [0x88, 0xa8, 0x60, 0x64, 0x81, 0x00, 0x00, 0x0a, 0x08, 0x00];
        assert_eq!(header.as_bytes()[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        assert_eq!(header.as_bytes()[12..], tail);
    }

    #[test]
    fn frame_without_headroom_is_unchanged() {
        let pool = Pool::new(1).unwrap();
        let mut packet = pool.packet_from(b"network").unwrap();
        assert!(packet.prepend(HEADROOM - 10).is_some());
        packet.set_network(0);
        let before = packet.to_vec();
        assert!(!LinkHeader::new(SOURCE, DESTINATION, &[], EtherType(0x0800)).apply(&mut packet));
        assert_eq!(packet.to_vec(), before);
    }

    proptest! {
        /// Test case FW-05.
        #[test]
        fn the_payload_stays_byte_identical(
            old in 0usize..40, tags in 0usize..3, payload in proptest::collection::vec(any::<u8>(), 1..5000),
        ) {
            let pool = Pool::new(8).unwrap();
            let mut packet = pool.packet_from(&[&vec![0xee; old][..], &payload].concat()).unwrap();
            packet.set_network(old);
            let tag = StackedTag { tag_protocol: EtherType::VLAN, control: Control(7) };
            let header = LinkHeader::new(SOURCE, DESTINATION, &vec![tag; tags], EtherType(0x86dd));
            prop_assert!(header.apply(&mut packet));
            prop_assert_eq!(packet.to_vec(), [header.as_bytes(), &payload].concat());
            prop_assert_eq!(packet.network_offset(), 14 + 4 * tags);
        }
    }
}
