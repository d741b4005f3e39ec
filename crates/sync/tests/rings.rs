//! Rings on the real machine: order, bounds, ownership of refused and remaining values, and load.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use sync::Real;
use sync::ring::{Full, Mpsc, spsc};

const COUNT: usize = if cfg!(miri) { 200 } else { 200_000 };

#[test]
fn spsc_is_a_bounded_queue() {
    let (mut producer, mut consumer) = spsc::channel::<u32, Real>(3);
    assert_eq!(producer.capacity(), 4, "rounded up to a power of two");
    assert!(consumer.is_empty());
    // A model in lock step, long enough to wrap many times at every fill.
    let (mut model, mut next) = (VecDeque::new(), 0);
    for step in 0..400u32 {
        for _ in 0..step % 6 {
            match producer.push(next) {
                Ok(()) => {
                    assert!(model.len() < 4);
                    model.push_back(next);
                }
                Err(Full(back)) => assert!(back == next && model.len() == 4),
            }
            next += 1;
        }
        for _ in 0..step % 5 {
            assert_eq!(consumer.pop(), model.pop_front());
        }
        assert_eq!(consumer.len_hint(), model.len());
        assert_eq!(producer.free(), 4 - model.len());
    }
}

#[test]
fn spsc_batches() {
    let (mut producer, mut consumer) = spsc::channel::<u32, Real>(8);
    let mut values = 0..20;
    let mut fill = |producer: &mut spsc::Producer<u32, Real>| {
        while producer.free() > 0 {
            producer.push(values.next().expect("more values than places")).expect("a free place");
        }
    };
    fill(&mut producer);
    let mut out = vec![99];
    assert_eq!(consumer.pop_batch(&mut out, 5), 5);
    assert_eq!(out, [99, 0, 1, 2, 3, 4]);
    fill(&mut producer);
    assert_eq!(consumer.pop_batch(&mut out, usize::MAX), 8);
    assert_eq!(out[6..], [5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(consumer.pop_batch(&mut out, 3), 0);
}

#[test]
fn spsc_each() {
    let (mut producer, mut consumer) = spsc::channel::<u32, Real>(8);
    let mut values = 0..100;
    assert_eq!(producer.push_each(3, || values.next()), 3);
    assert_eq!(producer.push_each(100, || values.next()), 5, "it has no room for more");
    assert_eq!(producer.push_each(1, || values.next()), 0);
    let mut out = Vec::new();
    let mut to_the_fifth = |value| {
        out.push(value);
        out.len() != 5
    };
    assert_eq!(consumer.pop_each(2, &mut to_the_fifth), 2);
    assert_eq!(consumer.pop_each(100, &mut to_the_fifth), 3, "it ends after the fifth");
    let mut few = values.by_ref().take(2);
    assert_eq!(producer.push_each(100, || few.next()), 2, "there are no more values");
    assert_eq!((values.next(), producer.free()), (Some(10), 3), "a value that had no room was not asked for");
    assert_eq!(consumer.pop_each(100, &mut to_the_fifth), 5);
    assert_eq!(consumer.pop_each(100, &mut to_the_fifth), 0);
    assert!(out.into_iter().eq(0..10));
}

#[test]
fn spsc_passes_everything_in_order_between_threads() {
    let (mut producer, mut consumer) = spsc::channel::<Box<usize>, Real>(64);
    let sender = thread::spawn(move || {
        for i in 0..COUNT {
            let mut value = Box::new(i);
            while let Err(Full(back)) = producer.push(value) {
                value = back;
                thread::yield_now();
            }
        }
    });
    let (mut batch, mut expected) = (Vec::new(), 0);
    while expected < COUNT {
        if consumer.pop_batch(&mut batch, 16) == 0 {
            thread::yield_now();
        }
        for value in batch.drain(..) {
            assert_eq!(*value, expected);
            expected += 1;
        }
    }
    sender.join().expect("the sender ends");
    assert!(consumer.is_abandoned());
}

#[test]
fn rings_drop_what_is_left_in_them() {
    let token = Arc::new(());
    let (mut producer, mut consumer) = spsc::channel::<Arc<()>, Real>(4);
    (0..4).for_each(|_| producer.push(token.clone()).expect("a free place"));
    drop(consumer.pop());
    producer.push(token.clone()).expect("one place is free");
    drop((producer, consumer));
    let queue: Mpsc<Arc<()>> = Mpsc::new(4);
    (0..3).for_each(|_| queue.push(token.clone()).expect("there is room"));
    drop(queue.pop());
    drop(queue);
    assert_eq!(Arc::strong_count(&token), 1, "every value was dropped once");
}

#[test]
fn mpsc_is_a_bounded_queue() {
    for asked in [1, 2, 5, 8] {
        let queue: Mpsc<usize> = Mpsc::new(asked);
        let capacity = queue.capacity();
        assert!(capacity >= asked && capacity.is_power_of_two());
        for round in 0..10 {
            (0..capacity).for_each(|i| queue.push(round + i).expect("there is room"));
            assert_eq!(queue.push(77), Err(Full(77)));
            assert_eq!(queue.len_hint(), capacity);
            let mut out = Vec::new();
            assert_eq!(queue.pop_batch(&mut out, usize::MAX), capacity);
            assert!(out.into_iter().eq(round..round + capacity));
            assert!(queue.is_empty() && queue.pop().is_none());
        }
    }
}

#[test]
fn mpsc_refuses_a_second_consumer() {
    let queue: Mpsc<u32> = Mpsc::new(4);
    queue.push(1).expect("there is room");
    let mut first = queue.consumer().expect("nobody consumes");
    assert!(queue.consumer().is_none() && queue.pop().is_none());
    assert_eq!(first.pop(), Some(1));
    drop(first);
    assert!(queue.consumer().is_some());
    let (sender, _receiver) = Mpsc::<u32, Real>::channel(4);
    assert!(sender.consumer().is_none(), "the receiver is the consumer for good");
}

#[test]
fn mpsc_keeps_each_producers_order_and_loses_nothing() {
    const PRODUCERS: usize = 3;
    let (sender, mut receiver) = Mpsc::<(usize, usize), Real>::channel(64);
    let threads: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let sender = sender.clone();
            thread::spawn(move || {
                for i in 0..COUNT / PRODUCERS {
                    while sender.push((producer, i)).is_err() {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    drop(sender);
    let mut next = [0; PRODUCERS];
    while next.iter().sum::<usize>() < COUNT / PRODUCERS * PRODUCERS {
        match receiver.pop() {
            Some((producer, i)) => {
                assert_eq!(i, next[producer], "producer {producer} out of order");
                next[producer] += 1;
            }
            None => thread::yield_now(),
        }
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a producer ends"));
    assert!(receiver.is_abandoned() && receiver.pop().is_none());
}

#[test]
#[should_panic(expected = "capacity 0")]
fn a_ring_of_nothing_is_refused() {
    drop(spsc::channel::<u8, Real>(0));
}

/// Each half reports the number of elements and whether the other half still exists.
#[test]
fn each_half_of_an_spsc_knows_the_ring() {
    let (mut producer, mut consumer) = spsc::channel::<u32, Real>(5);
    assert_eq!((producer.capacity(), consumer.capacity()), (8, 8));
    for held in 0..8 {
        assert_eq!((producer.len_hint(), consumer.len_hint(), producer.free()), (held, held, 8 - held));
        assert_eq!(consumer.is_empty(), held == 0);
        producer.push(1).expect("there is room");
    }
    assert_eq!((producer.len_hint(), producer.free()), (8, 0));
    assert!(!producer.is_abandoned() && !consumer.is_abandoned());
    drop(producer);
    assert!(consumer.is_abandoned());
    assert_eq!(consumer.pop(), Some(1), "what was pushed can still be popped");
    let (producer, consumer) = spsc::channel::<u32, Real>(5);
    drop(consumer);
    assert!(producer.is_abandoned());
}

#[test]
fn the_receiver_of_an_mpsc_knows_the_queue() {
    let (sender, mut receiver) = Mpsc::<u32>::channel(4);
    assert!(receiver.is_empty() && !receiver.is_abandoned());
    let second = sender.clone();
    for value in 0..3 {
        assert_eq!(receiver.len_hint(), value as usize);
        sender.push(value).expect("there is room");
        assert!(!receiver.is_empty());
    }
    let mut out = vec![99];
    assert_eq!(receiver.pop_batch(&mut out, 2), 2);
    assert_eq!(receiver.pop_batch(&mut out, 2), 1);
    assert_eq!(receiver.pop_batch(&mut out, 2), 0);
    assert_eq!(out, [99, 0, 1, 2]);
    assert!(receiver.is_empty() && receiver.len_hint() == 0);
    drop(sender);
    assert!(!receiver.is_abandoned(), "one sender is left");
    second.push(7).expect("there is room");
    drop(second);
    assert!(receiver.is_abandoned());
    assert_eq!(receiver.pop(), Some(7), "what was pushed can still be popped");
}

#[test]
fn a_queue_is_empty_until_a_value_is_in_it() {
    let queue = Mpsc::<u32>::new(2);
    for _ in 0..5 {
        assert!(queue.is_empty());
        queue.push(1).expect("there is room");
        assert!(!queue.is_empty());
        queue.push(2).expect("there is room");
        assert_eq!(queue.len_hint(), 2);
        assert!(queue.push(3).is_err());
        assert_eq!((queue.pop(), queue.is_empty(), queue.pop()), (Some(1), false, Some(2)));
    }
}
