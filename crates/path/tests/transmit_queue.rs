//! A transmit queue with several sending threads, and many queues: order, room, and the notification of receivers.

use std::sync::Arc;

use dev::{Device, QueuePair, RxQueue, WaitOutcome, mem};
use observe::{Counters, DropReason};
use path::{Dirty, Port, Ports, TransmitQueue};
use pktbuf::PktBuf;
use sync::{LockKind, Real};

const RING: usize = 64;

/// The transmit queues of one port, numbered from `first`, and the receive queues of the other.
struct Bench {
    queues: Vec<TransmitQueue<Real, u32>>,
    far: Vec<QueuePair>,
}

fn bench(queues: usize, first: usize) -> Bench {
    let (mut near, mut far) = mem::pair::<Real>(mem::MemConfig { queues, ring_frames: RING, ..Default::default() });
    let near = near.take_queues().into_iter().enumerate();
    let queues = near.map(|(index, pair)| TransmitQueue::new(pair.tx, LockKind::Blocking, first + index)).collect();
    Bench { queues, far: far.take_queues() }
}

/// A frame of no flow: it goes to receive queue 0.
fn frame(n: u16) -> PktBuf {
    let mut bytes = [0; 60];
    bytes[58..].copy_from_slice(&n.to_be_bytes());
    PktBuf::from_slice(&bytes).expect("a buffer")
}

fn received(queue: &mut dyn RxQueue) -> Vec<u16> {
    let mut batch = Vec::new();
    while queue.receive(&mut batch, 64) > 0 {}
    batch.iter().map(|frame| u16::from_be_bytes([frame[58], frame[59]])).collect()
}

fn notify(bench: &Bench, dirty: &mut Dirty) {
    let first = bench.queues[0].number();
    while let Some((number, receivers)) = dirty.next_queue() {
        bench.queues[number - first].notify(receivers);
    }
    dirty.finish();
}

#[test]
fn a_batch_arrives_in_order_and_so_does_what_had_to_wait_for_room() {
    let mut bench = bench(1, 0);
    let (counters, mut dirty) = (Counters::new(), Dirty::new());
    let (queue, far) = (&bench.queues[0], &mut bench.far[0].rx);
    let all = 3 * RING as u16;
    queue.transmit((0..all - 2).map(frame), &counters, &mut dirty);
    queue.transmit_one(frame(all - 2), &counters, &mut dirty);
    queue.transmit([frame(all - 1)], &counters, &mut dirty);
    assert_eq!((queue.credit(), queue.may_have_waiters()), (0, true), "what waits has the room");
    let mut seen = received(&mut **far);
    assert_eq!(seen.len(), RING, "the ring is full, the rest waits");
    while queue.drain() {
        seen.extend(received(&mut **far));
    }
    assert_eq!(seen, (0..all).collect::<Vec<_>>());
    assert!(queue.credit() > 0 && !queue.may_have_waiters());
    assert_eq!(counters.snapshot().dropped(DropReason::TxRingFull), 0);
}

#[test]
fn what_finds_no_place_to_wait_is_dropped_and_counted() {
    let mut bench = bench(1, 0);
    let (counters, mut dirty) = (Counters::new(), Dirty::new());
    let queue = &bench.queues[0];
    let most = RING + 4096;
    queue.transmit((0..most as u16 + 5).map(frame), &counters, &mut dirty);
    queue.transmit_one(frame(0xffff), &counters, &mut dirty);
    assert_eq!(counters.snapshot().dropped(DropReason::TxRingFull), 6);
    let mut seen = received(&mut *bench.far[0].rx);
    while queue.drain() {
        seen.extend(received(&mut *bench.far[0].rx));
    }
    assert_eq!(seen, (0..most as u16).collect::<Vec<_>>(), "the last that came are dropped");
}

#[test]
fn senders_get_their_turn_longest_waiting_first_and_not_before_there_is_room() {
    let mut bench = bench(1, 0);
    let (counters, mut dirty) = (Counters::new(), Dirty::new());
    let queue = &bench.queues[0];
    queue.transmit((0..RING as u16).map(frame), &counters, &mut dirty);
    assert_eq!(queue.credit(), 0);
    (1..=3).for_each(|sender| queue.wait_for_room(sender.into(), sender));
    assert!(queue.has_blocked() && queue.pop_ready_sender(0).is_none());
    received(&mut *bench.far[0].rx);
    assert_eq!([(); 4].map(|()| queue.pop_ready_sender(0)), [Some(1), Some(2), Some(3), None]);
    assert!(!queue.has_blocked());
}

