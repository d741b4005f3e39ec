//! Small programs, one per primitive, for any platform. Each asserts the guarantees of the primitive; the checkers vary
//! the schedule. The work is minimal: two threads, one operation each.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use sync::ring::{Mpsc, spsc};
use sync::slab::Slab;
use sync::{
    Armed, Atomic, CellLike, ClaimLock, Condvar, CountedRef, IndexStack, Lock, LockClass, LockKind, Parker, Platform,
    Qsbr, RawLock, RcuCell, RefCounting, Reused, ReusedRef, ShareCount, SpareMemory, ThreadClass, ThreadOwned,
    Turnstile, UseCount,
};

fn join<P: Platform>(handle: P::JoinHandle) {
    if let Err(panic) = P::join(handle) {
        std::panic::resume_unwind(panic);
    }
}

/// A cell that the model claims is shared soundly; the checker verifies that.
struct Shared<P: Platform, T>(P::Cell<T>);
// SAFETY: the claim under test. Both checkers run every model thread on one thread of the kernel.
unsafe impl<P: Platform, T> Sync for Shared<P, T> {}
// SAFETY: as above.
unsafe impl<P: Platform, T> Send for Shared<P, T> {}

impl<P: Platform> Shared<P, usize> {
    fn get(&self) -> usize {
        // SAFETY: the claim under test.
        self.0.with(|value| unsafe { *value })
    }
    fn set(&self, new: usize) {
        // SAFETY: the claim under test.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

pub fn exclusion<P: Platform>(kind: LockKind) {
    let lock: Arc<Lock<usize, P>> = Arc::new(Lock::new(kind, LockClass::Group, 0));
    let other = lock.clone();
    let thread = P::spawn("other", None, ThreadClass::Application, move || *other.lock() += 1);
    *lock.lock() += 1;
    join::<P>(thread);
    assert_eq!(*lock.lock(), 2, "an increment was lost");
}

/// The lock is reserved for the thread that made it, which uses it for `turns` turns while another thread takes it.
pub fn reservation<P: Platform>(turns: usize) {
    let lock: Arc<Lock<usize, P>> = Arc::new(Lock::new(LockKind::Reserved, LockClass::Group, 0));
    *lock.lock() += 1;
    let other = lock.clone();
    let thread = P::spawn("other", None, ThreadClass::Application, move || (0..turns).for_each(|_| *other.lock() += 1));
    *lock.lock() += 1;
    join::<P>(thread);
    assert_eq!(*lock.lock(), 2 + turns, "an increment was lost");
}

/// A thread claims a value, uses it and releases it, while another uses the lock.
pub fn claim<P: Platform>() {
    let value: Arc<ClaimLock<usize, P>> = Arc::new(ClaimLock::new(LockKind::Blocking, LockClass::Group, 0));
    let entered = Arc::new(P::AtomicUsize::new(0));
    let (other, count) = (value.clone(), entered.clone());
    let thread = P::spawn("other", None, ThreadClass::Application, move || {
        if let Ok(mut inside) = other.enter() {
            *inside += 1;
            count.store(1, Relaxed);
        }
    });
    assert!(value.claim());
    *value.enter().expect("the claimant is let in") += 1;
    assert!(value.release_claim());
    join::<P>(thread);
    assert_eq!(*value.enter().expect("nobody's"), 1 + entered.load(Relaxed), "an increment was lost");
}

/// The waiting path only: no first try, so that a queue lock queues.
pub fn raw_exclusion<P: Platform, L: RawLock + 'static>(threads: usize) {
    let lock = Arc::new((L::new(), Shared::<P, usize>(P::Cell::new(0))));
    let add = |(lock, count): &(L, Shared<P, usize>)| {
        lock.lock();
        count.set(count.get() + 1);
        lock.unlock();
    };
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let lock = lock.clone();
            P::spawn("other", None, ThreadClass::Application, move || add(&lock))
        })
        .collect();
    add(&lock);
    others.into_iter().for_each(join::<P>);
    assert_eq!(lock.1.get(), threads, "an increment was lost");
}

