use super::*;
use crate::FRAME_SIZE;
use proptest::prelude::*;

#[test]
fn metadata_fills_one_cache_line() {
    assert_eq!(size_of::<Frame>(), 64);
}

#[test]
fn bytes_in_front_leave_header_offsets_valid() {
    let pool = Pool::new(2).unwrap();
    let mut packet = pool.packet_from(b"ethernetheader").unwrap();
    packet.set_network(8);
    assert!(packet.trim_front(8));
    assert_eq!((packet.network_offset(), packet.network()), (0, &b"header"[..]));
    packet.prepend(4).unwrap().copy_from_slice(b"LINKheader");
    assert_eq!((packet.network_offset(), packet.network()), (4, &b"header"[..]));
}

#[test]
fn copy_owns_its_first_frame_and_shares_the_rest() {
    let pool = Pool::new(16).unwrap();
    let bytes: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
    let packet = pool.packet_from(&bytes).unwrap();
    let before = pool.in_use();
    let mut copy = packet.copy(&pool).unwrap();
    assert_eq!(pool.in_use(), before + 1);
    assert!(packet.is_shared() && copy.is_shared());
    copy.data_mut()[0] = 99;
    assert_eq!(packet.to_vec(), bytes);
    let mut own = packet.copy(&pool).unwrap();
    assert!(own.make_writable(&pool));
    assert!(own.truncate(2100));
    assert_eq!(own.to_vec(), bytes[..2100]);
    drop((packet, own));
    assert_eq!(copy.to_vec()[1..], bytes[1..]);
    drop(copy);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn counts_beyond_the_first_frame_leave_a_packet_unchanged() {
    let pool = Pool::new(4).unwrap();
    let mut packet = pool.packet_from(b"packet").unwrap();
    assert!(packet.prepend(crate::HEADROOM + 1).is_none());
    assert!(packet.prepend(usize::MAX).is_none());
    assert!(!packet.trim_front(7));
    assert!(!packet.trim_front(usize::MAX));
    assert_eq!((packet.data(), packet.headroom()), (&b"packet"[..], crate::HEADROOM));
    for offset in [6, 7, 65_535, 65_536, 65_550, usize::MAX] {
        packet.set_network(offset);
        packet.set_transport(offset);
        assert_eq!((packet.network_offset(), packet.transport_offset()), (6, 6));
        assert_eq!((packet.network(), packet.network_len()), (&[][..], 0));
    }
}

#[test]
fn frames_that_copies_share_are_neither_cut_nor_split_off_nor_extended() {
    let pool = Pool::new(16).unwrap();
    let bytes: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
    let packet = pool.packet_from(&bytes).unwrap();
    let first = packet.data().len();
    let mut copy = packet.copy(&pool).unwrap();
    for length in [first + 1, first + FRAME_SIZE, first + FRAME_SIZE + 1, 4999] {
        assert!(!copy.truncate(length), "{length}");
    }
    assert!(copy.truncate(5000) && copy.truncate(usize::MAX));
    assert!(!copy.append(&pool, b"more"));
    let mut copy = copy.split().unwrap_err();
    assert_eq!((copy.to_vec(), packet.to_vec()), (bytes.clone(), bytes.clone()));
    assert!(copy.truncate(first), "the first frame is the copy's own");
    assert_eq!((copy.to_vec(), packet.to_vec()), (bytes[..first].to_vec(), bytes.clone()));
    let chain = packet.into_raw().unwrap_err();
    assert_eq!(chain.to_vec(), bytes);
    let (head, rest) = chain.split().unwrap();
    assert_eq!((head.data(), rest.unwrap().to_vec()), (&bytes[..first], bytes[first..].to_vec()));
    drop((copy, head));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn frames_that_are_not_there_come_back_as_no_packet() {
    let pool = Pool::new(2).unwrap();
    let index = pool.packet_from(b"lent").unwrap().into_raw().unwrap();
    // SAFETY: neither call returns a packet, so the frame stays released.
    let wrong = unsafe { (pool.packet_from_raw(2, 0, 0), pool.packet_from_raw(index, 2000, 49)) };
    assert!(wrong.0.is_none() && wrong.1.is_none());
    // SAFETY: `into_raw` released the frame above, and no call has taken it back.
    let back = unsafe { pool.packet_from_raw(index, 256, 4) };
    assert_eq!(back.unwrap().data(), b"lent");
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn appending_more_than_the_pool_has_adds_nothing() {
    let pool = Pool::new(2).unwrap();
    let mut packet = pool.packet_from(b"abc").unwrap();
    assert!(!packet.append(&pool, &[0; 3 * FRAME_SIZE]));
    assert_eq!(packet.to_vec(), b"abc");
    assert_eq!(pool.in_use(), 1);
}

proptest! {
    /// Setting all header offsets by one write has the same result as setting them one by one, and the view
    /// shows the packet's first bytes.
    #[test]
    fn headers_noted_at_once_equal_headers_noted_singly(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        trimmed in 0_usize..40,
        (network, transport) in (0_u16..300, 0_u16..300),
        length in 0_usize..300,
    ) {
        let pool = Pool::new(4).unwrap();
        let [mut one, mut other] = [0, 1].map(|_| {
            let mut packet = pool.packet_from(&bytes).unwrap();
            assert!(packet.trim_front(trimmed.min(bytes.len())));
            packet
        });
        let opened = one.open();
        prop_assert_eq!((opened.data(), opened.is_linear()), (other.data(), true));
        opened.note(length, network, transport).tag = 7;
        prop_assert!(other.truncate(length));
        other.set_network(network.into());
        other.set_transport(transport.into());
        prop_assert_eq!((one.headroom(), one.data(), one.tag), (other.headroom(), other.data(), 7));
        prop_assert_eq!(one.network_offset(), other.network_offset());
        prop_assert_eq!(one.transport_offset(), other.transport_offset());
        let first = other.data().first_chunk::<34>().copied();
        let length = other.len();
        let start = one.first_mut::<34>().map(|start| (*start.bytes, start.length));
        prop_assert_eq!(start, first.map(|first| (first, length)));
    }

    #[test]
    fn a_chain_holds_the_bytes_that_a_vector_holds(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3000), 1..6),
        cut in 0usize..16000,
        from in 0usize..16000,
    ) {
        let pool = Pool::new(64).unwrap();
        let mut packet = pool.allocate().unwrap();
        let mut twin = Vec::new();
        for part in &parts {
            prop_assert!(packet.append(&pool, part));
            twin.extend_from_slice(part);
        }
        prop_assert!(packet.truncate(cut));
        twin.truncate(cut);
        prop_assert_eq!(packet.to_vec(), twin.clone());
        prop_assert_eq!(packet.len(), twin.len());
        let mut read = vec![0; 700];
        let count = packet.read(from, &mut read);
        let expected = &twin[from.min(twin.len())..];
        prop_assert_eq!(&read[..count], &expected[..expected.len().min(700)]);
        drop(packet);
        prop_assert_eq!(pool.in_use(), 0);
    }
}
