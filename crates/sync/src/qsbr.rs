//! Reading without a lock what a writer replaces: quiescent-state-based reclamation.
//!
//! *Model.* A reader says now and then "I hold nothing from before" ([`Reader::quiescent`]), typically once per batch of
//! packets. A writer puts the new value in place, waits until every reader has said so once since, and then frees the
//! old one. A read is one load, without fence or read-modify-write; a change costs a grace period. NetBSD's pserialize
//! takes a context switch on every CPU for the quiescent state; here it is the batch.
//!
//! *Lifetimes.* A reference read through a [`Reader`] borrows the reader, and `quiescent` needs the reader mutably: the
//! compiler refuses to keep the one across the other. A reader that will be away (asleep, or waiting for a lock) goes
//! [`offline`](Reader::offline), or it would hold up every writer.
//!
//! *What may never happen.* A value freed while a reader can hold it; a writer that waits for its own thread (it is told
//! so).

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};

use crate::platform::model_is_over;
use crate::{Atomic, CachePadded, Lock, LockClass, LockKind, Platform, Real};

/// A set of readers, and the values that they read.
pub struct Qsbr<P: Platform = Real> {
    /// Grace periods begun, plus 1.
    epoch: P::AtomicU64,
    readers: Lock<Vec<Arc<Presence<P>>>, P>,
}

/// What a reader shows to writers, on lines of its own.
type Presence<P> = CachePadded<Seen<P>>;

struct Seen<P: Platform> {
    /// The newest epoch at which the reader held nothing; [`OFFLINE`] while it holds nothing for good.
    epoch: P::AtomicU64,
    /// The reader's thread, to tell a writer that would wait for itself.
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
    pub fn reader(self: &Arc<Self>) -> Reader<P> {
        let seen = Seen { epoch: P::AtomicU64::new(OFFLINE), thread: P::thread_index() };
        let presence = Arc::new(CachePadded::new(seen));
        self.readers.lock().push(presence.clone());
        let mut reader = Reader { domain: self.clone(), presence, _stays_on_its_thread: PhantomData };
        reader.online();
        reader
    }

    /// Waits until every reader has let go of what it could read before the call.
    ///
    /// # Panics
    /// If a reader of the calling thread is online: the thread would wait for itself.
    pub fn synchronize(&self) {
        // Asked first: whoever had this number before us has ended, so its readers are seen as offline from here on.
        let me = P::thread_index();
        // Pairs with the fence in `online`: either that reader sees what the caller put in place, or we see it online.
        P::fence(SeqCst);
        let grace = self.epoch.fetch_add(1, AcqRel) + 1;
        // Copied, so that readers may come and go meanwhile. Those that come later see what the caller put in place.
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

/// A thread's licence to read [`Rcu`] values. Not `Send`: a writer must be able to tell its own thread's readers.
pub struct Reader<P: Platform = Real> {
    domain: Arc<Qsbr<P>>,
    presence: Arc<Presence<P>>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl<P: Platform> Reader<P> {
    /// Says that the thread holds nothing that it has read so far: a load and a store.
    #[inline]
    pub fn quiescent(&mut self) {
        // Acquire: having seen a grace period begin, we see what was put in place before it. Release: what we did with
        // the old values comes before.
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

    fn online(&mut self) {
        // Release, because a writer may see this store and not the OFFLINE before it: it must still find our old reads
        // behind it. The fence pairs with that in `synchronize`.
        self.presence.epoch.store(self.domain.epoch.load(Acquire), Release);
        P::fence(SeqCst);
    }
}

/// Brings a reader back online, also when it was away for a panic.
struct Online<'a, P: Platform>(&'a mut Reader<P>);

impl<P: Platform> Drop for Online<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.0.online();
        }
    }
}

impl<P: Platform> Drop for Reader<P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        self.presence.epoch.store(OFFLINE, Release);
        self.domain.readers.lock().retain(|other| !Arc::ptr_eq(other, &self.presence));
    }
}

/// A value that readers of one [`Qsbr`] read without a lock and writers replace as a whole.
pub struct Rcu<T, P: Platform = Real> {
    domain: Arc<Qsbr<P>>,
    /// The address of a boxed `T`; never 0.
    value: P::AtomicUsize,
    _owns: PhantomData<Box<T>>,
}

// SAFETY: readers on several threads hold `&T` at once (`T: Sync`), and a value may be dropped on another thread than
// the one that made it (`T: Send`).
unsafe impl<T: Send + Sync, P: Platform> Sync for Rcu<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, P: Platform> Send for Rcu<T, P> {}

impl<T: Send + Sync, P: Platform> Rcu<T, P> {
    /// A value for the readers of `domain`.
    pub fn new(domain: &Arc<Qsbr<P>>, value: T) -> Self {
        let value = P::AtomicUsize::new(expose(value));
        Self { domain: domain.clone(), value, _owns: PhantomData }
    }

    /// The value as it is now; valid until the reader's next quiescent state.
    ///
    /// # Panics
    /// If the reader belongs to another [`Qsbr`], whose grace periods would not protect it here.
    #[inline]
    pub fn read<'a>(&'a self, reader: &'a Reader<P>) -> &'a T {
        assert!(
            Arc::ptr_eq(&self.domain, &reader.domain),
            "a value is read with a reader of another Qsbr; make the reader from the one the value was made with"
        );
        let value = std::ptr::with_exposed_provenance::<T>(self.value.load(Acquire));
        // SAFETY: the address is of a live box, which a writer frees only after this reader's next quiescent state; the
        // result's borrow of the reader ends before that.
        unsafe { &*value }
    }

    /// Puts `new` in place, waits for a grace period, and returns the old value, which no reader has any more.
    ///
    /// # Panics
    /// As [`Qsbr::synchronize`]; the old value is then leaked.
    pub fn replace(&self, new: T) -> T {
        let old = self.value.swap(expose(new), AcqRel);
        self.domain.synchronize();
        // SAFETY: the swap made the old box ours; the grace period has ended every read of it.
        *unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<T>(old)) }
    }

    /// The readers' set.
    pub fn domain(&self) -> &Arc<Qsbr<P>> {
        &self.domain
    }
}

fn expose<T>(value: T) -> usize {
    Box::into_raw(Box::new(value)).expose_provenance()
}

impl<T, P: Platform> Drop for Rcu<T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let value = self.value.load(Acquire);
        // SAFETY: `&mut self`: no read borrows this any more, and the box is ours.
        drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<T>(value)) });
    }
}