/// However often a sender finds no credit while it waits, it has one turn, at its first place, and may then wait again.
#[test]
fn a_sender_that_waits_waits_once() {
    let mut bench = bench(1, 0);
    let queue = &bench.queues[0];
    for _ in 0..3 {
        queue.transmit((0..RING as u16).map(frame), &Counters::new(), &mut Dirty::new());
        for sender in [1, 2, 1, 1, 3, 2] {
            queue.wait_for_room(sender.into(), sender);
        }
        assert_eq!(queue.blocked(), 3);
        assert_eq!(received(&mut *bench.far[0].rx).len(), RING);
        assert_eq!([(); 4].map(|()| queue.pop_ready_sender(0)), [Some(1), Some(2), Some(3), None]);
    }
    assert!(queue.claim());
    elsewhere(|| [5, 5, 6, 5].into_iter().for_each(|sender| queue.wait_for_room(sender.into(), sender)));
    queue.drain();
    assert_eq!(queue.blocked(), 2, "what was left for the claimant, too");
}

/// A queue of 64 frames of which 16 are kept free: a quarter of the rest, 12, is a turn. With less room it is given
/// after eight checks, or senders would wait for ever for a device that never has more.
#[test]
fn a_turn_is_for_several_frames_but_does_not_wait_for_ever() {
    let mut bench = bench(1, 0);
    let (queue, far) = (&bench.queues[0], &mut bench.far[0].rx);
    let full = || queue.transmit((0..RING as u16).map(frame), &Counters::new(), &mut Dirty::new());
    let mut take = |frames| {
        let mut batch = Vec::new();
        assert_eq!(far.receive(&mut batch, frames), frames);
    };
    full();
    (1..=2).for_each(|sender| queue.wait_for_room(sender.into(), sender));
    take(16);
    assert!((0..20).all(|_| queue.pop_ready_sender(0).is_none()), "what is kept free is for others");
    take(11);
    assert!((0..8).all(|_| queue.pop_ready_sender(0).is_none()));
    assert_eq!((queue.pop_ready_sender(0), queue.pop_ready_sender(0)), (Some(1), None), "the wait starts again");
    take(1);
    assert_eq!(queue.pop_ready_sender(0), Some(2), "room for twelve");
    (3..=6).for_each(|sender| queue.wait_for_room(sender.into(), sender));
    take(20);
    // Room for 32, and no sender has sent yet: the third would find 8.
    assert_eq!([0, 1, 2].map(|before| queue.pop_ready_sender(before)), [Some(3), Some(4), None]);
    assert_eq!(queue.blocked(), 2);
}

/// Each of 70 queues gives one frame to one receiver; only that one is woken, whatever their numbers modulo 64.
#[test]
fn of_70_receivers_the_one_that_was_sent_to_is_woken() {
    let mut bench = bench(70, 130);
    let counters = Counters::new();
    let mut dirty = Dirty::new();
    for sender in [0, 5, 63, 64, 69] {
        for receiver in [0, 6, 63, 64, 69] {
            // The device uses the hash in the metadata, modulo the queues.
            let mut frame = frame(7);
            frame.meta_mut().flow_hash = Some(receiver);
            bench.queues[sender].transmit([frame], &counters, &mut dirty);
            let mut seen = Vec::new();
            while let Some((number, receivers)) = dirty.next_queue() {
                receivers.for_each(|receiver| seen.push(receiver));
                bench.queues[number - 130].notify(receivers);
                assert_eq!(number, 130 + sender);
            }
            dirty.finish();
            assert_eq!(seen, [receiver as usize]);
            assert_eq!(received(&mut *bench.far[receiver as usize].rx), [7]);
        }
    }
}

/// A receiver that is awake needs no notification. The queue is recorded all the same where a sender waits for room, or where the
/// frame has taken the last place: its notification looks for senders that can go on.
#[test]
fn a_queue_is_recorded_if_its_receiver_sleeps_or_a_sender_may_wait() {
    let bench = bench(1, 0);
    let (queue, counters) = (&bench.queues[0], Counters::new());
    let recorded = |number| {
        let mut dirty = Dirty::new();
        queue.transmit_one(frame(number), &counters, &mut dirty);
        !dirty.is_empty()
    };
    assert!((0..10).all(|number| !recorded(number)), "its receiver is awake");
    queue.wait_for_room(1, 1);
    assert!(recorded(10), "a sender waits");
    assert_eq!(queue.pop_ready_sender(0), Some(1));
    let last = RING as u16 - 1;
    assert!((11..last).all(|number| !recorded(number)));
    assert!(recorded(last), "there is no more room");
}

