//! Buffers outside the heap: chunks of odd sizes and offsets, release from any thread, the end of a region, and another
//! party that writes at will.

mod memory;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

use memory::{Other, pages};
use pktbuf::{
    ForeignBuf, HEADROOM, NotLent, PktBuf, Region, RegionCounts, RegionError, RegionLayout, Released, Span, balance,
};

/// No power of two and no multiple of a word, not even the first offset.
const ODD: RegionLayout = RegionLayout { first: 3, stride: 1541, chunk: 1531, count: 7 };
const LEN: usize = 3 + 6 * 1541 + 1531;

fn exclusive() -> (Region, Other) {
    let (memory, other) = pages::<false>(LEN);
    (Region::register(memory, ODD, Released::Free).expect("the layout fits exactly"), other)
}

fn foreign(released: Released) -> (Region, Other) {
    let (memory, other) = pages::<true>(LEN);
    (Region::register(memory, ODD, released).expect("the layout fits exactly"), other)
}

fn counts(home: usize, buffers: usize, lent: usize) -> RegionCounts {
    RegionCounts { home, buffers, lent }
}

#[test]
fn chunks_are_apart_and_the_books_balance() {
    let ((region, _other), before) = (exclusive(), balance());
    let mut held: Vec<PktBuf> = std::iter::from_fn(|| PktBuf::alloc_in(region.id(), 1531 - HEADROOM)).collect();
    assert_eq!((held.len(), region.counts(), balance() - before), (7, counts(0, 7, 0), 7));
    for (i, buf) in held.iter_mut().enumerate() {
        assert_eq!((buf.region(), buf.headroom(), buf.tailroom()), (Some(region.id()), HEADROOM, 1531 - HEADROOM));
        assert_eq!(buf.offset_in_region(), Some(3 + i * 1541 + HEADROOM));
        assert_eq!(*buf.meta(), pktbuf::Meta::default());
        buf.meta_mut().queue = i as u16;
        buf.push_front(HEADROOM);
        let room = buf.tailroom();
        buf.append(room);
        buf.fill(i as u8);
    }
    for (i, buf) in held.iter().enumerate() {
        assert!(buf[..] == [i as u8; 1531] && buf.meta().queue == i as u16, "chunk {i} overlaps another");
    }
    assert!(PktBuf::alloc_in(region.id(), 1).is_none(), "all chunks are out");
    let in_heap = PktBuf::alloc_near(Some(region.id()), 1).expect("the heap has room");
    assert_eq!((in_heap.region(), in_heap.offset_in_region()), (None, None));
    drop(held);
    assert_eq!((region.counts(), balance() - before), (counts(7, 0, 0), 1));
    assert_eq!(PktBuf::alloc_near(Some(region.id()), 1).and_then(|buf| buf.region()), Some(region.id()));
    assert!(PktBuf::alloc_in(region.id(), 1531 - HEADROOM + 1).is_none(), "no chunk is so long");
    assert!(PktBuf::alloc_in(region.id(), usize::MAX).is_none());
    assert!(region.unregister().is_ok());
}

#[test]
#[should_panic(expected = "of tailroom")]
fn the_window_ends_with_the_chunk() {
    let (region, _other) = exclusive();
    PktBuf::alloc_in(region.id(), 0).expect("a chunk").append(1531 - HEADROOM + 1);
}

#[test]
fn a_copy_of_a_buffer_in_a_region_lies_in_the_heap() {
    let (region, _other) = exclusive();
    let mut buf = PktBuf::alloc_in(region.id(), 60).expect("a chunk");
    assert!(buf.extend_from_slice(b"frame"));
    let copy = buf.duplicate().expect("a buffer");
    assert_eq!((&copy[..], copy.region()), (&b"frame"[..], None));
}

