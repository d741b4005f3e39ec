//! Packets with several holders: nothing changes under a holder, and the last one releases the block, from any thread.

// The other party is used in the tests of regions.
#[allow(dead_code)]
mod memory;

use std::sync::{Arc, Barrier};
use std::thread;

use memory::pages;
use pktbuf::{PktBuf, Region, RegionCounts, RegionLayout, Released, SharedBuf, balance};

fn packet() -> PktBuf {
    let mut buf = PktBuf::from_slice(b"0123456789").expect("a buffer");
    buf.meta_mut().flow_hash = Some(7);
    buf
}

#[test]
fn holders_share_bytes_and_have_windows_of_their_own() {
    let before = balance();
    let mut one = packet().share();
    let mut two = one.clone();
    one.pull_front(3);
    two.truncate(5);
    two.truncate(8);
    assert_eq!((&one[..], &two[..]), (&b"3456789"[..], &b"01234"[..]));
    assert_eq!((one.as_ptr(), one.meta().flow_hash), (two[3..].as_ptr(), two.meta().flow_hash));
    assert_eq!(balance() - before, 1, "one block");
    drop((one, two));
    assert_eq!(balance(), before);
}

#[test]
fn only_the_last_holder_gets_the_packet_back() {
    let before = balance();
    let one = packet().share();
    let address = one.as_ptr();
    let mut two = one.clone();
    two.pull_front(4);
    assert!(!one.is_unique());
    let one = one.try_into_unique().expect_err("another holds it");
    // A holder that is not the last gets a copy.
    let mut copy = two.into_unique().expect("a buffer");
    copy[0] = b'x';
    assert_eq!((&copy[..], &one[..], copy.meta().flow_hash), (&b"x56789"[..], &b"0123456789"[..], Some(7)));
    let mut back = one.into_unique().expect("no buffer is needed");
    back.push_front(2).copy_from_slice(b"ab");
    assert_eq!((&back[..], back[2..].as_ptr()), (&b"ab0123456789"[..], address));
    drop((copy, back));
    assert_eq!(balance(), before);
}

#[test]
#[should_panic(expected = "11 bytes pulled from a packet of 10")]
fn pulling_beyond_the_end_panics() {
    packet().share().pull_front(11);
}

#[test]
fn a_block_in_use_is_not_handed_out() {
    let one = packet().share();
    let two = one.clone();
    drop(one);
    let others: Vec<PktBuf> = (0..200).map(|_| PktBuf::alloc(100).expect("a buffer")).collect();
    assert!(others.iter().all(|other| other.as_ptr() != two.as_ptr()));
    assert_eq!(&two[..], b"0123456789");
}

/// Eight threads clone and drop; in each round any of them may be the last.
#[test]
fn many_threads_let_go_and_one_sends_it_home() {
    let (memory, other) = pages::<false>(2000);
    let layout = RegionLayout { first: 1, stride: 1999, chunk: 1999, count: 1 };
    let region = Region::register(memory, layout, Released::Free).expect("it fits");
    let rounds = if cfg!(miri) { 10 } else { 2000 };
    let barrier = Arc::new(Barrier::new(8));
    let (id, pass) = (region.id(), std::sync::Mutex::new(Vec::<SharedBuf>::new()));
    thread::scope(|scope| {
        for number in 0..8 {
            let (barrier, pass) = (barrier.clone(), &pass);
            scope.spawn(move || {
                for round in 0..rounds {
                    if number == 0 {
                        let mut buf = PktBuf::alloc_in(id, 100).expect("the chunk has come home");
                        buf.append(100).fill(round as u8);
                        let shared = buf.share();
                        pass.lock().expect("no panic").extend((0..8).map(|_| shared.clone()));
                    }
                    barrier.wait();
                    let mine = pass.lock().expect("no panic").pop().expect("one for each");
                    let again = mine.clone();
                    drop(mine);
                    assert_eq!(again[..], [round as u8; 100]);
                    match again.try_into_unique() {
                        Ok(mut unique) => unique.fill(0xEE),
                        Err(shared) => drop(shared),
                    }
                    barrier.wait();
                }
            });
        }
    });
    assert_eq!(region.counts(), RegionCounts { home: 1, buffers: 0, lent: 0 });
    assert!(region.unregister().is_ok() && other.ends() == 1);
}
