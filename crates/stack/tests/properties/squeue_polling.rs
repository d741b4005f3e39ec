//! Rings that are polled while their shard is in use (Solaris' squeues): where frames wait, how many are taken, and which
//! thread is woken when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use every_arch::every_arch;
use stack::Architecture;
use stack::call::Call;
use testbed::frames::Ends;
use testbed::node::send;

use crate::bench::{Bench, Connection};
use crate::scene::Opens;
use crate::two_queues::{TwoQueues, fin};

/// More than two batches.
const FRAMES: usize = 150;
/// The frames that a receive thread takes at once.
const BATCH: usize = 64;
const RECEIVER: &str = "receiver";

/// With every mode.
const POLLING: [&str; 3] = ["squeue:process+poll", "squeue:nodrain+poll", "squeue:fill+poll"];

fn in_both_families() -> impl Iterator<Item = (Ends, &'static str)> {
    Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| POLLING.map(|arch| (ends, arch)))
}

/// `FRAMES` frames with a byte each, in the device.
fn put(bench: &mut Bench, connection: &mut Connection) {
    let frames: Vec<_> = (0..FRAMES).map(|n| connection.data(&[n as u8])).collect();
    frames.iter().for_each(|frame| bench.put(frame));
}

/// The connection has all of them in their order, once nothing is left to do.
fn has_all(bench: &mut Bench, connection: &Connection) {
    bench.settle();
    let mut read = Vec::new();
    let receive = || Call::Receive(tcp::Receive { max: 1 << 16 });
    while let stack::call::Reply::Received(Ok(got)) = bench.call(connection, receive()) {
        read.extend(got.data.iter().flat_map(|data| data.to_vec()));
    }
    assert_eq!(read, (0..FRAMES).map(|n| n as u8).collect::<Vec<_>>());
    assert_eq!(bench.stack.stats().counters.get(observe::Counter::OutOfOrderAtEntry), 0);
}

/// Three connections of one shard.
fn of_one_shard(arch: &str, ends: Ends) -> (Bench, [Connection; 3], Opens) {
    let mut bench = Bench::with_threads(Architecture::named(arch), ends);
    let (first, second) = bench.ports(1024, 5, 5);
    let third = bench.port_from(1024, 5, second + 1);
    let connections = [first, second, third].map(|port| bench.connect(port));
    let opens = bench.scene.opens();
    (bench, connections, opens)
}

/// A queue without a bound is "bounded only by ring polling": while a shard is in use, one batch for it is queued, and further frames
/// wait in the device. None is lost, and all run in their order.
#[test]
fn frames_for_a_shard_in_use_wait_in_the_device() {
    for (ends, arch) in in_both_families() {
        let (mut bench, [one, mut two, _], opens) = of_one_shard(arch, ends);
        let writer = bench.stop_in_a_write("writer", &one);
        put(&mut bench, &mut two);
        let taken: Vec<usize> = (0..5).map(|_| bench.driver.poll()).collect();
        assert_eq!(taken, [BATCH, 0, 0, 0, 0], "{arch}");
        drop(opens);
        writer.join();
        has_all(&mut bench, &two);
    }
}

/// Without polling all of them wait in the queue.
#[every_arch(only(squeue_fill, squeue_nodrain, squeue_process))]
fn without_polling_the_queue_has_no_bound(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut bench, [one, mut two, _], opens) = of_one_shard(&arch.to_string(), ends);
        let writer = bench.stop_in_a_write("writer", &one);
        put(&mut bench, &mut two);
        let taken: usize = (0..5).map(|_| bench.driver.poll()).sum();
        assert_eq!(taken, FRAMES);
        drop(opens);
        writer.join();
        has_all(&mut bench, &two);
    }
}

/// Interrupts are on again once ring and queue are empty: a receive thread that finds the shard in use takes the next batch at once, as
/// at the beginning.
#[test]
fn a_ring_that_is_empty_is_in_interrupt_mode_again() {
    for (ends, arch) in in_both_families() {
        let (mut bench, [one, mut two, three], opens) = of_one_shard(arch, ends);
        let writer = bench.stop_in_a_write("writer", &one);
        put(&mut bench, &mut two);
        assert_eq!((bench.driver.poll(), bench.driver.poll()), (BATCH, 0), "{arch}");
        bench.scene.open_port(one.port);
        writer.join();
        has_all(&mut bench, &two);
        let writer = bench.stop_in_a_write("another", &three);
        let data = two.data(b"text");
        bench.put(&data);
        assert_eq!((bench.driver.poll(), bench.driver.poll()), (1, 0), "{arch}");
        drop(opens);
        writer.join();
        bench.settle();
    }
}