pub fn spsc_order<P: Platform>() {
    let (mut producer, mut consumer) = spsc::channel::<Box<u32>, P>(1);
    let thread = P::spawn("producer", None, ThreadClass::Application, move || {
        for value in 1..=2 {
            let mut value = Box::new(value);
            while let Err(full) = producer.push(value) {
                value = full.0;
                P::relax(0);
            }
        }
    });
    for expected in 1..=2 {
        let value = loop {
            match consumer.pop() {
                Some(value) => break value,
                None => P::relax(0),
            }
        };
        assert_eq!(*value, expected);
    }
    join::<P>(thread);
    assert!(consumer.pop().is_none());
}

/// Values that are published together, and taken while more are.
pub fn spsc_each<P: Platform>() {
    let (mut producer, mut consumer) = spsc::channel::<Box<u32>, P>(2);
    let thread = P::spawn("producer", None, ThreadClass::Application, move || {
        let mut values = (1..=3).map(Box::new);
        let mut pushed = 0;
        while pushed < 3 {
            match producer.push_each(3 - pushed, || values.next()) {
                0 => P::relax(0),
                more => pushed += more,
            }
        }
    });
    let mut expected = 1;
    while expected <= 3 {
        let taken = consumer.pop_each(3, |value| {
            assert_eq!(*value, expected);
            expected += 1;
            true
        });
        if taken == 0 {
            P::relax(0);
        }
    }
    join::<P>(thread);
    assert!(consumer.pop().is_none());
}

pub fn mpsc_delivers<P: Platform>() {
    let queue: Arc<Mpsc<u32, P>> = Arc::new(Mpsc::new(2));
    let other = queue.clone();
    let thread = P::spawn("producer", None, ThreadClass::Application, move || other.push(1).expect("there is room"));
    queue.push(2).expect("there is room");
    let mut sum = 0;
    for _ in 0..2 {
        sum += loop {
            match queue.pop() {
                Some(value) => break value,
                None => P::relax(0),
            }
        };
    }
    join::<P>(thread);
    assert_eq!(sum, 3, "a value was lost or came twice");
}

/// Round two of a slot: the producer may write it only after the consumer is done with it.
pub fn mpsc_reuses_slots<P: Platform>() {
    let (sender, mut receiver) = Mpsc::<u32, P>::channel(2);
    (0..2).for_each(|value| sender.push(value).expect("there is room"));
    let thread = P::spawn("producer", None, ThreadClass::Application, move || {
        while sender.push(2).is_err() {
            P::relax(0);
        }
    });
    for expected in 0..3 {
        let value = loop {
            match receiver.pop() {
                Some(value) => break value,
                None => P::relax(0),
            }
        };
        assert_eq!(value, expected);
    }
    join::<P>(thread);
}

/// Two threads that both pop: one at a time inside, the other refused; each value is popped once.
pub fn mpsc_one_consumer_at_a_time<P: Platform>() {
    let queue: Arc<Mpsc<u32, P>> = Arc::new(Mpsc::new(4));
    (0..4).for_each(|value| queue.push(value).expect("there is room"));
    let twice = |queue: &Mpsc<u32, P>| [queue.pop(), queue.pop()];
    let theirs = Arc::new(Lock::<_, P>::new(LockKind::Blocking, LockClass::Pool, [None; 2]));
    let (other, result) = (queue.clone(), theirs.clone());
    let thread = P::spawn("consumer", None, ThreadClass::Application, move || *result.lock() = twice(&other));
    let mine = twice(&queue);
    join::<P>(thread);
    let mut got: Vec<u32> = mine.into_iter().chain(*theirs.lock()).flatten().collect();
    got.extend(std::iter::from_fn(|| queue.pop()));
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3], "a value was lost or came twice");
}

pub fn parker_wakes<P: Platform>() {
    let parker = Arc::new((Parker::<P>::new(), Shared::<P, usize>(P::Cell::new(0))));
    let other = parker.clone();
    let thread = P::spawn("waker", None, ThreadClass::Application, move || {
        other.1.set(7);
        other.0.unpark();
    });
    assert!(parker.0.park(None));
    assert_eq!(parker.1.get(), 7);
    join::<P>(thread);
}

