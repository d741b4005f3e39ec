//! Processors (`backlog:processor`; gVisor: `dispatcher.go`, `endpoint.go`): which thread runs what arrives for a connection,
//! what happens while a user has it, how much may be left, and how long one connection may keep its processor.
//!
//! The thread of the test is the receive thread.

use std::time::Duration;

use observe::{Counter, DropReason};
use stack::call::{Call, Reply};
use stack::{Architecture, Driver};
use sync::LockClass::{Backlog, ConnTable, Handoff, Timers};
use testbed::frames::Ends;
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::{Bench, CELLS, Connection};
use crate::events::{SEGMENTS, walks};
use crate::scene::State;
use crate::two_queues::{TwoQueues, fin};
use crate::walk::{What, count, held_by_events, moments, taken};

const NAME: &str = "backlog:processor";
const WRITER: &str = "writer";

fn arch() -> Architecture {
    Architecture::named(NAME)
}

/// `selectProcessor`: the hash of the endpoint's addresses and ports chooses it.
fn processor_of(bench: &Bench, connection: &Connection) -> String {
    format!("heddle-bp{}", bench.cell(connection))
}

fn senders(bench: &Bench, connection: &Connection) -> Vec<String> {
    bench.scene.state().senders(connection.port).into_iter().map(str::to_owned).collect()
}

fn read(bench: &Bench, connection: &Connection) -> Vec<u8> {
    match bench.call(connection, Call::Receive(tcp::Receive { max: 1 << 20 })) {
        Reply::Received(Ok(got)) => got.data.iter().flat_map(|data| data.to_vec()).collect(),
        _ => Vec::new(),
    }
}

fn dropped(bench: &Bench) -> u64 {
    bench.stack.stats().counters.dropped(DropReason::TcpBacklogFull)
}

/// Two connections of one processor.
fn two_of_one(bench: &mut Bench) -> [Connection; 2] {
    let (a, b) = bench.ports(CELLS, 1, 1);
    [bench.connect(a), bench.connect(b)]
}

/// `queuePacket`: "if an endpoint is locked by a user, nothing more is done"; `UnlockUser` hands the segments to the processor.
/// Neither the user's thread nor the receive thread runs one of them, and they keep their order.
#[test]
fn what_arrives_while_a_user_has_the_connection_is_run_by_its_processor_after_the_release() {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch(), ends);
        let opens = bench.scene.opens();
        let mut connection = bench.connect(2000);
        let writer = bench.stop_in_a_write(WRITER, &connection);
        bench.scene.state().sent.clear();
        let disorder = bench.stack.stats().counters.get(Counter::OutOfOrderAtEntry);
        for data in [&b"first "[..], b"second ", b"third "] {
            let frame = connection.data(data);
            bench.put(&frame);
            assert_eq!(bench.driver.poll(), 1, "the receive thread does not wait");
        }
        let last = connection.segment(TcpFlags::FIN | TcpFlags::PSH, b"last");
        bench.put(&last);
        assert_eq!(bench.driver.poll(), 1);
        drop(bench.scene.until(State::own_threads_sleep));
        assert!(senders(&bench, &connection).is_empty(), "nothing was run");
        assert!(!bench.stack.is_quiescent(), "there is work to do");
        drop(opens);
        writer.join();
        bench.settle();
        let by = senders(&bench, &connection);
        let processor = processor_of(&bench, &connection);
        assert!(!by.is_empty() && by.iter().all(|by| *by == processor), "{by:?}");
        assert_eq!(read(&bench, &connection), b"first second third last");
        assert_eq!(bench.stack.stats().counters.get(Counter::OutOfOrderAtEntry), disorder, "each was the next");
        assert!(bench.stack.is_quiescent(), "nothing is left");
    }
}

