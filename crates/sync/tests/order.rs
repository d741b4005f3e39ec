//! The lock order: the allowed pairs, and the message for others. Debug builds only, like the check.
#![cfg(debug_assertions)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use sync::lock_order::assert_none_held;
use sync::{Condvar, Lock, LockClass, LockKind, Parker, Platform, Real};

fn lock(class: LockClass) -> Lock<(), Real> {
    Lock::new(LockKind::Tas, class, ())
}

fn refusal(act: impl FnOnce()) -> String {
    *catch_unwind(AssertUnwindSafe(act)).expect_err("must be refused").downcast::<String>().expect("a sentence")
}

#[test]
fn every_declared_pair_is_allowed_one_way_only() {
    for (i, &outer) in LockClass::ALL.iter().enumerate() {
        // Miri takes seconds for a panic: there, each class against its neighbour only.
        let inner = if cfg!(miri) { 1 } else { LockClass::COUNT };
        for &inner in LockClass::ALL[i + 1..].iter().take(inner) {
            let (a, b) = (lock(outer), lock(inner));
            {
                let _a = a.lock();
                let _b = b.lock();
            }
            let _b = b.lock();
            let text = refusal(|| drop(a.lock()));
            assert!(text.contains(outer.name()) && text.contains(inner.name()), "{text}");
        }
    }
}

/// Tests of the stack read this: the locks that the thread holds, in the order in which they were taken.
#[test]
fn a_thread_knows_the_classes_that_it_holds() {
    let held = || {
        let mut classes = Vec::new();
        Real::with_held(|held| classes = held.classes());
        classes
    };
    let [outer, inner] = [LockClass::ALL[1], LockClass::ALL[3]];
    let (a, b) = (lock(outer), lock(inner));
    assert_eq!(held(), []);
    let first = a.lock();
    let second = b.lock();
    assert_eq!(held(), [outer, inner]);
    drop(first);
    assert_eq!(held(), [inner]);
    drop(second);
    assert_eq!(held(), []);
}

#[test]
fn a_class_nests_only_in_rising_index_order() {
    let (a, b) = (lock(LockClass::Group), lock(LockClass::Group));
    {
        let _a = a.lock_nested(1);
        let _b = b.lock_nested(2);
    }
    let _b = b.lock_nested(2);
    let text = refusal(|| drop(a.lock_nested(1)));
    assert!(text.contains("number 1") && text.contains("number 2"), "{text}");
    assert!(refusal(|| drop(a.lock())).contains("lock_nested"));
}

#[test]
fn locking_twice_is_refused_instead_of_hanging() {
    let a = lock(LockClass::Timers);
    let _held = a.lock();
    assert!(refusal(|| drop(a.lock())).contains("timers"));
}

#[test]
fn try_lock_is_free_but_counts_as_held() {
    let (outer, inner) = (lock(LockClass::Control), lock(LockClass::Pool));
    let _inner = inner.lock();
    let tried = outer.try_lock().expect("free");
    assert!(refusal(|| drop(lock(LockClass::Timers).lock())).contains("pool"));
    drop(tried);
}

#[test]
fn guards_may_be_dropped_in_any_order_and_after_a_refusal() {
    let (a, b, c) = (lock(LockClass::Fdb), lock(LockClass::ConnTable), lock(LockClass::Squeue));
    let (ga, gb) = (a.lock(), b.lock());
    drop(ga);
    refusal(|| drop(a.lock()));
    drop(c.lock());
    drop(gb);
    drop(a.lock());
    assert_none_held::<Real>("testing");
}

#[test]
fn nobody_sleeps_holding_a_lock() {
    let a = lock(LockClass::AcceptQueue);
    let _held = a.lock();
    assert!(refusal(|| assert!(Parker::<Real>::new().park(None))).contains("accept-queue"));
    assert!(refusal(|| assert_none_held::<Real>("copying")).contains("copying"));
}

/// Users may hold locks of their own where they call.
#[test]
fn nobody_is_woken_under_a_lock_of_the_stack_but_by_a_device() {
    let parker = Parker::<Real>::new();
    let (user, queue) = (lock(LockClass::UserHandle), lock(LockClass::AcceptQueue));
    let _users = user.lock();
    parker.unpark();
    let _held = queue.lock();
    assert!(refusal(|| _ = parker.unpark()).contains("accept-queue"));
    parker.ring();
}

#[test]
fn nobody_waits_for_a_condition_holding_another_lock_of_the_stack() {
    let (group, mailbox, condvar) = (lock(LockClass::Group), lock(LockClass::Handoff), Condvar::<Real>::new());
    let _held = group.lock();
    let wait = || _ = condvar.wait_timeout(mailbox.lock(), std::time::Duration::from_nanos(1));
    assert!(refusal(wait).contains("group"));
}

#[test]
fn a_condvar_gives_its_lock_back_and_takes_it_with_its_index() {
    let (a, condvar) = (lock(LockClass::Group), Condvar::<Real>::new());
    let held = condvar.wait_timeout(a.lock_nested(4), std::time::Duration::from_nanos(1));
    let b = lock(LockClass::Group);
    drop(b.lock_nested(5));
    drop(held);
    assert_none_held::<Real>("testing");
}