/// Two tickets, whose threads come in any order; with one word both wait there.
pub fn turns_pass<P: Platform>(words: usize) {
    let turns = Arc::new((Turnstile::<P>::new(words), Shared::<P, usize>(P::Cell::new(0))));
    let other = turns.clone();
    let thread = P::spawn("first", None, ThreadClass::Application, move || {
        other.0.wait(0);
        other.1.set(7);
        other.0.pass(0);
    });
    turns.0.wait(1);
    assert_eq!(turns.1.get(), 7);
    turns.0.pass(1);
    join::<P>(thread);
}

pub fn condvar_wakes<P: Platform>(kind: LockKind) {
    let queue = Arc::new((Lock::<u32, P>::new(kind, LockClass::Squeue, 0), Condvar::<P>::new()));
    let other = queue.clone();
    let thread = P::spawn("sender", None, ThreadClass::Application, move || {
        *other.0.lock() = 5;
        other.1.notify_one();
    });
    let got = queue.1.wait_while(queue.0.lock(), |value| *value == 0);
    assert_eq!(*got, 5);
    drop(got);
    join::<P>(thread);
}

/// The reader's `poll` is a futex here; the model checks that it is always woken.
pub fn doorbell_wakes<P: Platform>() {
    let shared = Arc::new((Armed::<P>::new(), P::AtomicU32::new(0), P::AtomicU32::new(0)));
    let other = shared.clone();
    let thread = P::spawn("writer", None, ThreadClass::Application, move || {
        let (armed, work, poll) = &*other;
        work.store(1, Relaxed);
        if armed.claim() {
            poll.store(1, Release);
            P::futex_wake(poll, 1);
        }
    });
    let (armed, work, poll) = &*shared;
    while work.load(Relaxed) == 0 {
        armed.arm();
        if work.load(Relaxed) == 0 {
            while poll.load(Acquire) == 0 {
                P::futex_wait(poll, 0, None);
            }
        }
        armed.disarm();
        poll.store(0, Relaxed);
    }
    join::<P>(thread);
}

/// Two places and a word that selects the one that readers use. The writer changes the word, waits for a grace period,
/// and then writes the old place: a read that has not ended, or is not ordered before, is a race. `away` takes the
/// reader offline between its reads instead of letting it pass a quiescent state.
pub fn qsbr_waits_for_every_read<P: Platform>(away: bool) {
    let place = |value| Shared::<P, usize>(P::Cell::new(value));
    let shared = Arc::new((Qsbr::<P>::new(), P::AtomicUsize::new(0), [place(1), place(2)]));
    let theirs = shared.clone();
    let thread = P::spawn("reader", None, ThreadClass::Application, move || {
        let (domain, current, places) = &*theirs;
        let mut reader = domain.reader();
        let first = places[current.load(Acquire)].get();
        if away {
            reader.offline(|| ());
        } else {
            reader.quiescent();
        }
        let second = places[current.load(Acquire)].get();
        assert!(first != 0 && first <= second, "a place in new use or an older value was read: {first}, {second}");
    });
    P::yield_now();
    let (domain, current, places) = &*shared;
    current.store(1, Release);
    domain.synchronize();
    places[0].set(0);
    join::<P>(thread);
}

/// A reader reads a cell in two sections while another thread replaces its value and writes to the old one.
pub fn an_rcu_cell_keeps_what_is_read<P: Platform>() {
    let domain = Qsbr::<P>::new();
    let place = |value| Shared::<P, usize>(P::Cell::new(value));
    let cell = Arc::new(RcuCell::<_, P>::new(domain.clone(), LockClass::Control, place(1)));
    let theirs = cell.clone();
    let thread = P::spawn("reader", None, ThreadClass::Application, move || {
        let mut reader = domain.section_reader();
        let mut last = 0;
        for _ in 0..2 {
            let value = theirs.read(&reader.enter()).get();
            assert!(value != 0 && value >= last, "a freed or older value was read: {value} after {last}");
            last = value;
        }
    });
    P::yield_now();
    cell.replace(|_| place(2)).set(0);
    join::<P>(thread);
}

