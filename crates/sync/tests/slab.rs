//! The slab: keys, owners, transfers between them, and values after owners and slabs are dropped.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use sync::LockClass;
use sync::slab::{Detached, Key, Owner, RUN, Slab};

const COUNT: u32 = if cfg!(miri) { 100 } else { 20_000 };

fn slab<T>() -> Arc<Slab<T>> {
    Slab::new(LockClass::ConnSlab)
}

/// Counts how many of it are alive.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Relaxed);
        Counted(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn every_key_finds_its_value_where_it_was_put() {
    let mut owner = slab::<u64>().owner();
    let keys: Vec<Key> = (0..COUNT).map(|n| owner.insert(n.into())).collect();
    let places: Vec<*const u64> = keys.iter().map(|key| owner.get(key.slot).map(std::ptr::from_ref).unwrap()).collect();
    for ((n, key), place) in (0u64..).zip(&keys).zip(places) {
        assert_eq!(owner.get_by_key(*key), Some(&mut n.clone()));
        assert!(std::ptr::eq(owner.get(key.slot).unwrap(), place), "it has moved");
    }
    assert_eq!(owner.len(), COUNT as usize);
    for none in [COUNT.next_multiple_of(RUN), COUNT + 1_000_000, u32::MAX - 1, u32::MAX] {
        assert_eq!(owner.get_mut(none), None);
    }
}

#[test]
fn a_key_is_stale_once_its_value_has_gone() {
    let mut owner = slab::<u64>().owner();
    let old = owner.insert(1);
    assert_eq!(owner.remove(old.slot), Some(1));
    assert_eq!((owner.remove(old.slot), owner.free(old.slot)), (None, false));
    let new = owner.insert(2);
    assert_eq!(new.slot, old.slot, "what was freed last is used first");
    assert_eq!(owner.get_by_key(old), None);
    assert_eq!(owner.get_by_key(new), Some(&mut 2));
    assert!(owner.free(new.slot));
    assert_eq!(owner.get_by_key(new), None);
}

#[test]
fn a_key_is_the_same_after_being_a_word() {
    let words = [(0, 0), (1, 0), (0, 1), (0xffff_ffff, 1), (1, 0xffff_ffff), (0x8765_4321, 0x8fed_cba9)];
    for (slot, generation) in words {
        let key = Key { slot, generation };
        assert_eq!(Key::from_bits(key.to_bits()), key);
        assert_eq!(key.to_bits() as u32, slot, "the slot is the lower half");
    }
}

#[test]
fn an_owner_counts_its_values_and_knows_their_keys() {
    let mut owner = slab::<u64>().owner();
    assert!(owner.is_empty());
    let keys = [1, 2, 3].map(|value| owner.insert(value));
    assert_eq!((owner.len(), owner.is_empty()), (3, false));
    assert_eq!(keys.map(|key| owner.key(key.slot)), keys.map(Some));
    assert_eq!((owner.remove(keys[0].slot), owner.len()), (Some(1), 2));
    assert!(owner.free(keys[1].slot));
    assert_eq!((owner.len(), owner.key(keys[1].slot)), (1, None));
    assert_eq!((owner.remove(keys[2].slot), owner.len(), owner.is_empty()), (Some(3), 0, true));
}

/// The first fields of a value are in the cache line of the word that a look-up compares, and a value that is 8 bytes
/// shorter than whole lines leaves no gap.
#[test]
fn an_entry_is_whole_cache_lines_and_begins_one() {
    type Value = [u64; 15];
    assert_eq!((Slab::<Value>::BEFORE, Slab::<Value>::ENTRY), (8, 128));
    let mut owner = slab::<Value>().owner();
    for _ in 0..3 * RUN {
        let key = owner.insert([0; 15]);
        let place = owner.get(key.slot).map(|value| value.as_ptr() as usize);
        assert_eq!(place.map(|place| place % 64), Some(8), "{key:?}");
    }
}

/// The memory of all connections is in one account, which this is a part of.
#[test]
fn the_footprint_is_that_of_whole_chunks() {
    let slab = slab::<u64>();
    assert_eq!(slab.footprint(), 0);
    let chunk = RUN as usize * Slab::<u64>::ENTRY + size_of::<usize>();
    let mut owner = slab.owner();
    let mut keys = Vec::new();
    for chunks in 1..=5 {
        keys.extend((0..RUN).map(|n| owner.insert(n.into())));
        assert_eq!(slab.footprint(), chunks * chunk);
    }
    assert!(keys.iter().all(|key| owner.free(key.slot)));
    assert_eq!(slab.footprint(), 5 * chunk, "free entries are kept");
}

/// An owner's free entries are lists of any length; each of them serves the next owner.
#[test]
fn whatever_an_owner_leaves_is_used_again() {
    for (inserted, freed) in
        [(1, 0), (1, 1), (RUN - 1, RUN - 1), (RUN, RUN), (RUN, 1), (2 * RUN, 2 * RUN), (3 * RUN, RUN + 3)]
    {
        let slab = slab::<u64>();
        let mut owner = slab.owner();
        let keys: Vec<Key> = (0..inserted).map(|n| owner.insert(n.into())).collect();
        assert!(keys.iter().take(freed as usize).all(|key| owner.free(key.slot)));
        drop(owner);
        let before = slab.footprint();
        let room = inserted.next_multiple_of(RUN) - (inserted - freed);
        let mut next = slab.owner();
        let again: Vec<Key> = (0..room).map(|n| next.insert(n.into())).collect();
        assert_eq!(slab.footprint(), before, "{freed} of {inserted} freed: {room} free entries serve the next owner");
        let slots: std::collections::HashSet<u32> = again.iter().map(|key| key.slot).collect();
        assert_eq!(slots.len(), room as usize, "each once");
        assert!(keys.iter().skip(freed as usize).all(|key| !slots.contains(&key.slot)), "what is in use is not given");
    }
}

/// A whole run may be all that an owner has left.
#[test]
fn a_run_that_an_owner_has_in_reserve_is_used_again() {
    let slab = slab::<u64>();
    let mut owner = slab.owner();
    let keys: Vec<Key> = (0..=RUN).map(|n| owner.insert(n.into())).collect();
    assert!(keys.iter().all(|key| owner.free(key.slot)));
    let taken: Vec<Key> = (0..RUN).map(|n| owner.insert(n.into())).collect();
    let before = slab.footprint();
    drop(owner);
    let mut next = slab.owner();
    let others: Vec<Key> = (0..RUN).map(|n| next.insert(n.into())).collect();
    assert_eq!(slab.footprint(), before, "two runs are in two chunks");
    assert!(taken.iter().all(|key| others.iter().all(|other| other.slot != key.slot)));
}

#[test]
fn an_owner_reaches_its_own_values_only() {
    let slab = slab::<u64>();
    let (mut one, mut two) = (slab.owner(), slab.owner());
    let key = one.insert(1);
    assert_eq!(two.get_mut(key.slot), None);
    assert_eq!(two.get_by_key(key), None);
    assert_eq!(two.get(key.slot), None);
    assert_eq!((two.remove(key.slot), two.free(key.slot), two.key(key.slot)), (None, false, None));
    assert!(two.detach(key.slot).is_none());
    assert_eq!(one.get_mut(key.slot), Some(&mut 1));
}

#[test]
fn a_value_keeps_key_and_place_when_it_changes_its_owner() {
    let slab = slab::<u64>();
    let (mut one, mut two) = (slab.owner(), slab.owner());
    let key = one.insert(1);
    let place = std::ptr::from_ref(one.get(key.slot).unwrap());
    let mut detached = one.detach(key.slot).expect("it is there");
    assert_eq!((one.get_mut(key.slot), detached.key()), (None, key));
    *detached += 1;
    assert_eq!(two.attach(detached).ok(), Some(key));
    assert_eq!((two.get_by_key(key).copied(), one.len(), two.len()), (Some(2), 0, 1));
    assert!(std::ptr::eq(two.get(key.slot).unwrap(), place), "it has moved");
}

#[test]
fn a_value_that_is_moved_out_leaves_its_key_in_use() {
    let mut owner = slab::<u64>().owner();
    let key = owner.insert(1);
    let (reserved, value) = owner.detach(key.slot).expect("it is there").take();
    assert_eq!((reserved.key(), owner.get_by_key(key)), (key, None));
    assert!((0..4 * RUN).all(|_| owner.insert(7).slot != key.slot), "nobody else gets the entry");
    assert_eq!(owner.attach(reserved.fill(value + 1)).ok(), Some(key));
    assert_eq!(owner.get_by_key(key), Some(&mut 2));
    let reserved = owner.slab().reserve();
    let gone = reserved.key();
    drop(reserved);
    let again = owner.slab().detached(8);
    assert_eq!((again.key().slot, *again), (gone.slot, 8), "what was freed last is used first");
    assert_ne!(again.key(), gone, "the key that was reserved is stale");
}

/// The entry located last is found without a look-up, exactly as long as it exists.
#[test]
fn what_was_located_last_is_found_until_it_is_gone() {
    let slab = slab::<u64>();
    let (mut owner, mut next) = (slab.owner(), slab.owner());
    assert_eq!(owner.get_mut(u32::MAX), None, "nothing was located");
    for leave in 0..3 {
        let keys: [Key; 2] = [1, 2].map(|value| owner.insert(value));
        assert_eq!(owner.locate(keys[0].slot), Some(&1));
        assert_eq!(owner.get_mut(keys[0].slot), Some(&mut 1));
        assert_eq!(owner.get_mut(keys[1].slot), Some(&mut 2), "another one than the last");
        assert_eq!(owner.get_by_key(keys[0]), Some(&mut 1));
        let slot = keys[0].slot;
        match leave {
            0 => assert_eq!(owner.remove(slot), Some(1)),
            1 => assert!(owner.free(slot)),
            _ => drop(next.attach(owner.detach(slot).expect("it is there"))),
        }
        assert_eq!((owner.get_mut(slot).copied(), owner.locate(slot).copied()), (None, None));
        assert!(owner.free(keys[1].slot));
    }
}

#[test]
fn a_value_is_not_attached_to_another_slab() {
    let (here, there) = (slab::<u64>(), slab::<u64>());
    let mut owner = here.owner();
    let key = owner.insert(5);
    let detached = owner.detach(key.slot).expect("it is there");
    let back = there.owner().attach(detached).expect_err("it is refused");
    assert_eq!(*back, 5);
}

#[test]
fn values_are_dropped_once_wherever_they_are() {
    let alive = Arc::new(AtomicUsize::new(0));
    let slab = slab::<Counted>();
    let (mut one, mut two) = (slab.owner(), slab.owner());
    let keys: Vec<Key> = (0..100).map(|_| one.insert(Counted::new(&alive))).collect();
    for key in &keys[..10] {
        assert!(one.free(key.slot));
    }
    drop(one.remove(keys[10].slot));
    drop(one.detach(keys[11].slot));
    let passed = one.detach(keys[12].slot).expect("it is there");
    assert!(two.attach(passed).is_ok());
    let (reserved, value) = one.detach(keys[13].slot).expect("it is there").take();
    drop(value);
    let held = one.detach(keys[14].slot).expect("it is there");
    assert_eq!(alive.load(Relaxed), 87);
    drop((one, two, slab));
    assert_eq!(alive.load(Relaxed), 87, "what still has its entry in the slab keeps it");
    drop(held);
    assert_eq!(alive.load(Relaxed), 86);
    drop(reserved);
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
fn a_value_whose_drop_panics_is_not_reached_again() {
    struct Fuse(#[allow(dead_code)] u64);
    impl Drop for Fuse {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("blown");
            }
        }
    }
    let mut owner = slab::<Fuse>().owner();
    let key = owner.insert(Fuse(1));
    let blown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| owner.free(key.slot)));
    assert!(blown.is_err());
    assert!(owner.get_mut(key.slot).is_none());
    let next = owner.insert(Fuse(2));
    assert_ne!(next.slot, key.slot);
    std::mem::forget(owner.remove(next.slot));
}

