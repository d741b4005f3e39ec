//! Order, water marks and claims of a chain, without threads.

use sync::Real;

use super::*;
use crate::queue::{Module, Passed};

struct PassesOn;

impl Queue for PassesOn {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        to.on(message);
        Ok(())
    }
}

fn plain(name: &str, low: usize, high: usize) -> Module {
    Module::new(name, PassesOn, PassesOn).marks(WaterMarks::new(low, high))
}

fn enter(chain: &mut Chain, side: Side, first: u8, count: u8) {
    for n in first..first + count {
        chain.enter(side, Some(Message::bytes([n; 10])), 7);
    }
}

/// Runs the work that the claimant may run; returns the number of calls.
fn run(chain: &mut Chain, claimant: Claimant) -> usize {
    let mut count = 0;
    while let Some(mut job) = chain.claim(claimant) {
        job.run();
        chain.complete::<Real>(job);
        count += 1;
    }
    count
}

fn top(chain: &mut Chain) -> Vec<u8> {
    std::iter::from_fn(|| chain.take_top().flatten()).map(|message| message.as_bytes().unwrap()[0]).collect()
}

/// STREAMS: a queue that has reached its high-water mark stops the one before it until it has fallen to its low-water mark.
#[test]
fn a_full_queue_stops_the_one_before_it_until_it_has_fallen_to_its_low_water_mark() {
    let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::new(10, 30));
    let below = chain.push(plain("below", 20, 40));
    let owner = Claimant::Owner(below, 99);
    enter(&mut chain, Side::Read, 0, 9);
    // The head takes three messages of 10 bytes: then it is full.
    assert_eq!(run(&mut chain, owner), 3);
    // It stays full with 20 bytes, and takes again from 10 bytes on.
    assert_eq!(chain.take_top().flatten().unwrap().as_bytes().unwrap()[0], 0);
    assert_eq!(run(&mut chain, owner), 0, "enabled above the low-water mark");
    assert_eq!(chain.take_top().flatten().unwrap().as_bytes().unwrap()[0], 1);
    assert_eq!(run(&mut chain, owner), 2);
    // The same between the module and a caller that enters: 40 bytes wait.
    assert!(!chain.has_room(Side::Read));
    assert_eq!((top(&mut chain), run(&mut chain, owner)), (vec![2, 3, 4], 3));
    assert!(chain.has_room(Side::Read), "10 bytes wait");
}

#[test]
fn what_one_call_passes_on_is_taken_as_a_whole() {
    struct SplitsMessages;
    impl Queue for SplitsMessages {
        fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
            message.as_bytes().unwrap().iter().for_each(|byte| to.on(Message::bytes([*byte; 10])));
            Ok(())
        }
    }
    let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::new(0, 20));
    chain.push(Module::new("splits", SplitsMessages, PassesOn));
    for first in [0, 10] {
        let bytes: Vec<u8> = (first..first + 5).collect();
        chain.enter(Side::Read, Some(bytes.into()), 7);
    }
    assert_eq!(run(&mut chain, Claimant::Caller(Side::Read)), 1);
    assert_eq!(top(&mut chain), [0, 1, 2, 3, 4]);
    assert_eq!(run(&mut chain, Claimant::Caller(Side::Read)), 1);
    assert_eq!(top(&mut chain), [10, 11, 12, 13, 14]);
}

#[test]
fn a_queue_in_use_is_nobody_elses_and_only_its_first_message_is_claimed() {
    let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::default());
    chain.push(plain("only", 0, 1000));
    chain.enter(Side::Read, Some(Message::bytes([0])), 1);
    chain.enter(Side::Read, Some(Message::bytes([1])), 2);
    assert!(chain.claim(Claimant::Escort(Side::Read, 2)).is_none(), "it overtakes");
    let mut job = chain.claim(Claimant::Escort(Side::Read, 1)).expect("the first");
    for claimant in [Claimant::Escort(Side::Read, 2), Claimant::Caller(Side::Read)] {
        assert!(chain.claim(claimant).is_none(), "two use a queue");
    }
    assert!(chain.has_more(Claimant::Escort(Side::Read, 2)));
    job.run();
    chain.complete::<Real>(job);
    assert_eq!(run(&mut chain, Claimant::Escort(Side::Read, 2)), 1);
    assert_eq!(top(&mut chain), [0, 1]);
    assert!(!chain.has_more(Claimant::Escort(Side::Read, 2)));
}