/// The last of three holders writes to the object that the others have read.
pub fn the_last_holder_frees<P: Platform>() {
    let shared = Arc::new((ShareCount::<P>::new(), Shared::<P, usize>(P::Cell::new(7))));
    shared.0.share();
    shared.0.share();
    let let_go = |(count, value): &(ShareCount<P>, Shared<P, usize>)| {
        assert_eq!(value.get(), 7, "a thing was freed under its holder");
        let last = count.release();
        if last {
            value.set(0);
        }
        usize::from(last)
    };
    let last = Arc::new(P::AtomicUsize::new(0));
    let threads = [0, 1].map(|_| {
        let (shared, last) = (shared.clone(), last.clone());
        P::spawn("holder", None, ThreadClass::Application, move || {
            last.fetch_add(let_go(&shared), Relaxed);
        })
    });
    let mine = let_go(&shared);
    threads.into_iter().for_each(join::<P>);
    assert_eq!(mine + last.load(Relaxed), 1, "of three holders one is the last");
}

/// A holder that finds itself alone writes at once.
pub fn a_unique_holder_may_write<P: Platform>() {
    let shared = Arc::new((ShareCount::<P>::new(), Shared::<P, usize>(P::Cell::new(7))));
    shared.0.share();
    let theirs = shared.clone();
    let thread = P::spawn("holder", None, ThreadClass::Application, move || {
        assert_eq!(theirs.1.get(), 7);
        assert!(!theirs.0.release(), "another one holds it to the end");
    });
    P::yield_now();
    if shared.0.is_unique() {
        shared.1.set(8);
    }
    join::<P>(thread);
}

/// A value that counts its drops, and can no longer be read then.
struct Dropped<P: Platform>(Arc<P::AtomicUsize>, Shared<P, usize>);

impl<P: Platform> Drop for Dropped<P> {
    fn drop(&mut self) {
        self.1.set(0);
        self.0.fetch_add(1, Relaxed);
    }
}

/// Two threads give up the only two holds of a value, having read it.
pub fn the_last_of_two_holds_drops<P: Platform>(counting: RefCounting) {
    let drops = Arc::new(P::AtomicUsize::new(0));
    let mine: CountedRef<_, P> = CountedRef::new(counting, Dropped::<P>(drops.clone(), Shared(P::Cell::new(7))));
    let theirs = mine.clone();
    let let_go =
        |held: CountedRef<Dropped<P>, P>| assert_eq!(held.1.get(), 7, "the value was dropped under its holder");
    let thread = P::spawn("holder", None, ThreadClass::Application, move || let_go(theirs));
    let_go(mine);
    join::<P>(thread);
    assert_eq!(drops.load(Relaxed), 1, "the last of two holders drops the value");
}

/// The same while one of the two gives its hold to a third.
pub fn a_hold_that_is_passed_on_keeps_the_value<P: Platform>(counting: RefCounting) {
    let drops = Arc::new(P::AtomicUsize::new(0));
    let mine: CountedRef<_, P> = CountedRef::new(counting, Dropped::<P>(drops.clone(), Shared(P::Cell::new(7))));
    let theirs = mine.clone();
    let thread = P::spawn("holder", None, ThreadClass::Application, move || {
        let again = theirs.clone();
        drop(theirs);
        assert_eq!(again.1.get(), 7, "the value was dropped under its holder");
    });
    drop(mine);
    join::<P>(thread);
    assert_eq!(drops.load(Relaxed), 1, "the last of three holders drops the value");
}

impl<P: Platform> Reused<P> for Dropped<P> {
    /// Nothing is kept: what matters here is the value.
    fn with_spare<R>(_: impl FnOnce(&mut SpareMemory<Self, P>) -> R) -> Option<R> {
        None
    }
}

