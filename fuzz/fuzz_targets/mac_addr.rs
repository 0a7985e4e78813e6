#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millrace_fuzz::wire::mac_addr(data));