/// Each thread keeps some entries of its own for reuse; further ones serve the others.
#[test]
fn free_entries_find_their_way_to_other_owners() {
    let slab = slab::<u64>();
    let (mut one, mut two) = (slab.owner(), slab.owner());
    for round in 0..5 {
        let keys: Vec<Key> = (0..10 * RUN).map(|n| one.insert(n.into())).collect();
        assert!(keys.iter().all(|key| one.free(key.slot)));
        let keys: Vec<Key> = (0..10 * RUN).map(|n| two.insert(n.into())).collect();
        assert!(keys.iter().all(|key| two.free(key.slot)));
        let most = (10 + 2 * 2) * RUN as usize * (Slab::<u64>::ENTRY + size_of::<usize>());
        assert!(slab.footprint() <= most, "round {round}: {} bytes, not more than {most}", slab.footprint());
    }
    let before = slab.footprint();
    drop((one, two));
    let mut three = slab.owner();
    for n in 0..10 * RUN {
        three.insert(n.into());
    }
    assert_eq!(slab.footprint(), before, "what owners leave is used again");
}

/// Values circulate between threads, each of which adds to them.
#[test]
fn threads_pass_values_on() {
    let slab = slab::<u64>();
    let passing = Mutex::new(Vec::<Detached<u64>>::new());
    let rounds = COUNT / 10;
    thread::scope(|scope| {
        for _ in 0..4 {
            let (mut owner, passing) = (slab.owner(), &passing);
            scope.spawn(move || {
                for _ in 0..rounds {
                    let key = owner.insert(0);
                    passing.lock().unwrap().push(owner.detach(key.slot).expect("it is there"));
                    let Some(other) = passing.lock().unwrap().pop() else { continue };
                    let key = owner.attach(other).expect("of this slab");
                    *owner.get_by_key(key).expect("it is ours") += 1;
                    if key.slot % 3 == 0 {
                        assert!(owner.free(key.slot));
                    } else {
                        assert_eq!(owner.remove(key.slot), Some(1));
                    }
                }
                assert!(owner.is_empty());
            });
        }
    });
    assert!(passing.lock().unwrap().len() <= 4);
}