/// "Processors are responsible for processing packets queued to a tcp endpoint": the thread that receives segments of open
/// connections runs none of their events, whether they carry data, acknowledge, or end the connection; nor their timers.
#[test]
fn the_receive_thread_runs_no_event_of_a_connection() {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch(), ends);
        let (a, b) = bench.ports(CELLS, 0, 1);
        let mut connections = [bench.connect(a), bench.connect(b)];
        for connection in &connections {
            bench.call(connection, send(b"text"));
        }
        bench.settle();
        bench.scene.state().sent.clear();
        let walk = {
            bench.clock.advance(Duration::from_secs(1));
            moments(&bench.walk(&[]))
        };
        assert_eq!(count(&walk, What::Runs), 0, "timers: {walk:?}");
        bench.settle();
        for connection in &connections {
            let by = senders(&bench, connection);
            assert!(!by.is_empty() && by.iter().all(|by| *by == processor_of(&bench, connection)), "{by:?}");
        }
        for step in 0..5 {
            let frames = connections.iter_mut().map(|connection| match step {
                0 => connection.ack(4),
                1 => connection.data(&[7; 1000]),
                2 => connection.data(&[8; 1000]),
                3 => connection.segment(TcpFlags::FIN, &[]),
                _ => connection.segment(TcpFlags::RST, &[]),
            });
            let frames: Vec<_> = frames.collect();
            let walk = moments(&bench.walk(&frames));
            assert_eq!((count(&walk, What::Runs), count(&walk, What::HandsOver)), (0, 2), "{step}: {walk:?}");
            bench.settle();
            // For less than half a second the acknowledgement of the FIN may wait (RFC 9293 section 3.8.6.3).
            bench.clock.advance(Duration::from_millis(499));
            let walk = moments(&bench.walk(&[]));
            assert_eq!(count(&walk, What::Runs), 0, "timers: {walk:?}");
            bench.settle();
        }
        for connection in &connections {
            let by = senders(&bench, connection);
            assert!(by.len() > 2 && by.iter().all(|by| *by == processor_of(&bench, connection)), "{by:?}");
        }
    }
}

/// `processor.start`: "if ep.TryLock() ... else the endpoint is owned by a user, and UnlockUser will requeue it". While a user
/// has one connection, its processor runs what arrives for another one, before and after.
#[test]
fn a_processor_passes_over_a_connection_in_use() {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch(), ends);
        let [mut held, mut other] = two_of_one(&mut bench);
        let opens = bench.scene.opens();
        let processor = processor_of(&bench, &held);
        assert_eq!(processor, processor_of(&bench, &other));
        let writer = bench.stop_in_a_write(WRITER, &held);
        bench.scene.state().sent.clear();
        for (segment, text) in [(held.data(b"one "), &b"first"[..]), (held.data(b"two"), b"again")] {
            bench.put(&segment);
            let data = other.segment(TcpFlags::PSH, text);
            bench.put(&data);
            assert_eq!(bench.driver.poll(), 2);
            let asleep = bench.scene.until(State::own_threads_sleep);
            assert!(asleep.sleeps(&processor, &[]), "it has nothing to do");
            drop(asleep);
            assert_eq!(read(&bench, &other), text);
        }
        assert!(senders(&bench, &held).is_empty());
        drop(opens);
        writer.join();
        bench.settle();
        assert_eq!(read(&bench, &held), b"one two");
        assert!(bench.stack.is_quiescent());
    }
}

/// The same for a connection that waits in the processor's queue when a user takes it: the processor goes on with the next one,
/// and comes back to this one after the release. The user's data leaves by another queue of the device than the processor's.
#[test]
fn a_processor_does_not_wait_for_a_connection_that_a_user_has_taken_meanwhile() {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new(NAME, ends);
        let (mut held, mut last) = (bench.connect((1, 1)), bench.connect((0, 1)));
        let opens = bench.scene.opens();
        let busy = bench.stop("heddle-bp1", (0, 1));
        bench.bring(&held.data(b"waits"), 1);
        bench.scene.close(held.port);
        let (stack, target) = (bench.stack.clone(), held.socket.target());
        let writer = bench.scene.spawn(WRITER, move || drop(stack.call(&target, send(b"busy"))));
        drop(bench.scene.until(|state| state.stopped.contains(WRITER)));
        bench.bring(&last.data(b"next"), 0);
        bench.scene.open_port(busy.port);
        drop(bench.scene.until(|state| state.sleeps("heddle-bp1", &[])));
        assert_eq!(bench.read(&last), b"next", "the user still has the other one");
        drop(opens);
        writer.join();
        bench.settle();
        assert_eq!(bench.read(&held), b"waits");
    }
}

/// The segment queue is bounded: as much as the largest receive buffer and 64 KiB may be left; segments that exceed it are
/// dropped and counted, and the connection continues. There is room again for as much as its processor has run.
#[test]
fn a_full_backlog_drops_and_counts() {
    /// A segment counts with its data and 256 bytes.
    const DATA: [u8; 1000] = [7; 1000];
    let room = (tcp::Config::default().receive_buffer.max as usize + (64 << 10)) / (DATA.len() + 256);
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch(), ends);
        let opens = bench.scene.opens();
        let [mut connection, mut other] = two_of_one(&mut bench);
        let writer = bench.stop_in_a_write(WRITER, &connection);
        let frame = connection.data(&DATA);
        let mut count = 0;
        while count < room + 3 {
            let batch = (room + 3 - count).min(64);
            (0..batch).for_each(|_| bench.put(&frame));
            assert_eq!(bench.driver.poll(), batch, "the receive thread does not wait");
            count += batch;
            assert_eq!(dropped(&bench), count.saturating_sub(room) as u64);
        }
        drop(opens);
        writer.join();
        bench.settle();
        assert!(bench.stack.is_quiescent(), "what was left has been run");
        assert_eq!(read(&bench, &connection), DATA, "all others were the same again");
        // The same while its processor is stopped for another one.
        let opens = bench.scene.opens();
        bench.scene.close(other.port);
        let end = fin(&mut other);
        bench.put(&end);
        bench.driver.poll();
        drop(bench.scene.until(|state| !state.stopped.is_empty()));
        let last = connection.data(&DATA);
        for _ in 0..room / 50 {
            (0..50).for_each(|_| bench.put(&last));
            assert_eq!(bench.driver.poll(), 50);
        }
        assert_eq!(dropped(&bench), 3, "there is room for as much as before");
        drop(opens);
        bench.settle();
        assert_eq!((read(&bench, &connection), dropped(&bench)), (DATA.to_vec(), 3));
    }
}

