use super::*;

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn timers() -> Timers {
    Timers { wheel: Wheel::new(at(0)), of: Vec::new() }
}

/// The slots that fire until `now`.
fn fired(timers: &mut Timers, now: Time) -> Vec<u32> {
    let mut due = Vec::new();
    timers.wheel.expire(now, &mut due);
    due.sort_unstable();
    due
}

#[test]
fn each_slot_has_one_entry_which_can_be_cancelled() {
    let mut timers = timers();
    for slot in [7, 0, 7, 3] {
        timers.arm(slot, at(10));
    }
    assert_eq!((timers.wheel.len(), timers.of.len()), (3, 8), "no more than the highest slot needs");
    timers.cancel(3);
    timers.cancel(5);
    timers.cancel(1000);
    assert_eq!(fired(&mut timers, at(20)), [0, 7]);
}

#[test]
fn entries_that_stay_are_known_after_memory_was_given_back() {
    let mut timers = timers();
    (0..1000).for_each(|slot| _ = timers.arm(slot, at(10)));
    (0..1000).filter(|slot| ![2, 990].contains(slot)).for_each(|slot| timers.cancel(slot));
    timers.trim(1000);
    timers.cancel(990);
    assert_eq!(timers.wheel.len(), 1, "the entry has moved, and its connection knows where it is");
    timers.trim(3);
    assert_eq!(timers.of.len(), 3);
    assert!((6..12).contains(&timers.of.capacity()), "{}: room for as many again", timers.of.capacity());
    assert_eq!(fired(&mut timers, at(20)), [2]);
}