/// A shard that is given up and taken again at once, always by another thread, does not starve a ring: it gets a turn of one batch each
/// time.
#[test]
fn a_ring_has_a_turn_though_its_shard_is_taken_again() {
    for (ends, arch) in in_both_families() {
        let (mut bench, [one, mut two, three], opens) = of_one_shard(arch, ends);
        let writer = bench.stop_in_a_write("writer", &one);
        put(&mut bench, &mut two);
        assert_eq!((bench.driver.poll(), bench.driver.poll()), (BATCH, 0), "{arch}");
        bench.scene.open_port(one.port);
        writer.join();
        // The worker has run what was queued, where callers leave that to it.
        drop(bench.scene.until(|state| state.own_threads_sleep()));
        let another = bench.stop_in_a_write("another", &three);
        assert_eq!((bench.driver.poll(), bench.driver.poll()), (BATCH, 0), "{arch}");
        drop(opens);
        another.join();
        has_all(&mut bench, &two);
    }
}

/// Other shards are not affected, and a ring that brings no frames for the shard in use is not polled.
#[test]
fn a_ring_of_another_shard_is_not_shut() {
    for (ends, arch) in in_both_families() {
        let mut bench = Bench::with_threads(Architecture::named(arch), ends);
        let (first, second) = bench.ports(1024, 0, 1);
        let (one, mut two) = (bench.connect(first), bench.connect(second));
        let opens = bench.scene.opens();
        let writer = bench.stop_in_a_write("writer", &one);
        put(&mut bench, &mut two);
        let mut taken = 0;
        while taken < FRAMES {
            let batch = bench.driver.poll();
            assert!(batch > 0, "{arch}: {taken} taken");
            taken += batch;
            // Under `fill` the worker is the thread that uses the shard.
            drop(bench.scene.until(|state| state.own_threads_sleep()));
        }
        drop(opens);
        writer.join();
        has_all(&mut bench, &two);
    }
}

/// "Interrupts off": while the shard is in use no frame wakes the receive thread, and the thread that gives up the shard does.
#[test]
fn the_receive_thread_is_woken_by_the_thread_that_gives_up_the_shard() {
    for (ends, arch) in in_both_families() {
        let mut bench = TwoQueues::new(arch, ends);
        let (one, mut two) = (bench.connect((1, 2)), bench.connect_from((1, 2), 20_000));
        let opens = bench.scene.opens();
        bench.scene.close(one.port);
        let (stack, target) = (bench.stack.clone(), one.socket.target());
        let writer = bench.scene.spawn("writer", move || drop(stack.call(&target, send(b"busy"))));
        drop(bench.scene.until(|state| !state.stopped.is_empty()));
        let (mut driver, stop) = (bench.drivers.pop().expect("two"), Arc::new(AtomicBool::new(false)));
        driver.rest();
        let stopped = stop.clone();
        let receiver = bench.scene.spawn(RECEIVER, move || driver.serve(&stopped, || ()));
        drop(bench.scene.until(|state| state.sleeps(RECEIVER, &[])));
        bench.put(&two.data(b"one "));
        // It queues the frame, and finds the shard in use.
        drop(bench.scene.until(|state| state.sleeps(RECEIVER, &[])));
        bench.put(&two.data(b"two "));
        bench.put(&fin(&mut two));
        assert!(bench.scene.state().sleeps(RECEIVER, &[]), "{arch}: no frame wakes it");
        drop(opens);
        writer.join();
        let state = bench.scene.until(|state| state.sleeps(RECEIVER, &[]) && state.own_threads_sleep());
        assert!(!state.senders(two.port).is_empty(), "{arch}: it has taken the rest");
        drop(state);
        assert_eq!(bench.read(&two), b"one two the end", "{arch}");
        stop.store(true, Ordering::Release);
        bench.put(&two.ack(0));
        receiver.join();
    }
}
