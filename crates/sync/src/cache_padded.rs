//! Values with a cache line of their own.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A `T` alone on its pair of cache lines, so that writers of neighbouring values do not slow it down.
///
/// 128 bytes, not 64: recent x86 cores fetch lines in adjacent pairs (Intel SDM vol. 1, optimisation manual section on
/// the spatial prefetcher), and some Arm cores have 128-byte lines.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Pads `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Takes the value out of its padding.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> From<T> for CachePadded<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for CachePadded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
