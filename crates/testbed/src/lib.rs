//! Support for tests and fuzz targets of whole stacks: one stack on one thread in virtual time ([`node`]), frames of
//! the test's host ([`frames`]), input steps for a stack ([`subject`]), a device that checks the order of segments
//! ([`order_check`]), one that panics on request ([`panicking`]), a model checker's platform that sleeps or counts
//! differently ([`over`]), random numbers that are the same in every run ([`dice`]), and limits on waiting ([`limit`]).
//!
//! [`counting`] counts a thread's locks and read-modify-writes. Two stacks on one link are a [`world`]; hosts take their
//! [`turns`] in virtual time.
//!
//! Not part of the product: its crates depend on this one only for their tests.
#![forbid(unsafe_code)]

pub mod counting;
pub mod dice;
pub mod frames;
pub mod limit;
pub mod node;
pub mod order_check;
pub mod over;
pub mod panicking;
pub mod subject;
pub mod turns;
pub mod world;
