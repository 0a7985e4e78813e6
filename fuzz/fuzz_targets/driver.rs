#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millrace_fuzz::driver::run(data));
