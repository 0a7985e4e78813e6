//! Decoders of strangers' bytes: the first byte of an input chooses one, and no bytes make it panic.

#[path = "../../foundation/wire/tests/exercise/mod.rs"]
mod exercise;

use millrace_classify::Filter;
use millrace_port::pcap::Recording;

use exercise::{DECODERS, Decoder};

/// Decoders of other rooms.
const OTHERS: [Decoder; 2] = [("filter", filter), ("pcap_port", pcap_port)];

/// Gives the bytes behind the first to a decoder.
pub fn run(data: &[u8]) {
    let Some((number, bytes)) = data.split_first() else { return };
    let every = DECODERS.len() + OTHERS.len();
    let mut decoders = DECODERS.iter().chain(&OTHERS);
    if let Some((_, decode)) = decoders.nth(usize::from(*number) % every) {
        decode(bytes);
    }
}

/// Filters: any text is read or refused; a filter prints as it reads back, an error names its place.
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

/// Recordings, pcap and pcapng.
fn pcap_port(data: &[u8]) {
    if let Ok(recording) = Recording::parse(data.to_vec()) {
        for index in 0..recording.len() {
            assert!(recording.get(index).is_some());
        }
    }
}
