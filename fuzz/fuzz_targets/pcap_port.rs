#![no_main]

use millrace_port::pcap::Recording;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(recording) = Recording::parse(data.to_vec()) {
        for index in 0..recording.len() {
            assert!(recording.get(index).is_some());
        }
    }
});
