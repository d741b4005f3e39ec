//! Small twins of the hand-overs that the architectures rest on, each sound or with the one step left out that makes
//! it so. The checker must tell them apart; if it cannot, it would not have seen the mistake in the stack either.

use std::collections::VecDeque;
use std::sync::Arc;

use sync::{Atomic, Condvar, GateCell, Lock, LockClass, LockKind, Ordering, Parker, Platform};

/// `squeue`: who leaves the shard looks at the queue, or (`looks` false) only drops the flag.
pub fn squeue<P: Platform>(looks: bool) {
    struct State {
        queue: VecDeque<u32>,
        running: bool,
    }
    struct Squeue<P: Platform> {
        state: Lock<State, P>,
        sum: GateCell<u32, P>,
        worker: Parker<P>,
        left: P::AtomicU32,
        done: Parker<P>,
    }
    impl<P: Platform> Squeue<P> {
        fn process(&self, work: u32) {
            *self.sum.try_enter().expect("the flag admits one runner") += work;
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.done.unpark();
            }
        }
        fn enter(&self, work: u32, looks: bool) {
            let mut state = self.state.lock();
            if state.running || !state.queue.is_empty() {
                state.queue.push_back(work);
                let idle = !state.running;
                drop(state);
                if idle {
                    self.worker.unpark();
                }
                return;
            }
            state.running = true;
            drop(state);
            self.process(work);
            let mut state = self.state.lock();
            state.running = false;
            let more = !state.queue.is_empty();
            drop(state);
            if more && looks {
                self.worker.unpark();
            }
        }
        fn drain(&self) {
            loop {
                let mut state = self.state.lock();
                let Some(work) = state.queue.front().copied().filter(|_| !state.running) else { return };
                state.queue.pop_front();
                state.running = true;
                drop(state);
                self.process(work);
                self.state.lock().running = false;
            }
        }
    }
    let squeue = Arc::new(Squeue::<P> {
        state: Lock::new(LockKind::Blocking, LockClass::Squeue, State { queue: VecDeque::new(), running: false }),
        sum: GateCell::new(0),
        worker: Parker::new(),
        left: P::AtomicU32::new(3),
        done: Parker::new(),
    });
    let worker = squeue.clone();
    let worker = P::spawn("worker", None, move || {
        while worker.left.load(Ordering::Acquire) != 0 {
            worker.drain();
            worker.worker.park(None);
        }
    });
    let callers = [1, 2, 4].map(|work| {
        let squeue = squeue.clone();
        P::spawn("caller", None, move || squeue.enter(work, looks))
    });
    squeue.done.park(None);
    callers.into_iter().for_each(|caller| P::join(caller).expect("the caller ends well"));
    squeue.worker.unpark();
    P::join(worker).expect("the worker ends well");
    assert_eq!(*squeue.sum.try_enter().expect("nobody runs any more"), 7);
}

/// `connp-t`: an owner that found its list empty looks again under the lock before it sleeps, or sleeps at once.
pub fn owner<P: Platform>(looks: bool) {
    struct Queue<P: Platform> {
        list: Lock<VecDeque<u32>, P>,
        arrived: Condvar<P>,
    }
    let queue = Arc::new(Queue::<P> {
        list: Lock::new(LockKind::Blocking, LockClass::Handoff, VecDeque::new()),
        arrived: Condvar::new(),
    });
    let sender = queue.clone();
    let sender = P::spawn("sender", None, move || {
        for message in [1, 2] {
            sender.list.lock().push_back(message);
            sender.arrived.notify_one();
        }
    });
    let mut sum = 0;
    while sum != 3 {
        let batch = std::mem::take(&mut *queue.list.lock());
        if batch.is_empty() {
            let list = queue.list.lock();
            if list.is_empty() || !looks {
                drop(queue.arrived.wait(list));
            }
        }
        sum += batch.iter().sum::<u32>();
    }
    P::join(sender).expect("the sender ends well");
}

