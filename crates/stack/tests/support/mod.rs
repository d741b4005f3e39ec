//! What the tests of this crate have in common: one stack on one link whose other end is the test.

#![allow(dead_code)] // each test file uses its part

pub mod frames;
pub mod node;
pub mod witness;
