#![no_main]
//! See `bodies::stacks`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::stacks(data));
