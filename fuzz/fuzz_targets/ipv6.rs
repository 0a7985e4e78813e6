#![no_main]

#[path = "../../foundation/wire/tests/exercise/mod.rs"]
#[expect(dead_code, reason = "each target calls one decoder")]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::ipv6(data));
