//! Counts of uses and holders, and stacks of numbers, one step after another: what each call returns. The models in
//! `loom.rs` and `shuttle.rs` check the same types between threads.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sync::{IndexStack, ShareCount, UseCount};

#[test]
fn a_use_of_what_is_open_delays_its_end() {
    let count: UseCount = UseCount::closed();
    assert!(count.is_drained(), "closed and unused from the start");
    let generation = count.open().expect("it is closed and unused");
    assert_eq!(generation, 1);
    assert!(!count.is_drained(), "open");
    assert_eq!((count.enter(generation), count.uses()), (Ok(()), 1));
    count.enter_again();
    assert_eq!(count.uses(), 2);
    assert!(!count.leave(), "open, and another use goes on");
    assert_eq!(count.enter(generation), Ok(()));
    assert!(!count.close(), "two uses go on");
    assert!(!count.is_drained(), "closed, and in use");
    assert_eq!(count.enter(generation), Err(false), "no use begins after closing");
    assert!(!count.leave(), "one use is left");
    assert!(count.leave(), "the last");
    assert!(count.is_drained());
    assert_eq!(count.uses(), 0);
}

#[test]
fn leaving_what_is_open_ends_nothing() {
    let count: UseCount = UseCount::closed();
    let generation = count.open().expect("it is closed and unused");
    assert_eq!(count.enter(generation), Ok(()));
    assert!(!count.leave(), "unused, and open");
    assert!(count.close(), "no use goes on");
}

#[test]
fn a_name_of_an_earlier_generation_is_refused() {
    let count: UseCount = UseCount::closed();
    assert_eq!(count.enter(1), Err(true), "closed; the attempt was the last to leave");
    let first = count.open().expect("closed and unused");
    assert_eq!(count.open(), None, "open");
    assert!(count.close());
    assert_eq!(count.enter(first), Err(true));
    let second = count.open().expect("closed and unused");
    assert_eq!((first, second), (1, 2));
    assert_eq!(count.enter(first), Err(false), "what is there now is another thing, and open");
    assert_eq!((count.uses(), count.enter(second)), (0, Ok(())));
    assert!(!count.close());
    assert_eq!(count.open(), None, "closed, and in use");
    assert!(count.leave());
    assert_eq!(count.open(), Some(3));
}

#[test]
fn generations_begin_again_after_the_largest() {
    let count: UseCount = UseCount::closed();
    for expected in (1..=u16::MAX).chain([1, 2]) {
        assert_eq!(count.open(), Some(expected));
        assert_eq!(count.enter(expected), Ok(()));
        assert!(!count.leave());
        assert!(count.close());
    }
}

#[test]
fn what_was_closed_too_early_is_opened_again_as_it_was() {
    let count: UseCount = UseCount::closed();
    let generation = count.open().expect("closed and unused");
    assert!(count.close());
    count.reopen();
    assert!(!count.is_drained());
    assert_eq!(count.enter(generation), Ok(()));
    assert_eq!(count.uses(), 1);
}

#[test]
fn the_last_of_the_holders_frees() {
    let count: ShareCount = ShareCount::new();
    assert!(count.is_unique());
    count.share();
    count.share();
    assert!(!count.is_unique());
    assert!(!count.release());
    assert!(!count.is_unique(), "two are left");
    assert!(!count.release());
    assert!(count.is_unique(), "one is left");
    assert!(count.release());
    count.reset();
    assert!(count.is_unique(), "one holder again");
    count.share();
    count.reset();
    assert!(count.release(), "one holder, however many there were");
}

#[test]
fn numbers_come_back_in_the_opposite_order_however_often_they_go() {
    let stack: IndexStack = IndexStack::new(300);
    assert_eq!(stack.pop(), None);
    for _ in 0..20 {
        for index in [0, 299, 1, 256, 255] {
            stack.push(index);
        }
        let popped: Vec<u32> = std::iter::from_fn(|| stack.pop()).collect();
        assert_eq!(popped, [255, 256, 1, 299, 0]);
    }
    assert!(catch_unwind(AssertUnwindSafe(|| stack.push(300))).is_err(), "not below the bound");
}