/// A message is carried as far as possible before the next one is begun.
#[test]
fn the_work_furthest_along_comes_first() {
    for side in Side::BOTH {
        let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::default());
        for name in ["below", "above"] {
            chain.push(plain(name, 0, 1000));
        }
        enter(&mut chain, side, 0, 2);
        let mut names = Vec::new();
        while let Some(mut job) = chain.claim(Claimant::Caller(side)) {
            names.push(job.name.to_string());
            job.run();
            chain.complete::<Real>(job);
        }
        let expected: &[&str] = match side {
            Side::Read => &["below", "above", "below", "above"],
            Side::Write => &["above", "below", "bottom", "above", "below", "bottom"],
        };
        assert_eq!(names, expected);
    }
}

#[test]
fn a_bringer_runs_only_the_immediate_part_and_only_in_order() {
    let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::default());
    let only = chain.push(plain("only", 0, 1000));
    enter(&mut chain, Side::Write, 0, 2);
    // `put` of the first message: it has work for `svc`, and so the second one waits behind it.
    assert_eq!(run(&mut chain, Claimant::Bringer(7)), 1);
    assert_eq!(run(&mut chain, Claimant::Bringer(7)), 0);
    // Its owner runs the rest of the first and the whole second, and takes both to the bottom.
    assert_eq!(run(&mut chain, Claimant::Owner(only, 8)), 3);
}

/// A message lent to the thread that delivered it still counts in the queue.
#[test]
fn the_immediate_part_of_a_message_makes_no_room() {
    let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::default());
    // Without the message the queue would be below its low-water mark.
    chain.push(plain("only", 15, 20));
    enter(&mut chain, Side::Write, 0, 2);
    assert!(!chain.has_room(Side::Write));
    let mut job = chain.claim(Claimant::Bringer(7)).expect("the first message");
    assert!(!chain.has_room(Side::Write), "while it is run");
    job.run();
    chain.complete::<Real>(job);
    assert!(!chain.has_room(Side::Write), "and afterwards");
    assert_eq!(run(&mut chain, Claimant::Caller(Side::Write)), 4);
    assert!(chain.has_room(Side::Write));
}

/// The marks of a module that replaces another apply to messages that wait already.
#[test]
fn the_new_marks_hold_for_what_waits() {
    let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::default());
    let old = chain.push(plain("old", 0, 1000));
    let taken = chain.take_queues(old).expect("nothing is on the way");
    enter(&mut chain, Side::Write, 0, 2);
    assert!(chain.has_room(Side::Write));
    chain.exchange(old, Default::default(), taken.marks(WaterMarks::new(5, 15)));
    assert!(!chain.has_room(Side::Write));
    assert_eq!(run(&mut chain, Claimant::Caller(Side::Write)), 4);
    assert!(chain.has_room(Side::Write));
}

/// Messages that entered before a change pass through the module that is removed, from the modules before it and past a
/// full head.
#[test]
fn a_module_leaves_only_when_nothing_is_on_the_way_to_it() {
    for (side, leaves) in [(Side::Read, "above"), (Side::Write, "below")] {
        let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::new(0, 1));
        for name in ["below", "above"] {
            chain.push(plain(name, 0, 1000));
        }
        let leaves = chain.named(leaves).expect("it was pushed");
        enter(&mut chain, side, 0, 2);
        assert!(chain.take_queues(leaves).is_none(), "two messages are on the way");
        assert_eq!(run(&mut chain, Claimant::Changer(leaves)), 4);
        assert!(chain.take_queues(leaves).is_some(), "they have passed");
    }
}