#[test]
fn frames_go_to_the_other_side_and_come_back() {
    let ((region, other), before) = (exclusive(), balance());
    let mut sent = PktBuf::alloc_in(region.id(), 60).expect("a chunk");
    assert!(sent.extend_from_slice(b"request"));
    let span = region.lend(sent).expect("it lies here");
    assert_eq!((span, region.counts(), balance()), (Span { offset: 3 + HEADROOM, len: 7 }, counts(6, 0, 1), before));
    assert!((0..7).all(|i| other.read(span.offset + i) == b"request"[i]), "the other side reads the frame");
    region.give_back(span.offset).expect("it was lent");

    let free = region.lend_free().expect("all are free");
    b"reply".iter().enumerate().for_each(|(i, byte)| other.write(free.offset + 10 + i, *byte));
    let got = region.accept(Span { offset: free.offset + 10, len: 5 }).expect("it was lent");
    assert_eq!((&got[..], got.headroom(), got.tailroom(), balance() - before), (&b"reply"[..], 10, 1531 - 15, 1));
    let elsewhere = PktBuf::from_slice(b"in the heap").expect("a buffer");
    assert_eq!(region.lend(elsewhere).expect_err("it lies elsewhere").region(), None);
    drop(got);
    assert_eq!((region.counts(), balance()), (counts(7, 0, 0), before));
}

#[test]
fn descriptors_that_lie_are_refused() {
    let (region, _other) = exclusive();
    let (lent, kept) = (region.lend_free().expect("a chunk"), PktBuf::alloc_in(region.id(), 9).expect("a chunk"));
    let is_lent = |offset: usize| (lent.offset..lent.offset + lent.len).contains(&offset);
    for offset in (0..LEN + 100).filter(|offset| !is_lent(*offset)).chain([usize::MAX, usize::MAX - 1]) {
        for len in [1, 2000, usize::MAX] {
            assert_eq!(region.accept(Span { offset, len }).err(), Some(NotLent), "{len} bytes at {offset}");
        }
        assert_eq!(region.give_back(offset), Err(NotLent), "offset {offset}");
    }
    for (at, len) in [(0, 1532), (1, 1531), (1530, 2), (5, usize::MAX)] {
        assert_eq!(region.accept(Span { offset: lent.offset + at, len }).err(), Some(NotLent), "{len} bytes at {at}");
    }
    assert_eq!(region.counts(), counts(5, 1, 1));
    let got = region.accept(Span { offset: lent.offset, len: 1531 }).expect("all of it");
    assert_eq!(region.accept(Span { offset: lent.offset, len: 1 }).err(), Some(NotLent), "it was accepted already");
    assert_eq!(region.give_back(lent.offset), Err(NotLent));
    drop((got, kept));
    assert_eq!(region.counts(), counts(7, 0, 0));
}

/// The test's model of a buffer in untrusted memory.
struct Known {
    buf: ForeignBuf,
    offset: usize,
    len: usize,
    room: (usize, usize),
}

impl Known {
    fn check(&self, region: &Region) {
        let buf = &self.buf;
        assert_eq!((buf.region(), buf.offset_in_region(), buf.len()), (Some(region.id()), Some(self.offset), self.len));
        assert_eq!((buf.headroom(), buf.tailroom()), self.room);
    }
}

fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

/// Between any two operations the guest overwrites all its memory. Windows, homes and counts are unaffected, and no
/// operation reaches beyond its chunk.
#[test]
fn a_hostile_guest_changes_bytes_and_nothing_else() {
    let (region, guest) = foreign(Released::Free);
    assert!(PktBuf::alloc_in(region.id(), 1).is_none(), "no reference may point into this memory");
    let (mut seed, mut held, mut lent) = (7, Vec::<Known>::new(), Vec::<Span>::new());
    for step in 0..if cfg!(miri) { 100 } else { 3000 } {
        guest.scribble(step as u8);
        let pick = random(&mut seed);
        match (pick % 6, held.is_empty(), lent.is_empty()) {
            (0, ..) => {
                if let Some(buf) = ForeignBuf::alloc_in(region.id(), 64) {
                    let offset = buf.offset_in_region().expect("it lies in a region");
                    let room = (HEADROOM, 1531 - HEADROOM);
                    held.push(Known { buf, offset, len: 0, room });
                } else {
                    assert_eq!(held.len() + lent.len(), 7);
                }
            }
            (1, false, _) => {
                let at = pick % held.len();
                let known = &mut held[at];
                let data = vec![step as u8; pick % 400];
                let fits = known.buf.extend_from_slice(&data);
                assert_eq!(fits, data.len() <= known.room.1);
                if fits {
                    known.len += data.len();
                    known.room.1 -= data.len();
                }
            }
            (2, false, _) => {
                let at = pick % held.len();
                let known = &mut held[at];
                let n = pick % (known.len + 1);
                known.buf.pull_front(n);
                (known.offset, known.len, known.room.0) = (known.offset + n, known.len - n, known.room.0 + n);
                let mut one = [0];
                if known.len > 0 {
                    known.buf.read(known.len - 1, &mut one);
                    assert_eq!(one[0], guest.read(known.offset + known.len - 1), "the last byte of the window");
                }
            }
            (3, false, _) => {
                let known = held.swap_remove(pick % held.len());
                lent.push(region.lend_foreign(known.buf).expect("it lies here"));
                assert_eq!(*lent.last().expect("pushed"), Span { offset: known.offset, len: known.len });
            }
            (4, _, false) => {
                let span = lent.swap_remove(pick % lent.len());
                // False reports by the guest are refused until a correct one.
                let lie = Span { offset: span.offset, len: 1600 + pick };
                assert!(region.accept_foreign(lie).is_err());
                assert!(region.accept(span).is_err(), "no reference may point into this memory");
                let buf = region.accept_foreign(span).expect("it was lent");
                let before = (span.offset - 3) % 1541;
                let room = (before, 1531 - before - span.len);
                held.push(Known { buf, offset: span.offset, len: span.len, room });
            }
            (5, false, _) => drop(held.swap_remove(pick % held.len())),
            _ => {}
        }
        held.iter().for_each(|known| known.check(&region));
        assert_eq!(region.counts(), counts(7 - held.len() - lent.len(), held.len(), lent.len()));
    }
    drop(held);
    assert_eq!(region.give_all_back(), lent.len());
    assert!(region.unregister().is_ok() && guest.ends() == 1);
}

