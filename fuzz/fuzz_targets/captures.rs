#![no_main]
//! See `bodies::captures`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::captures(data));
