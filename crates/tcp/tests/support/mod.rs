//! Shared by the tests of TCP: an endpoint that runs events on a connection under either driver, a scripted peer, and a
//! simulated link between two endpoints. All time is virtual.

#![allow(dead_code, reason = "every test crate uses another part of it")]

pub mod endpoint;
pub mod link;
pub mod script;
pub mod staged;

use std::time::Duration;

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Data whose every byte depends on its position, so that a shift by any amount shows.
pub fn data(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