/// `up`: who used the cell that nobody owned, and gave it up, looks whether he turned somebody away meanwhile.
pub fn mailbox<P: Platform>(looks: bool) {
    struct Up<P: Platform> {
        /// 1 while somebody is inside.
        owner: P::AtomicU32,
        mail: P::AtomicU32,
        answered: P::AtomicU32,
        driver: Parker<P>,
        caller: Parker<P>,
    }
    impl<P: Platform> Up<P> {
        fn try_enter(&self) -> bool {
            self.owner.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
        }
    }
    let up = Arc::new(Up::<P> {
        owner: P::AtomicU32::new(0),
        mail: P::AtomicU32::new(0),
        answered: P::AtomicU32::new(0),
        driver: Parker::new(),
        caller: Parker::new(),
    });
    let driver = up.clone();
    let driver = P::spawn("driver", None, move || {
        while driver.answered.load(Ordering::Acquire) == 0 {
            if driver.try_enter() {
                if driver.mail.swap(0, Ordering::AcqRel) != 0 {
                    driver.answered.store(1, Ordering::Release);
                    driver.caller.unpark();
                }
                driver.owner.store(0, Ordering::Release);
            }
            driver.driver.park(None);
        }
    });
    let guest = up.clone();
    let guest = P::spawn("guest", None, move || {
        if guest.try_enter() {
            P::yield_now();
            guest.owner.store(0, Ordering::Release);
            if looks && guest.mail.load(Ordering::Acquire) != 0 {
                guest.driver.unpark();
            }
        }
    });
    up.mail.store(1, Ordering::Release);
    up.driver.unpark();
    up.caller.park(None);
    P::join(guest).expect("the guest ends well");
    up.driver.unpark();
    P::join(driver).expect("the driver ends well");
}

/// A listener: `closed` and the queue are one decision under one lock, or two looks one after the other.
pub fn listener<P: Platform>(together: bool) {
    struct Listener<P: Platform> {
        closed: P::AtomicBool,
        queue: Lock<Vec<u32>, P>,
    }
    let listener = Arc::new(Listener::<P> {
        closed: P::AtomicBool::new(false),
        queue: Lock::new(LockKind::Blocking, LockClass::AcceptQueue, Vec::new()),
    });
    let refused = Arc::new(P::AtomicU32::new(0));
    let (completes, resets) = (listener.clone(), refused.clone());
    let receiver = P::spawn("receiver", None, move || {
        let early = completes.closed.load(Ordering::Acquire);
        let mut queue = completes.queue.lock();
        if if together { completes.closed.load(Ordering::Acquire) } else { early } {
            resets.fetch_add(1, Ordering::AcqRel);
        } else {
            queue.push(7);
        }
    });
    let mut queue = listener.queue.lock();
    listener.closed.store(true, Ordering::Release);
    let waiting = std::mem::take(&mut *queue).len();
    drop(queue);
    P::join(receiver).expect("the receive thread ends well");
    let told = waiting + refused.load(Ordering::Acquire) as usize;
    assert_eq!(told, 1, "the child is taken from the queue or refused");
}

/// Readiness: a waiter sleeps on the word in which it saw nothing, or on whatever the word is when it sleeps.
pub fn readiness<P: Platform>(looks: bool) {
    const READABLE: u32 = 1;
    const WAITING: u32 = 2;
    let word = Arc::new(P::AtomicU32::new(0));
    let raised = word.clone();
    let raiser = P::spawn("raiser", None, move || {
        if raised.fetch_or(READABLE, Ordering::AcqRel) & WAITING != 0 {
            P::futex_wake(&raised, u32::MAX);
        }
    });
    while word.load(Ordering::Acquire) & READABLE == 0 {
        let seen = word.fetch_or(WAITING, Ordering::AcqRel);
        let expected = if looks { seen | WAITING } else { word.load(Ordering::Acquire) };
        if seen & READABLE == 0 || !looks {
            P::futex_wait(&word, expected, None);
        }
    }
    P::join(raiser).expect("the raiser ends well");
}