/// Fills chunks, frees all of their values, and has the owners return their free entries.
fn peak(owners: &mut [&mut Owner<u64>]) -> Vec<Key> {
    let keys: Vec<Vec<Key>> =
        owners.iter_mut().map(|owner| (0..COUNT).map(|n| owner.insert(n.into())).collect()).collect();
    for (owner, keys) in owners.iter_mut().zip(&keys) {
        assert!(keys.iter().all(|key| owner.free(key.slot)));
        owner.trim();
    }
    keys.concat()
}

#[test]
fn memory_is_given_back_after_a_peak_and_keys_remain_stale() {
    let slab = slab::<u64>();
    let (mut one, mut two) = (slab.owner(), slab.owner());
    let before = slab.footprint();
    let mut stale = Vec::new();
    for round in 0..3 {
        stale.append(&mut peak(&mut [&mut one, &mut two]));
        let full = slab.footprint();
        assert!(slab.has_surplus(1));
        slab.trim(1);
        assert_eq!(slab.footprint(), full, "both owners may look at it still");
        one.trim();
        assert_eq!(slab.footprint(), full, "one may");
        two.trim();
        let left = slab.footprint() - before;
        let addresses = full / (Slab::<u64>::ENTRY * RUN as usize) * size_of::<usize>();
        assert!(
            left <= Slab::<u64>::ENTRY * RUN as usize + addresses,
            "round {round}: {left} of {full} bytes are left"
        );
        assert!(!slab.has_surplus(1));
        assert!(stale.iter().all(|key| one.get(key.slot).is_none()), "there is no memory to look at");
    }
    let fresh: Vec<Key> = (0..COUNT).map(|n| one.insert(n.into())).collect();
    assert!(stale.iter().all(|key| one.get_by_key(*key).is_none()), "what was named before is not named now");
    assert!((0..).zip(&fresh).all(|(n, key)| one.get_by_key(*key) == Some(&mut u64::from(n as u32))));
}