/// The guest's later writes do not affect bytes that were copied out. Copies at every alignment and length.
#[test]
fn a_copy_is_out_of_the_guests_reach() {
    let (region, guest) = foreign(Released::Free);
    let data: Vec<u8> = (0..200).map(|i| i as u8 ^ 0xC3).collect();
    for cut in 0..24 {
        for len in [0, 1, 7, 8, 9, 63, 150] {
            let mut buf = ForeignBuf::alloc_in(region.id(), 200).expect("a chunk");
            assert!(buf.extend_from_slice(&data));
            buf.pull_front(cut);
            buf.truncate(len);
            let copy = buf.copy_out().expect("a buffer");
            guest.scribble(len as u8);
            assert_eq!((&copy[..], copy.region()), (&data[cut..cut + len], None));
            let mut part = [0; 4];
            if len > 7 {
                buf.write(3, b"text");
                buf.read(3, &mut part);
                assert_eq!(&part, b"text");
            }
        }
    }
}

#[test]
#[should_panic(expected = "2 bytes at 4 of a packet of 5")]
fn a_copy_beyond_the_window_panics() {
    let (region, _guest) = foreign(Released::Free);
    let mut buf = ForeignBuf::alloc_in(region.id(), 9).expect("a chunk");
    assert!(buf.extend_from_slice(b"frame"));
    buf.read(4, &mut [0; 2]);
}

/// A guest that writes during copies: torn data, but correct accounting.
#[test]
#[cfg(not(miri))]
fn a_guest_that_writes_meanwhile_does_no_harm() {
    let (region, guest) = foreign(Released::Free);
    let (done, guests_hand) = (AtomicBool::new(false), guest.clone());
    thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            for seed in 0.. {
                guests_hand.scribble(seed as u8);
                if done.load(Relaxed) {
                    break;
                }
            }
        });
        for round in 0..500 {
            let mut buf = ForeignBuf::alloc_in(region.id(), 1000).expect("a chunk");
            assert!(buf.extend_from_slice(&[0; 1000]));
            buf.pull_front(round % 13);
            assert_eq!(buf.copy_out().expect("a buffer").len(), 1000 - round % 13);
        }
        done.store(true, Relaxed);
    });
    assert_eq!(region.counts(), counts(7, 0, 0));
}

#[test]
fn returned_chunks_wait_for_their_owner() {
    let (region, _guest) = foreign(Released::Returned);
    assert_eq!(region.next_returned(), None);
    let first = ForeignBuf::alloc_in(region.id(), 1).expect("a chunk");
    thread::spawn(|| drop(first)).join().expect("no panic");
    assert_eq!(region.counts(), counts(7, 0, 0));
    let others: Vec<_> = std::iter::from_fn(|| ForeignBuf::alloc_in(region.id(), 1)).collect();
    assert_eq!(others.len(), 6, "a returned chunk is not free");
    assert_eq!(region.next_returned(), Some(Span { offset: 3, len: 1531 }));
    assert_eq!((region.next_returned(), region.counts()), (None, counts(0, 6, 1)));
    region.give_back(3).expect("it is lent");
    assert_eq!(ForeignBuf::alloc_in(region.id(), 1).and_then(|buf| buf.offset_in_region()), Some(3 + HEADROOM));
}