/// Two threads give up the only two holds of a value, having read it. Either may be the only holder when it does.
pub fn the_last_holder_of_a_reused_value_drops_it<P: Platform>() {
    let drops = Arc::new(P::AtomicUsize::new(0));
    let mine: ReusedRef<_, P> = ReusedRef::new(Dropped::<P>(drops.clone(), Shared(P::Cell::new(7))));
    let theirs = mine.clone();
    let let_go = |held: ReusedRef<Dropped<P>, P>| assert_eq!(held.1.get(), 7, "the value was dropped under its holder");
    let thread = P::spawn("holder", None, ThreadClass::Application, move || let_go(theirs));
    let_go(mine);
    join::<P>(thread);
    assert_eq!(drops.load(Relaxed), 1, "the last of two holders drops the value");
}

/// The same while one of the two gives its hold to a third.
pub fn a_hold_of_a_reused_value_that_is_passed_on_keeps_it<P: Platform>() {
    let drops = Arc::new(P::AtomicUsize::new(0));
    let mine: ReusedRef<_, P> = ReusedRef::new(Dropped::<P>(drops.clone(), Shared(P::Cell::new(7))));
    let theirs = mine.clone();
    let thread = P::spawn("holder", None, ThreadClass::Application, move || {
        let again = theirs.clone();
        drop(theirs);
        assert_eq!(again.1.get(), 7, "the value was dropped under its holder");
    });
    drop(mine);
    join::<P>(thread);
    assert_eq!(drops.load(Relaxed), 1, "the last of three holders drops the value");
}

/// Two threads take a place, write it and return it.
pub fn a_place_has_one_holder<P: Platform>() {
    let place = || Shared::<P, usize>(P::Cell::new(0));
    let shared = Arc::new((IndexStack::<P>::new(2), [place(), place()]));
    shared.0.push(0);
    shared.0.push(1);
    let turn = |(free, places): &(IndexStack<P>, [Shared<P, usize>; 2])| {
        if let Some(index) = free.pop() {
            let place = &places[index as usize];
            place.set(place.get() + 1);
            free.push(index);
        }
    };
    let theirs = shared.clone();
    let thread = P::spawn("other", None, ThreadClass::Application, move || {
        turn(&theirs);
        turn(&theirs);
    });
    turn(&shared);
    join::<P>(thread);
    let mut left: Vec<u32> = std::iter::from_fn(|| shared.0.pop()).collect();
    left.sort_unstable();
    assert_eq!(left, [0, 1], "a place was lost or came twice");
    assert_eq!(shared.1.iter().map(Shared::get).sum::<usize>(), 3);
}

/// A thread has read the top number and the one below; before it takes the top, another thread takes both and returns
/// the top alone.
pub fn a_number_that_comes_back_is_not_taken_for_the_old_one<P: Platform>() {
    let free = Arc::new(IndexStack::<P>::new(2));
    free.push(0);
    free.push(1);
    // 0: none; else the number plus 1.
    let kept = Arc::new(Shared::<P, usize>(P::Cell::new(0)));
    let theirs = (free.clone(), kept.clone());
    let thread = P::spawn("other", None, ThreadClass::Application, move || {
        let (free, kept) = theirs;
        let (top, below) = (free.pop(), free.pop());
        top.into_iter().for_each(|top| free.push(top));
        kept.set(below.map_or(0, |below| below as usize + 1));
    });
    let mine = free.pop();
    join::<P>(thread);
    let kept = kept.get().checked_sub(1).map(|kept| kept as u32);
    let mut all: Vec<u32> = mine.into_iter().chain(kept).chain(std::iter::from_fn(|| free.pop())).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1], "a number was lost or came twice");
}