#[test]
fn a_chunk_with_one_value_stays_where_it_is() {
    let slab = slab::<u64>();
    let (mut one, mut two) = (slab.owner(), slab.owner());
    let keys: Vec<Key> = (0..3 * RUN).map(|n| one.insert(n.into())).collect();
    let (held, apart, reserved) = (keys[3], keys[RUN as usize + 3], keys[2 * RUN as usize + 3]);
    let detached = one.detach(apart.slot).expect("it is there");
    let (place, _) = one.detach(reserved.slot).expect("it is there").take();
    keys.iter()
        .filter(|key| ![held, apart, reserved].contains(key))
        .for_each(|key| assert!(one.remove(key.slot).is_some()));
    let full = slab.footprint();
    for _ in 0..2 {
        one.trim();
        two.trim();
        slab.trim(0);
    }
    assert_eq!(slab.footprint(), full);
    assert_eq!((one.get_by_key(held), *detached, place.key()), (Some(&mut 3), u64::from(RUN) + 3, reserved));
    // Now nothing is left of it, and the last owner's end is an announcement, too.
    drop((detached, place));
    assert!(one.free(held.slot));
    one.trim();
    slab.trim(0);
    drop(one);
    assert_eq!(slab.footprint(), full);
    drop(two);
    assert!(slab.footprint() < full / 8);
}