/// One thread allocates, three release; at the end every chunk is home, and none was in two places.
#[test]
fn chunks_come_home_from_any_thread() {
    let ((region, other), rounds) = (exclusive(), if cfg!(miri) { 40 } else { 20_000 });
    thread::scope(|scope| {
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let (sender, receiver) = mpsc::sync_channel::<(PktBuf, u8)>(2);
                scope.spawn(move || {
                    for (buf, mark) in receiver {
                        assert_eq!(buf[..], [mark; 100], "another thread has this chunk, too");
                    }
                });
                sender
            })
            .collect();
        let mut sent = 0_usize;
        while sent < rounds {
            let Some(mut buf) = PktBuf::alloc_in(region.id(), 100) else {
                thread::yield_now();
                continue;
            };
            buf.append(100).fill(sent as u8);
            senders[sent % 3].send((buf, sent as u8)).expect("the receiver lives");
            sent += 1;
        }
    });
    assert_eq!(region.counts(), counts(7, 0, 0));
    assert!(region.unregister().is_ok() && other.ends() == 1);
}

#[test]
fn a_region_ends_when_its_last_chunk_is_home() {
    let (region, other) = exclusive();
    let id = region.id();
    let (buf, lent) = (PktBuf::alloc_in(id, 5).expect("a chunk"), region.lend_free().expect("a chunk"));
    let region = region.unregister().expect_err("two chunks are out");
    assert_eq!(region.counts(), counts(5, 1, 1));
    drop(PktBuf::alloc_in(id, 5).expect("it goes on as before"));
    region.give_back(lent.offset).expect("it was lent");
    // The owner is dropped first; the memory stays for the buffer.
    drop(region);
    assert!(PktBuf::alloc_in(id, 5).is_none(), "nothing new is allocated");
    assert_eq!((other.ends(), buf.offset_in_region()), (0, Some(3 + HEADROOM)));
    thread::spawn(move || drop(buf)).join().expect("no panic");
    assert_eq!(other.ends(), 1, "the last chunk came home");
}

#[test]
fn the_number_of_an_ended_region_is_refused() {
    let mut old = HashSet::new();
    for _ in 0..20 {
        let (region, other) = exclusive();
        assert!(old.insert(region.id()), "a number was used again at once");
        for id in &old {
            assert_eq!(PktBuf::alloc_in(*id, 5).is_some(), *id == region.id());
        }
        assert!(region.unregister().is_ok() && other.ends() == 1);
    }
}

/// Allocations, releases and the end of the region race; the memory is unmapped once, after all of them.
#[test]
fn the_end_of_a_region_races_with_its_users() {
    for _ in 0..if cfg!(miri) { 5 } else { 300 } {
        let (region, other) = exclusive();
        let id = region.id();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut held = Vec::new();
                    while let Some(mut buf) = PktBuf::alloc_in(id, 5) {
                        buf.append(5).fill(9);
                        held.push(buf);
                        if held.len() > 2 {
                            held.clear();
                        }
                    }
                    assert!(held.iter().all(|buf| buf[..] == [9; 5]));
                });
            }
            thread::yield_now();
            drop(region);
        });
        assert_eq!(other.ends(), 1);
    }
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    let register = |len, layout| {
        let (memory, other) = pages::<false>(len);
        let result = Region::register(memory, layout, Released::Free).map(|_| ());
        assert_eq!(other.ends(), 1, "the memory was kept");
        result
    };
    assert_eq!(register(LEN, ODD), Ok(()));
    assert_eq!(register(LEN - 1, ODD), Err(RegionError::TooShort { needed: LEN, len: LEN - 1 }));
    let wrong = [
        RegionLayout { count: 0, ..ODD },
        RegionLayout { chunk: 0, ..ODD },
        RegionLayout { stride: 1530, ..ODD },
        RegionLayout { stride: usize::MAX, ..ODD },
        RegionLayout { first: usize::MAX, ..ODD },
        RegionLayout { count: u32::MAX, ..ODD },
    ];
    for layout in wrong {
        assert_eq!(register(LEN, layout), Err(RegionError::Layout), "{layout:?}");
    }
    assert!(RegionError::TooMany.to_string().contains("1024"));
}