/// `maxSegmentsPerWake`: a processor runs 100 segments of a connection, and then the next connection has its turn.
#[test]
fn a_connection_with_much_left_does_not_keep_its_processor() {
    const TURN: usize = 100;
    const LEFT: usize = 150;
    const LEN: usize = 400;
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new(NAME, ends);
        let (mut much, mut little) = (bench.connect((0, 1)), bench.connect_from((0, 1), 3000));
        let opens = bench.scene.opens();
        bench.stop("heddle-bp1", (0, 1));
        for n in 0..LEFT {
            bench.bring(&much.data(&[n as u8; LEN]), 0);
        }
        bench.bring(&fin(&mut little), 0);
        bench.scene.state().sent.clear();
        drop(opens);
        bench.settle();
        let state = bench.scene.state();
        let order: Vec<u16> = state.sent.iter().map(|sent| sent.to).collect();
        let turn = order.iter().position(|to| *to == little.port).expect("it is answered");
        let before = order[..turn].iter().filter(|to| **to == much.port).count();
        let after = order[turn..].iter().filter(|to| **to == much.port).count();
        assert!(before >= TURN / 2 && after == (LEFT - TURN) / 2, "every second is acknowledged: {before}, {after}");
        drop(state);
        assert_eq!(bench.read(&much), (0..LEFT).flat_map(|n| [n as u8; LEN]).collect::<Vec<_>>());
        assert_eq!(bench.misordered(), 0);
    }
}

/// Nothing is held but for the step in which something is left or taken: an event runs without a lock, on the thread of the
/// processor or of the user.
#[test]
fn an_owner_runs_its_event_without_a_lock() {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch(), ends);
        for call in [&walks.read, &walks.write] {
            let classes: Vec<_> = taken(call).into_iter().filter(|class| *class != Timers).collect();
            assert_eq!(classes, [ConnTable, Backlog, Backlog], "it looks, owns, and lets go");
            assert_eq!(count(call, What::HandsOver), 0, "nothing was left");
        }
        // One thread plays both: each connection is queued once, and one segment is the second of its connection.
        assert_eq!(count(&walks.data, What::HandsOver), SEGMENTS);
        let queues = taken(&walks.data).into_iter().filter(|class| *class == Handoff).count();
        assert_eq!(queues, 2 + 2, "two connections are put there and taken");
        for walk in walks.all() {
            assert!(held_by_events(walk).iter().all(|held| held.is_empty()), "{walk:?}");
            assert!(walk.iter().all(|moment| moment.held.len() <= 1), "never two locks at once: {walk:?}");
        }
    }
}

/// What is left when the architecture is changed is run before, in its order (G9); and its threads end.
#[test]
fn what_is_left_is_run_when_the_architecture_is_changed() {
    for (ends, next) in
        Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| Architecture::all().map(move |next| (ends, next)))
    {
        let mut bench = TwoQueues::new(NAME, ends);
        let mut connection = bench.connect((0, 1));
        let opens = bench.scene.opens();
        bench.stop("heddle-bp1", (0, 1));
        for data in [&b"one "[..], b"two ", b"three"] {
            bench.bring(&connection.data(data), 0);
        }
        bench.drivers.iter_mut().for_each(Driver::rest);
        let stack = bench.stack.clone();
        let switches = bench.scene.spawn("switches", move || drop(stack.switch(next).expect("it can be switched")));
        drop(bench.scene.until(|state| state.done.contains("heddle-bp0")));
        drop(opens);
        switches.join();
        assert!(bench.scene.state().done.contains("heddle-bp1"), "{next}");
        bench.settle();
        assert_eq!(bench.read(&connection), b"one two three", "{next}");
        assert_eq!(bench.misordered(), 0, "{next}");
    }
}
