#![no_main]
//! See `bodies::offloads`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::offloads(data));
