//! The standard library's atomics behind the seam's trait.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use crate::forward_atomic::forward_atomic;

forward_atomic!(AtomicU32, u32, fetch_add, fetch_sub);
forward_atomic!(AtomicU64, u64, fetch_add, fetch_sub);
forward_atomic!(AtomicUsize, usize, fetch_add, fetch_sub);
forward_atomic!(AtomicBool, bool);
