#![no_main]
//! See `bodies::wire_formats`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::wire_formats(data));
