//! Decoders of untrusted bytes: the first byte of an input chooses a decoder, and no bytes make the decoder
//! panic.

#[path = "../../foundation/wire/tests/exercise/mod.rs"]
mod exercise;

use millrace_classify::Filter;
use millrace_port::pcap::Recording;

use exercise::{DECODERS, Decoder};

/// Decoders of other crates than `millrace-wire`.
const OTHERS: [Decoder; 2] = [("filter", filter), ("pcap_port", pcap_port)];

/// Passes all bytes after the first to the decoder that the first byte chooses.
pub fn run(data: &[u8]) {
    let Some((number, bytes)) = data.split_first() else { return };
    let every = DECODERS.len() + OTHERS.len();
    let mut decoders = DECODERS.iter().chain(&OTHERS);
    if let Some((_, decode)) = decoders.nth(usize::from(*number) % every) {
        decode(bytes);
    }
}

/// Tests filters: the parser reads or refuses any text, a filter parses back from its printed text, and an
/// error names a range of the text.
fn filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Filter>() {
        Ok(filter) => {
            assert_eq!(filter.to_string().parse::<Filter>().as_ref(), Ok(&filter));
            let _ = filter.compile(|_| None);
        }
        Err(error) => assert!(text.get(error.offset..error.offset + error.length).is_some(), "{error}"),
    }
}

/// Parses the input as a pcap or pcapng file, and reads each packet.
fn pcap_port(data: &[u8]) {
    if let Ok(recording) = Recording::parse(data.to_vec()) {
        for index in 0..recording.len() {
            assert!(recording.get(index).is_some());
        }
    }
}
