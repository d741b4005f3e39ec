#![no_main]
//! See `bodies::scripts`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::scripts(data));