/// Uses and a closing thread: the last to end frees, once, and no use begins afterwards.
pub fn a_closed_thing_is_freed_once<P: Platform>() {
    let shared = Arc::new((UseCount::<P>::closed(), Shared::<P, usize>(P::Cell::new(7)), P::AtomicUsize::new(0)));
    let generation = shared.0.open().expect("it was closed");
    let free = |(count, value, freed): &(UseCount<P>, Shared<P, usize>, P::AtomicUsize)| {
        // As a registry does under its lock: it may be reported twice.
        if count.is_drained() && freed.swap(1, AcqRel) == 0 {
            value.set(0);
        }
    };
    let theirs = shared.clone();
    let thread = P::spawn("user", None, ThreadClass::Application, move || {
        let over = match theirs.0.enter(generation) {
            Ok(()) => {
                assert_eq!(theirs.1.get(), 7, "freed under a use");
                theirs.0.leave()
            }
            Err(over) => over,
        };
        if over {
            free(&theirs);
        }
    });
    if shared.0.close() {
        free(&shared);
    }
    join::<P>(thread);
    assert_eq!(shared.2.load(Relaxed), 1, "nobody has freed it");
    assert_eq!(shared.0.enter(generation), Err(true));
}

pub fn owner_moves<P: Platform>() {
    let cell: Arc<ThreadOwned<usize, P>> = Arc::new(ThreadOwned::new(1));
    assert!(cell.bind_here().is_ok());
    let other = cell.clone();
    let thread = P::spawn("next owner", None, ThreadClass::Application, move || {
        while other.with(|value| *value += 1).is_err() {
            P::relax(0);
        }
        other.release().expect("the next owner owns the cell");
    });
    cell.with(|value| *value += 1).expect("this thread owns the cell");
    cell.release().expect("this thread owns the cell");
    join::<P>(thread);
    assert_eq!(cell.with(|value| *value), Ok(3));
}

/// A value changes its owner behind a lock while both owners insert and remove values: each is used by one thread at a
/// time, and one owner may reuse an entry that the other freed.
pub fn slab_values_change_owners<P: Platform>() {
    let slab = Slab::<Box<usize>, P>::new(LockClass::ConnSlab);
    let mut mine = slab.owner();
    let (passed, kept) = (mine.insert(Box::new(1)), mine.insert(Box::new(2)));
    let passing = Arc::new(Lock::<_, P>::new(LockKind::Blocking, LockClass::Handoff, mine.detach(passed.slot)));
    let (post, mut theirs) = (passing.clone(), slab.owner());
    let thread = P::spawn("other", None, ThreadClass::Application, move || {
        let Some(value) = post.lock().take() else { return };
        let key = theirs.attach(value).expect("it is of this slab");
        assert_eq!(key, passed);
        assert!(theirs.get_mut(kept.slot).is_none(), "it is not theirs");
        **theirs.get_mut(key.slot).expect("it is theirs now") += 10;
        assert!(theirs.free(key.slot));
    });
    if let Some(value) = passing.lock().as_deref_mut() {
        **value += 100;
    }
    assert_eq!(mine.get_mut(passed.slot), None, "it was given up");
    assert_eq!(mine.remove(kept.slot), Some(Box::new(2)));
    join::<P>(thread);
    drop(mine);
    // Everything is free again, and is found by the next owner.
    let mut next = slab.owner();
    let keys = [next.insert(Box::new(3)), next.insert(Box::new(4))];
    assert!(keys.iter().all(|key| *key != passed && *key != kept), "a stale key names nothing");
}

/// An owner accesses an entry by a stale index while another thread takes the chunk out of its table and frees it: the
/// memory is freed after the access, or the access finds no chunk.
pub fn slab_memory_is_freed_when_nobody_looks<P: Platform>() {
    let slab = Slab::<usize, P>::new(LockClass::ConnSlab);
    let (mut mine, mut theirs) = (slab.owner(), slab.owner());
    let key = mine.insert(1);
    assert!(mine.free(key.slot));
    mine.trim();
    let thread = P::spawn("other", None, ThreadClass::Application, move || {
        assert_eq!(theirs.get_mut(key.slot), None);
        theirs.trim();
        assert_eq!(theirs.get_mut(key.slot), None);
    });
    slab.trim(0);
    mine.trim();
    join::<P>(thread);
    let again = mine.insert(2);
    assert_eq!(again.slot, key.slot, "the index is used again");
    assert_eq!(mine.get_by_key(key), None);
    assert_eq!(mine.get_by_key(again), Some(&mut 2));
}