/// 70 receivers sleep, each on a thread of its own; 70 queues send to them, with one pass of notification for all. A
/// lost or misdirected wake-up leaves a thread asleep, and the test does not end.
#[test]
fn seventy_sleeping_receivers_are_all_woken_by_one_pass() {
    let mut bench = bench(70, 64);
    let far = std::mem::take(&mut bench.far);
    let (asleep, counters) = (Arc::new(std::sync::Barrier::new(71)), Counters::new());
    let threads: Vec<_> = far
        .into_iter()
        .map(|mut pair| {
            let asleep = asleep.clone();
            std::thread::spawn(move || {
                asleep.wait();
                let outcome = pair.rx.wait(None);
                (outcome, received(&mut *pair.rx))
            })
        })
        .collect();
    asleep.wait();
    let mut dirty = Dirty::new();
    for (index, queue) in bench.queues.iter().enumerate() {
        let mut frame = frame(index as u16);
        frame.meta_mut().flow_hash = Some(69 - index as u32);
        queue.transmit_one(frame, &counters, &mut dirty);
    }
    notify(&bench, &mut dirty);
    for (index, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().expect("no panic"), (WaitOutcome::Ready, vec![69 - index as u16]));
    }
}

/// Runs on a thread of its own, and waits for its end.
fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(work).join()).expect("no panic")
}

/// A thread has claimed the queue: it sends without a lock, and frames of other threads are left for it.
#[test]
fn what_is_sent_while_another_thread_has_the_queue_waits_for_that_thread() {
    let mut bench = bench(1, 0);
    let (counters, mut dirty) = (Counters::new(), Dirty::new());
    let (queue, far) = (&bench.queues[0], &mut bench.far[0].rx);
    assert!(queue.claim() && queue.is_claimed_here());
    queue.transmit_one(frame(1), &counters, &mut dirty);
    elsewhere(|| {
        let (counters, mut dirty) = (Counters::new(), Dirty::new());
        assert!(!queue.is_claimed_here() && !queue.claim(), "one thread at a time has the claim");
        queue.transmit_one(frame(2), &counters, &mut dirty);
        queue.transmit([frame(3), frame(4)], &counters, &mut dirty);
        queue.wait_for_room(7, 7);
        assert!(!dirty.is_empty(), "a thread that notifies finds the mail");
        assert_eq!((queue.drain(), queue.pop_ready_sender(0)), (false, None), "neither is this thread's");
        queue.release_claim();
    });
    assert!(queue.is_claimed_here(), "only the claimant ends the claim");
    assert!(queue.has_mail() && queue.may_have_waiters(), "the claimant does not sleep before it has looked");
    assert_eq!(received(&mut **far), [1]);
    assert!(queue.drain());
    assert_eq!(received(&mut **far), [2, 3, 4]);
    assert_eq!((queue.pop_ready_sender(0), queue.has_mail()), (Some(7), false));
    assert!(!queue.drain(), "once");
}

/// The claimant's next frame finds no room, because a frame left for it comes first: the receiver of that frame is
/// notified.
#[test]
fn the_receiver_of_what_was_left_is_notified_though_the_next_frame_waits() {
    let mut bench = bench(1, 0);
    let (counters, mut dirty) = (Counters::new(), Dirty::new());
    let (queue, far) = (&bench.queues[0], &mut bench.far[0].rx);
    assert!(queue.claim());
    elsewhere(|| queue.transmit((0..RING as u16).map(frame), &counters, &mut Dirty::new()));
    queue.transmit_one(frame(RING as u16), &counters, &mut dirty);
    assert_eq!(dirty.next_queue().map(|(number, receivers)| (number, receivers.contains(0))), Some((0, true)));
    assert_eq!(received(&mut **far).len(), RING);
    assert!(queue.may_have_waiters(), "the frame waits for room");
}

#[test]
fn what_was_left_for_a_thread_that_gives_the_queue_up_is_sent() {
    let mut bench = bench(1, 0);
    let (queue, far) = (&bench.queues[0], &mut bench.far[0].rx);
    assert!(queue.claim());
    let send = |n| move || queue.transmit_one(frame(n), &Counters::new(), &mut Dirty::new());
    elsewhere(send(1));
    assert_eq!(received(&mut **far), []);
    queue.release_claim();
    assert_eq!(received(&mut **far), [1]);
    elsewhere(send(2));
    assert_eq!(received(&mut **far), [2], "any thread sends by the lock again");
    assert!(elsewhere(|| queue.claim()), "and may claim the queue");
}

/// Others leave two frames and a sender: the claim ends when the claimant serves the queue the next time, also where its own frame
/// has taken out the last of them. A later claim counts from the beginning.
#[test]
fn a_bounded_claim_ends_once_others_have_left_so_much() {
    let mut bench = bench(1, 0);
    let (queue, far) = (&bench.queues[0], &mut bench.far[0].rx);
    let send = |n| move || queue.transmit_one(frame(n), &Counters::new(), &mut Dirty::new());
    for own_frame in [false, true] {
        assert!(queue.claim_until(3));
        elsewhere(send(1));
        elsewhere(|| queue.wait_for_room(7, 7));
        queue.drain();
        assert!(queue.is_claimed_here(), "two are not three");
        elsewhere(send(2));
        if own_frame {
            send(3)();
            assert!(queue.is_claimed_here(), "it is sending");
        }
        queue.drain();
        assert!(!queue.is_claimed_here());
        assert_eq!(received(&mut **far), if own_frame { vec![1, 2, 3] } else { vec![1, 2] });
        assert_eq!(queue.pop_ready_sender(0), Some(7));
    }
    assert!(queue.claim());
    (1..=4).for_each(|n| elsewhere(send(n)));
    queue.drain();
    assert!(queue.is_claimed_here(), "this one is not bounded");
}

