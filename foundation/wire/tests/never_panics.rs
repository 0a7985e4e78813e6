//! Property test: no decoder panics, whatever the octets are. The fuzz targets run the same exercises for
//! longer.

mod exercise;

use exercise::DECODERS;
use proptest::collection::vec;
use proptest::prelude::*;

/// Arbitrary octets. Some begin like a packet, so that the decoders get beyond their first check.
fn octets() -> impl Strategy<Value = Vec<u8>> {
    let starts: [&[u8]; 12] = [
        &[],
        &[0x47, 0, 0, 20],
        &[0x45, 0, 0, 40],
        &[0x4f, 0, 0, 60],
        &[0x60, 0, 0, 0, 0, 48, 0, 64],
        &[0x60, 0, 0, 0, 0, 48, 43, 64],
        &[0x60, 0, 0, 0, 0, 48, 44, 64],
        &[135, 0],
        &[136, 0],
        &[137, 0],
        &[8, 0],
        &[0, 1, 8, 0, 6, 4, 0, 1],
    ];
    let start = prop::sample::select(starts.to_vec());
    (start, vec(any::<u8>(), 0..160)).prop_map(|(start, rest)| [start, &rest].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_decoder_panics_on_arbitrary_octets(data in octets()) {
        for (_, decode) in DECODERS {
            decode(&data);
        }
    }

    #[test]
    fn reading_mac_addresses_does_not_panic_on_almost_right_text(text in "[0-9a-gA-G:+ é-]{0,20}") {
        exercise::mac_addr(text.as_bytes());
    }
}

#[test]
fn no_decoder_panics_on_octets_that_are_all_the_same() {
    for length in 0..130 {
        for octet in 0..=u8::MAX {
            let data = vec![octet; length];
            DECODERS.iter().for_each(|(_, decode)| decode(&data));
        }
    }
}
