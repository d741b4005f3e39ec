//! Waking a reader that sleeps in `poll`: ring only after the reader has announced that it sleeps.
//!
//! A doorbell has two halves: the [`Armed`] word, which decides whether a ring is needed and is the same on every
//! platform (and so can be model-checked), and the platform's way of making a sleeper's `poll` return.
//!
//! The reader: [`arm`](DoorbellLike::arm), check for work once more, sleep in `poll`, [`drain`](DoorbellLike::drain).
//! The writer: publish the work, then [`ring`](DoorbellLike::ring). What may never happen: the reader finds no work,
//! the writer sees it unarmed, and the reader sleeps. Each side puts a full fence between its write and its read, so at
//! least one of the two sees the other.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::time::Duration;

use crate::{Atomic, Platform, profile};

/// A platform's doorbell. See the head of this file for the protocol.
pub trait DoorbellLike: Send + Sync + Sized + 'static {
    /// A doorbell without a listener.
    ///
    /// # Errors
    /// When no descriptor is left for it.
    fn new() -> io::Result<Self>;
    /// Wakes the reader if it is armed; returns whether that was needed. Call after publishing the work.
    fn ring(&self) -> bool;
    /// Announces that the reader is about to sleep. Check for work once more after this, before sleeping.
    fn arm(&self);
    /// Announces that the reader is awake, and clears rings so far. Check for work after this.
    fn drain(&self);
    /// Sleeps in `poll` until the bell rings, one of these other descriptors is readable, or `limit` has passed; may
    /// return early. For the thread that has [armed](Self::arm) it.
    fn sleep(&self, others: &[RawFd], limit: Option<Duration>);
    /// The descriptor that becomes readable when the bell rings, where there is one.
    fn fd(&self) -> Option<RawFd>;
}

/// Whether a sleeper waits to be woken.
pub struct Armed<P: Platform> {
    armed: P::AtomicU32,
}

impl<P: Platform> Armed<P> {
    /// Not armed.
    pub fn new() -> Self {
        Self { armed: P::AtomicU32::new(0) }
    }

    /// The reader is about to sleep; what it reads after this call is up to date.
    pub fn arm(&self) {
        self.armed.store(1, Relaxed);
        P::fence(SeqCst);
    }

    /// The reader is awake.
    pub fn disarm(&self) {
        self.armed.store(0, Relaxed);
    }

    /// For the writer, after publishing: whether it must wake the reader. True once per [`arm`](Self::arm).
    #[inline]
    pub fn claim(&self) -> bool {
        P::fence(SeqCst);
        let needed = self.armed.load(Relaxed) != 0 && self.armed.swap(0, AcqRel) != 0;
        profile::wake::<P>(needed);
        needed
    }
}

impl<P: Platform> Default for Armed<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// The doorbell of a platform without descriptors: it keeps the protocol and wakes no reader.
pub struct NoDoorbell<P: Platform>(Armed<P>);

impl<P: Platform> DoorbellLike for NoDoorbell<P> {
    fn new() -> io::Result<Self> {
        Ok(Self(Armed::new()))
    }

    fn ring(&self) -> bool {
        self.0.claim()
    }

    fn arm(&self) {
        self.0.arm();
    }

    fn drain(&self) {
        self.0.disarm();
    }

    fn sleep(&self, _others: &[RawFd], _limit: Option<Duration>) {
        P::yield_now();
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }
}