/// Mail has the same bound as frames that wait for room.
#[test]
fn mail_beyond_the_limit_is_dropped_and_counted() {
    let mut bench = bench(1, 0);
    let queue = &bench.queues[0];
    assert!(queue.claim());
    let dropped = elsewhere(|| {
        let counters = Counters::new();
        queue.transmit((0..4096 + 3).map(frame), &counters, &mut Dirty::new());
        counters.snapshot().dropped(DropReason::TxRingFull)
    });
    assert_eq!(dropped, 3);
    let mut seen = Vec::new();
    while queue.drain() {
        seen.extend(received(&mut *bench.far[0].rx));
    }
    assert_eq!(seen, (0..4096).collect::<Vec<_>>());
}

/// Threads send while another claims and releases the queue: no frame is left, and frames of one thread keep their
/// order.
#[test]
fn no_frame_stays_with_a_claim_that_ends() {
    const EACH: u16 = if cfg!(miri) { 5 } else { 400 };
    let mut bench = bench(1, 0);
    let (queue, far) = (&bench.queues[0], &mut bench.far[0].rx);
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let senders = [0, EACH].map(|from| {
            scope.spawn(move || {
                let (counters, mut dirty) = (Counters::new(), Dirty::new());
                (from..from + EACH).for_each(|n| queue.transmit_one(frame(n), &counters, &mut dirty));
            })
        });
        while !senders.iter().all(|sender| sender.is_finished()) {
            assert!(queue.claim());
            queue.drain();
            queue.release_claim();
            seen.extend(received(&mut **far));
        }
    });
    while queue.drain() {
        seen.extend(received(&mut **far));
    }
    seen.extend(received(&mut **far));
    let of = |from: u16| seen.iter().copied().filter(move |n| (from..from + EACH).contains(n));
    for from in [0, EACH] {
        assert!(of(from).eq(from..from + EACH), "{seen:?}");
    }
}

#[test]
fn a_hash_chooses_a_port_s_queue_as_it_chooses_among_anything_else() {
    for queues in 1..=7 {
        let (mut near, _far) = mem::pair::<Real>(mem::MemConfig { queues, ..Default::default() });
        let (port, _receivers) = Port::<Real, u32>::open(&mut near, LockKind::Blocking, 0).expect("a port");
        let hashes = (0..40).chain((0..40).map(|n: u32| n.wrapping_mul(0x9e37_79b9)));
        for hash in hashes {
            assert_eq!(port.queue(hash).number(), path::index(hash, queues), "{hash} among {queues}");
        }
    }
}

#[test]
fn one_queue_s_receivers_are_notified_and_then_forgotten() {
    let (mut near, mut far) = mem::pair::<Real>(mem::MemConfig { queues: 2, ..Default::default() });
    let (port, _receivers) = Port::<Real, u32>::open(&mut near, LockKind::Blocking, 0).expect("a port");
    let ports = Ports::new(vec![port]);
    let (counters, mut dirty, mut far) = (Counters::new(), Dirty::new(), far.take_queues());
    assert!(!ports.notify_only(&mut dirty, |_, _| ()), "nothing was sent");
    for round in 0..2 {
        ports[0].queue(round).transmit([frame(7)], &counters, &mut dirty);
        assert_eq!(dirty.only().map(|(number, _)| number), Some(round as usize));
        assert!(ports.notify_only(&mut dirty, |number, _| panic!("nobody waits for queue {number}")));
        assert!(dirty.is_empty() && dirty.is_inline());
        assert_eq!(received(&mut *far[0].rx), [7], "a frame of no flow goes to receive queue 0");
        dirty.mark(1);
        assert!(dirty.only().is_some_and(|(_, receivers)| receivers.is_empty()), "receiver 0 was notified");
        assert!(ports.notify_only(&mut dirty, |_, _| ()));
    }
    (0..2).for_each(|queue| ports[0].queue(queue).transmit([frame(8)], &counters, &mut dirty));
    assert!(!ports.notify_only(&mut dirty, |_, _| ()), "two queues were given frames");
    ports.notify(&mut dirty, |_, _| ());
    assert!(dirty.is_empty());
}
