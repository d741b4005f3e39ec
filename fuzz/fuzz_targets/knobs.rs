#![no_main]
//! See `bodies::knobs`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::knobs(data));
