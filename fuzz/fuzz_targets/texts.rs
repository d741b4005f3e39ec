#![no_main]
//! See `bodies::texts`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::texts(data));