/// The memory of a chunk waits for every owner: for one that has announced nothing since, and for none that has gone.
#[test]
fn memory_waits_until_the_last_owner_has_announced() {
    let slab = slab::<u64>();
    let (mut one, mut two, three, mut four) = (slab.owner(), slab.owner(), slab.owner(), slab.owner());
    drop((0..3 * u64::from(RUN)).map(|n| slab.detached(n)).collect::<Vec<_>>());
    let full = slab.footprint();
    assert!(!slab.awaits_owners());
    slab.trim(0);
    assert!(slab.awaits_owners());
    one.trim();
    one.trim();
    two.trim();
    assert!(slab.awaits_owners(), "two have announced nothing");
    drop(three);
    assert!(slab.awaits_owners(), "one may still look at the memory");
    assert_eq!(slab.footprint(), full);
    four.trim();
    assert!(!slab.awaits_owners());
    assert!(slab.footprint() < full / 8);
}

#[test]
fn without_owners_memory_is_freed_at_once() {
    let slab = slab::<u64>();
    let detached: Vec<Detached<u64>> = (0..u64::from(3 * RUN)).map(|n| slab.detached(n)).collect();
    let full = slab.footprint();
    drop(detached);
    slab.trim(0);
    assert!(slab.footprint() < full / 8);
}

/// Threads that insert, free and access each other's entries while memory is returned.
#[test]
fn memory_is_given_back_while_others_insert() {
    let slab = slab::<u64>();
    let rounds = if cfg!(miri) { 3 } else { 300 };
    thread::scope(|scope| {
        for seed in 0..3u32 {
            let mut owner = slab.owner();
            scope.spawn(move || {
                for round in 0..rounds {
                    let keys: Vec<Key> = (0..100).map(|n| owner.insert(n)).collect();
                    let looks = (0..2000).step_by(7).filter(|slot| owner.get(slot + seed).is_some()).count();
                    assert!(looks <= keys.len());
                    assert!((0..).zip(&keys).all(|(n, key)| owner.get_by_key(*key) == Some(&mut { n })));
                    keys.iter().for_each(|key| assert!(owner.free(key.slot)));
                    if round % 2 == 0 {
                        owner.trim();
                        owner.slab().trim(0);
                    }
                }
            });
        }
    });
    slab.trim(0);
    assert!(!slab.has_surplus(0));
}

#[test]
fn a_slab_may_have_had_what_it_has_and_not_twice_that() {
    let slab = slab::<u64>();
    let mut owner = slab.owner();
    assert!(!slab.may_have_had(1));
    for count in 1..=2000 {
        let _ = owner.insert(u64::from(count));
        assert!(slab.may_have_had(count), "it has {count}");
        assert!(!slab.may_have_had(2 * count + 32), "it never had more than {count}");
    }
    (0..2000).for_each(|index| assert!(owner.remove(index).is_some()));
    assert!(slab.may_have_had(2000), "it had them once");
}
