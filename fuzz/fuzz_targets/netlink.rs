#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millrace_fuzz::netlink::run(data));
