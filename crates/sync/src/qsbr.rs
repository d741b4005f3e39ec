//! Read-side sections without a lock: quiescent-state-based reclamation.
//!
//! *Model.* A reader reports now and then that it holds no older reference ([`QsbrReader::quiescent`]), typically once per
//! batch of packets. A writer unlinks a value, waits until every reader has reported so once since
//! ([`Qsbr::synchronize`]), and then frees it or reuses its place. A read is one load, without fence or
//! read-modify-write; a change costs a grace period. NetBSD's pserialize takes a context switch on every CPU for the
//! quiescent state; here it is the batch.
//!
//! *Lifetimes.* A type that is built on this gives out references that borrow a [`QsbrReader`]; `quiescent` and `offline`
//! take the reader mutably, so the compiler refuses to keep a reference across them. A reader that will be inactive
//! (asleep, or waiting for a lock) goes [`offline`](Reader::offline), or it would block every writer.
//!
//! *Sections.* A [`SectionReader`] is offline except in its sections, as under NetBSD's pserialize: a section costs two
//! stores and a [light fence](Platform::light_fence), and a thread between sections may sleep. One domain may have
//! readers of both kinds.
//!
//! *Users.* The crate `switch`; [`RcuCell`](crate::RcuCell).
//!
//! *What may never happen.* A value freed while a reader can hold it; a writer that waits for its own thread (it panics
//! instead).

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::platform::model_is_over;
use crate::{Atomic, CachePadded, Lock, LockClass, LockKind, Platform, Real};

/// A set of readers that writers wait for.
pub struct Qsbr<P: Platform = Real> {
    /// Grace periods begun, plus 1.
    epoch: P::AtomicU64,
    readers: Lock<Vec<Arc<Presence<P>>>, P>,
}

/// A reader's state that writers read, on cache lines of its own.
type Presence<P> = CachePadded<SeenEpoch<P>>;

struct SeenEpoch<P: Platform> {
    /// The newest epoch at which the reader held nothing; [`OFFLINE`] while it is offline.
    epoch: P::AtomicU64,
    /// The reader's thread, to detect a writer that would wait for itself.
    thread: usize,
}

const OFFLINE: u64 = u64::MAX;

impl<P: Platform> Qsbr<P> {
    /// A set without readers.
    pub fn new() -> Arc<Self> {
        let readers = Lock::new(LockKind::Blocking, LockClass::Pool, Vec::new());
        Arc::new(Self { epoch: P::AtomicU64::new(1), readers })
    }

    /// A new reader, online, for the calling thread.
    pub fn reader(self: &Arc<Self>) -> QsbrReader<P> {
        let seen = SeenEpoch { epoch: P::AtomicU64::new(OFFLINE), thread: P::thread_index() };
        let presence = Arc::new(CachePadded::new(seen));
        self.readers.lock().push(presence.clone());
        let mut reader = QsbrReader { domain: self.clone(), presence, _stays_on_its_thread: PhantomData };
        reader.online();
        reader
    }

    /// A new reader for the calling thread that reads in sections only.
    pub fn section_reader(self: &Arc<Self>) -> SectionReader<P> {
        let reader = self.reader();
        reader.presence.epoch.store(OFFLINE, Release);
        SectionReader(reader)
    }

    /// Grace periods begun.
    pub fn grace_periods(&self) -> u64 {
        self.epoch.load(Acquire) - 1
    }

    /// Whether this reader is one of the set.
    #[inline]
    pub fn owns(&self, reader: &QsbrReader<P>) -> bool {
        std::ptr::eq(self, Arc::as_ptr(&reader.domain))
    }

    /// Waits until every reader has dropped the values that it could read before the call.
    ///
    /// # Panics
    /// If a reader of the calling thread is online: the thread would wait for itself.
    pub fn synchronize(&self) {
        // Read first: the thread that had this number before has ended, so its readers are seen as offline from here
        // on.
        let me = P::thread_index();
        // Pairs with the fence in `online`: either that reader sees the caller's new values, or this thread sees it
        // online.
        P::heavy_fence();
        let grace = self.epoch.fetch_add(1, AcqRel) + 1;
        // Copied, so that readers may be added and removed meanwhile. Later ones see the caller's new values.
        let readers = self.readers.lock().clone();
        for reader in readers {
            let mut spins = 0;
            // OFFLINE is larger than every epoch.
            while reader.epoch.load(Acquire) < grace {
                assert!(
                    reader.thread != me,
                    "a thread waits for the end of its own read; take its reader offline around the change"
                );
                P::relax(spins);
                spins = spins.saturating_add(1);
            }
        }
    }
}

/// A thread's permission to read. Not `Send`: a writer must recognise its own thread's readers.
pub struct QsbrReader<P: Platform = Real> {
    domain: Arc<Qsbr<P>>,
    presence: Arc<Presence<P>>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl<P: Platform> QsbrReader<P> {
    /// Announces that the thread holds no reference from earlier reads: a load and a store.
    #[inline]
    pub fn quiescent(&mut self) {
        // Acquire: a thread that sees a grace period begin sees the values published before it. Release: its uses of
        // the old values happen before.
        self.presence.epoch.store(self.domain.epoch.load(Acquire), Release);
    }

    /// Runs `away`, during which the thread reads nothing and no writer waits for it: sleeping, or changing a value.
    pub fn offline<R>(&mut self, away: impl FnOnce() -> R) -> R {
        self.presence.epoch.store(OFFLINE, Release);
        let back = Online(self);
        let result = away();
        drop(back);
        result
    }

    #[inline]
    fn online(&mut self) {
        // Release, because a writer may see this store and not the OFFLINE before it: the earlier reads must still
        // happen before. The fence pairs with that in `synchronize`.
        self.presence.epoch.store(self.domain.epoch.load(Acquire), Release);
        P::light_fence();
    }
}

/// A thread's permission to read in sections; see the head of the file. Not `Send`, as [`QsbrReader`].
pub struct SectionReader<P: Platform = Real>(QsbrReader<P>);

impl<P: Platform> SectionReader<P> {
    /// Begins a section, which ends when it is dropped. Writers wait for it, so the thread must not wait for anything
    /// meanwhile.
    #[inline]
    pub fn enter(&mut self) -> ReadSection<'_, P> {
        self.0.online();
        ReadSection(&mut self.0)
    }
}

/// A section; dereferences to the reader, as the proof that the thread may read.
pub struct ReadSection<'a, P: Platform = Real>(&'a mut QsbrReader<P>);

impl<P: Platform> Deref for ReadSection<'_, P> {
    type Target = QsbrReader<P>;

    #[inline]
    fn deref(&self) -> &QsbrReader<P> {
        self.0
    }
}

impl<P: Platform> Drop for ReadSection<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.0.presence.epoch.store(OFFLINE, Release);
        }
    }
}

/// Brings a reader back online, also on panic.
struct Online<'a, P: Platform>(&'a mut QsbrReader<P>);

impl<P: Platform> Drop for Online<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.0.online();
        }
    }
}

impl<P: Platform> Drop for QsbrReader<P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        self.presence.epoch.store(OFFLINE, Release);
        self.domain.readers.lock().retain(|other| !Arc::ptr_eq(other, &self.presence));
    }
}
