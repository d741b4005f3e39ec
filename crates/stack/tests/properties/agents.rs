//! Which thread runs an event: the one that gives the resulting segments to the device.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dev::rss::Rss;
use dev::{Device, QueuePair, mem};
use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::call::Call;
use stack::socket::Readiness;
use stack::socket::readiness::Watch;
use stack::{Addressing, Architecture, InterfaceConfig, Stack, StackConfig};
use sync::{LockClass, Platform};
use testbed::frames::{Ends, STACK};
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::{Bench, Connection};
use crate::events::{SEGMENTS, walks};
use crate::scene::{Observed, TEST};
use crate::walk::{What, count};

const CALLER: &str = "caller";
/// The workers of a pool on two processors.
const POOL: [&str; 2] = ["heddle-pw0", "heddle-pw1"];

/// The architecture's own thread that serves this cell.
fn own(arch: Architecture, cell: usize) -> String {
    let kind = match arch.family() {
        "squeue" => "sq",
        "netisr" => "ni",
        "softint" => "si",
        "backlog" => "bp",
        _ => "pt",
    };
    format!("heddle-{kind}{cell}")
}

/// The thread that must answer a segment of this cell that the thread of the test has received.
fn answers(arch: Architecture, cell: usize) -> String {
    match arch.to_string().as_str() {
        "connp-t" | "connp-t:spsc" | "conn-thread:2" | "squeue:fill" | "netisr:deferred" | "backlog:processor" => {
            own(arch, cell)
        }
        // The thread of the test polls queue 0.
        "netisr:hybrid" if cell != 0 => own(arch, cell),
        "softint" | "layer" => own(arch, 0),
        _ => TEST.to_owned(),
    }
}

/// The thread that must run a call on a connection of this cell, which is idle.
fn runs_calls(arch: Architecture, cell: usize) -> String {
    match arch.to_string().as_str() {
        "up" | "shared-nothing" | "connp-t:lwkt" => TEST.to_owned(),
        // The receive thread has had nearly all entries so far, and is the home of the connection's group.
        "adaptive" => TEST.to_owned(),
        "connp-t" | "connp-t:spsc" | "conn-thread:2" => own(arch, cell),
        "layer" => own(arch, 0),
        // Under squeue in all three modes: the caller would only sleep until the call is done (`squeue_synch_enter`).
        _ => CALLER.to_owned(),
    }
}

/// The peer's FIN with payload: it is answered at once.
fn fin(connection: &mut Connection) -> Vec<u8> {
    connection.segment(TcpFlags::FIN | TcpFlags::PSH, b"the end")
}

/// One batch has a segment for each of two connections in each of two cells. The thread of the test receives it and
/// does nothing more: the threads that have to answer are woken by the end of the batch.
#[every_arch]
fn a_batch_for_several_cells_is_answered_by_the_threads_of_these_cells(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let mut connections: Vec<_> = [(0, 2000), (1, 3000), (1, 4000), (0, 5000)]
            .into_iter()
            .map(|(cell, from)| {
                let port = bench.port_from(2, cell, from);
                bench.connect(port)
            })
            .collect();
        bench.scene.state().sent.clear();
        let frames: Vec<_> = connections.iter_mut().map(fin).collect();
        frames.iter().for_each(|frame| bench.put(frame));
        assert_eq!(bench.driver.poll(), frames.len(), "one batch");
        let all = |state: &crate::scene::State| connections.iter().all(|c| !state.senders(c.port).is_empty());
        let state = bench.scene.until(all);
        for connection in &connections {
            let senders = state.senders(connection.port);
            match arch.to_string().as_str() {
                "msgp-pool" => assert!(senders.len() == 1 && POOL.contains(&senders[0]), "any worker: {senders:?}"),
                _ => assert_eq!(senders, [answers(arch, bench.cell(connection))]),
            }
        }
    }
}

/// Records the thread that reports readiness of its connection.
#[derive(Default)]
pub struct ToldBy(pub Mutex<Vec<String>>);

impl Watch for ToldBy {
    fn ready(&self, _: Readiness, _: Readiness) {
        self.0.lock().expect("no test has failed in it").push(Observed::thread_name());
    }
}

/// Nahum et al.: a packet belongs to no thread. While the worker that carries a connection's packet is stopped in the
/// device, another worker carries a packet of another connection, up to its user.
#[every_arch(only(msgp_pool))]
fn any_worker_carries_the_next_packet_of_any_connection(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        // Of different lanes: the one does not wait for the other's turn.
        let (a, b) = bench.ports(16, 0, 1);
        let (mut one, mut two) = (bench.connect(a), bench.connect(b));
        let told = Arc::new(ToldBy::default());
        two.socket.ready.watch(told.clone());
        told.0.lock().expect("no test has failed in it").clear();
        let opens = bench.scene.opens();
        bench.scene.close(a);
        let frame = fin(&mut one);
        bench.put(&frame);
        assert_eq!(bench.driver.poll(), 1, "the receive thread only puts it into the input");
        let mut carriers: Vec<_> =
            bench.scene.until(|state| !state.stopped.is_empty()).stopped.iter().cloned().collect();
        let frame = two.data(b"text");
        bench.put(&frame);
        bench.driver.poll();
        drop(bench.scene.until(|_| !told.0.lock().expect("no test has failed in it").is_empty()));
        carriers.extend(told.0.lock().expect("no test has failed in it").drain(..));
        drop(opens);
        bench.settle();
        carriers.sort();
        assert_eq!(carriers, POOL, "one worker each");
    }
}

/// Yates et al. 1996: n threads, each with connections of its own. Their number is stated, whatever that of the
/// processors is, and a connection's thread is the same for all its segments.
#[test]
fn conn_thread_deals_connections_to_as_many_threads_as_it_says() {
    for (ends, threads) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| [1, 3, 5].map(|threads| (ends, threads))) {
        let mut bench = Bench::with_threads(Architecture::named(&format!("conn-thread:{threads}")), ends);
        let mut from = 2000;
        for thread in 0..threads {
            let port = bench.port_from(threads, thread, from);
            from = port + 1;
            let mut connection = bench.connect(port);
            bench.scene.state().sent.clear();
            let data = [connection.data(&[7; 1000]), connection.data(&[7; 1000]), fin(&mut connection)];
            data.iter().for_each(|frame| bench.put(frame));
            assert_eq!(bench.driver.poll(), data.len());
            bench.settle();
            let state = bench.scene.state();
            let senders = state.senders(port);
            assert!(!senders.is_empty() && senders.iter().all(|by| *by == format!("heddle-pt{thread}")), "{senders:?}");
        }
    }
}

/// A user's thread makes a call; under some architectures another thread runs it.
#[every_arch]
fn a_call_is_run_by_the_thread_that_the_architecture_says(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let (a, b) = bench.ports(2, 0, 1);
        for port in [a, b] {
            let connection = bench.connect(port);
            bench.scene.state().sent.clear();
            let caller = bench.calls(CALLER, &connection, send(b"text"));
            bench.poll_until_done(CALLER);
            caller.join();
            bench.scene.state().done.clear();
            assert_eq!(bench.scene.state().senders(port), [runs_calls(arch, bench.cell(&connection))]);
        }
    }
}

/// A write enters a stack as a value, or without one: the same thread runs it, and the caller learns how much was taken.
#[every_arch]
fn a_write_without_a_value_is_run_by_the_same_thread(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let connection = bench.connect(2000);
        let runs = runs_calls(arch, bench.cell(&connection));
        bench.scene.state().sent.clear();
        let (stack, target) = (bench.stack.clone(), connection.socket.target());
        let caller = bench.scene.spawn(CALLER, move || {
            let mut send = tcp::Send { chunks: tcp::Chunks::from_buf([pktbuf::Chunk::shared(b"text"[..].into())]) };
            assert_eq!(stack.send(&target, &mut send), Some(Ok(4)));
            assert!(send.chunks.is_empty(), "nothing is left to send");
        });
        bench.poll_until_done(CALLER);
        caller.join();
        let state = bench.scene.until(|state| !state.senders(2000).is_empty());
        assert_eq!((state.senders(2000), state.sent[0].len), (vec![runs.as_str()], 4));
    }
}

/// If the connection is gone, such a write reports that.
#[every_arch]
fn a_write_without_a_value_finds_that_its_connection_is_gone(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::on_one_thread(arch, ends);
        let connection = bench.connect(2000);
        bench.call(&connection, Call::Abort(tcp::Abort));
        bench.settle();
        let mut send = tcp::Send { chunks: tcp::Chunks::from_buf([pktbuf::Chunk::shared(b"text"[..].into())]) };
        let answer = bench.stack.send(&connection.socket.target(), &mut send);
        assert!(matches!(answer, None | Some(Err(_))), "{answer:?}");
    }
}

/// Takes the frames that the stack has sent by any of its queues.
fn receive(far: &mut [QueuePair], frames: &mut Vec<PktBuf>) {
    far.iter_mut().for_each(|pair| while pair.rx.receive(frames, 64) > 0 {});
}

/// Two drivers: one thread owns the tables of IP with the stack. A question to IP that the other driver receives is
/// answered by the owner, and not before the owner polls.
#[every_arch(only(up))]
fn a_packet_for_ip_that_another_driver_receives_is_answered_by_the_owner(arch: Architecture) {
    use sync::Real;
    for question in [testbed::frames::arp_request(), testbed::frames::neighbour_solicitation()] {
        let (near, mut far) = mem::pair::<Real>(mem::MemConfig { queues: 2, ..Default::default() });
        let addresses = vec![(STACK.into(), 24), ("fd00::1".parse().expect("an address"), 64)];
        let config = StackConfig { seed: Some(1), ..StackConfig::new(arch) };
        let interface =
            InterfaceConfig { device: Box::new(near), addresses, gateways: vec![], addressing: Addressing::default() };
        let (_stack, mut drivers) = Stack::<Real>::build(config, vec![interface]).expect("the stack builds");
        let mut far = far.take_queues();
        let mut answers = Vec::new();
        let rss = Rss::new(&wire::rss::SYMMETRIC_KEY, 2);
        let question = PktBuf::from_slice(&question).expect("a packet buffer");
        let mut other = drivers.remove(rss.queue(rss.hash(&question)));
        let owner = &mut drivers[0];
        owner.poll();
        receive(&mut far, &mut answers);
        answers.clear();
        assert!(far[0].tx.transmit(question).is_ok(), "there is room");
        far[0].tx.flush();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(other.poll(), 1, "the other driver receives it"));
        });
        receive(&mut far, &mut answers);
        assert_eq!(answers.len(), 0, "the other driver does not use the tables");
        owner.poll();
        receive(&mut far, &mut answers);
        assert_eq!(answers.len(), 1, "the owner answers");
    }
}

/// Without workers the receive threads are the pool. Frames pass through an input where they draw tickets; where nothing has to
/// be in order, the devices are the input.
#[test]
fn a_pool_of_receive_threads_has_an_input_where_it_draws_tickets() {
    for ends in Ends::BOTH_FAMILIES {
        for (name, frames) in [("msgp-pool", SEGMENTS), ("msgp-pool+unordered", 0)] {
            let data = walks(Architecture::named(name), ends).data;
            let takes = count(&data, What::Takes(LockClass::Handoff));
            assert_eq!(takes > frames, frames != 0, "{name}: {data:?}");
        }
    }
}

/// A call that waits for the owner of its cell is work that is not done: a stack with it does not rest.
#[every_arch(only(up, shared_nothing, connp_t, connp_t_spsc, connp_t_lwkt, conn_thread_2, layer))]
fn a_stack_with_a_call_that_waits_does_not_rest(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::on_one_thread(arch, ends);
        let connection = bench.connect(2000);
        assert!(bench.stack.is_quiescent());
        let caller = bench.calls(CALLER, &connection, send(b"text"));
        drop(bench.scene.until(|state| state.sleeps(CALLER, &[])));
        assert!(!bench.stack.is_quiescent());
        bench.poll_until_done(CALLER);
        caller.join();
        assert!(bench.stack.is_quiescent());
    }
}

/// A caller sleeps until the owner runs its call. If the architecture is changed first, the next one runs the call: no
/// byte is lost, and the caller is answered (G9).
#[every_arch(only(connp_t, connp_t_spsc, layer))]
fn a_call_that_waits_is_run_under_the_next_architecture(arch: Architecture) {
    for (ends, next) in
        Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| Architecture::all().map(move |next| (ends, next)))
    {
        let mut bench = Bench::on_one_thread(arch, ends);
        let connection = bench.connect(2000);
        bench.scene.state().sent.clear();
        let caller = bench.calls(CALLER, &connection, send(b"text"));
        drop(bench.scene.until(|state| state.sleeps(CALLER, &[])));
        assert!(bench.scene.state().sent.is_empty(), "the owner has not polled");
        bench.stack.switch(next).expect("no other thread is in the stack");
        bench.poll_until_done(CALLER);
        caller.join();
        assert_eq!(bench.scene.state().senders(2000), [TEST], "{arch} to {next}");
    }
}

/// Under `up` the polling thread owns the stack, even if another thread has used it before: that one released it.
#[every_arch(only(up))]
fn the_thread_that_polls_owns_the_stack(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let mut connection = bench.connect(2000);
        bench.driver.rest();
        let caller = bench.calls(CALLER, &connection, send(b"while nobody polls"));
        caller.join();
        assert_eq!(bench.scene.state().sent.last().expect("a segment").by, CALLER, "nobody owned the stack");
        let frame = fin(&mut connection);
        bench.put(&frame);
        bench.driver.poll();
        assert_eq!(bench.scene.state().sent.last().expect("an answer").by, TEST);
    }
}

/// A shard is in use when a segment arrives: the segment is queued, and the receive thread does not wait. It runs once
/// the shard is free, without any further event: by the thread that leaves the shard in mode `process`, otherwise by
/// the worker.
#[every_arch(only(squeue_fill, squeue_nodrain, squeue_process, squeue_process_bind, squeue_process_poll))]
fn a_queued_segment_is_run_by_the_thread_that_leaves_or_by_the_worker(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let (first, second) = bench.ports(1024, 5, 5);
        let (one, mut two) = (bench.connect(first), bench.connect(second));
        let drains = if arch.to_string().starts_with("squeue:process") {
            "writer".to_owned()
        } else {
            own(arch, bench.cell(&one))
        };
        let opens = bench.scene.opens();
        let writer = bench.stop_in_a_write("writer", &one);
        bench.scene.state().sent.clear();
        let frame = fin(&mut two);
        bench.put(&frame);
        bench.driver.poll();
        // Queued directly behind the segment.
        let caller = bench.calls(CALLER, &two, send(b"text"));
        drop(bench.scene.until(|state| state.sleeps(CALLER, &[])));
        assert!(bench.scene.state().sent.is_empty(), "nobody else is let in meanwhile");
        drop(opens);
        writer.join();
        caller.join();
        let state = bench.scene.until(|state| state.sent.len() == 2);
        assert_eq!(state.senders(second), [drains.as_str(); 2]);
        assert_eq!(state.sent.iter().map(|sent| sent.len).collect::<Vec<_>>(), [0, 4], "in the order of the queue");
    }
}

/// A thread that is not the worker drains at most 256 events for others; the worker runs the rest.
#[every_arch(only(squeue_process))]
fn a_caller_does_not_drain_without_end(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        /// Batches of 64 segments, each acknowledged once: a caller drains at most four.
        const BATCHES: usize = 6;
        let mut bench = Bench::with_threads(arch, ends);
        let (first, second) = bench.ports(1024, 5, 5);
        let (one, mut two) = (bench.connect(first), bench.connect(second));
        let worker = own(arch, bench.cell(&one));
        let opens = bench.scene.opens();
        let writer = bench.stop_in_a_write("writer", &one);
        bench.receive_batches(BATCHES, 64, &mut two);
        drop(opens);
        writer.join();
        let acknowledged = |state: &crate::scene::State| state.senders(second).len() >= BATCHES;
        let state = bench.scene.until(acknowledged);
        let by = |thread: &str| state.senders(second).into_iter().filter(|by| *by == thread).count();
        assert_eq!((by("writer"), by(&worker)), (4, BATCHES - 4), "{:?}", state.sent);
    }
}

/// Nor for longer than 20 ms (Solaris' bound), to the end of 32 events: the worker runs the rest.
#[every_arch(only(squeue_process))]
fn a_caller_does_not_drain_for_long(arch: Architecture) {
    /// Batches of 32 segments, each acknowledged once.
    const BATCHES: usize = 3;
    for (ends, (millis, drained)) in
        Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| [(20, BATCHES), (21, 1)].map(|case| (ends, case)))
    {
        let mut bench = Bench::with_threads(arch, ends);
        let (first, second) = bench.ports(1024, 5, 5);
        let (one, mut two) = (bench.connect(first), bench.connect(second));
        let worker = own(arch, bench.cell(&one));
        let opens = bench.scene.opens();
        let writer = bench.stop_in_a_write("writer", &one);
        bench.receive_batches(BATCHES, 32, &mut two);
        bench.scene.close(second);
        bench.scene.open_port(first);
        // In the middle of the first batch.
        drop(bench.scene.until(|state| !state.senders(second).is_empty() && !state.stopped.is_empty()));
        bench.clock.advance(Duration::from_millis(millis));
        drop(opens);
        writer.join();
        let state = bench.scene.until(|state| state.senders(second).len() >= BATCHES);
        let by = |thread: &str| state.senders(second).into_iter().filter(|by| *by == thread).count();
        assert_eq!((by("writer"), by(&worker)), (drained, BATCHES - drained), "after {millis} ms: {:?}", state.sent);
    }
}

/// Counts how often its connection is reported as readable.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Watch for Counts {
    fn ready(&self, raised: Readiness, _: Readiness) {
        self.0.fetch_add(usize::from(raised.contains(Readiness::READABLE)), Ordering::Relaxed);
    }
}

/// Nor further once users' code must run because of what it drained, for which there is no bound: the worker runs the rest.
#[every_arch(only(squeue_process))]
fn a_caller_tells_the_users_of_one_batch(arch: Architecture) {
    const BATCHES: usize = 3;
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let (first, second) = bench.ports(1024, 5, 5);
        let (one, mut two) = (bench.connect(first), bench.connect(second));
        let worker = own(arch, bench.cell(&one));
        let opens = bench.scene.opens();
        let writer = bench.stop_in_a_write("writer", &one);
        bench.receive_batches(BATCHES, 32, &mut two);
        let counts = Arc::new(Counts::default());
        two.socket.ready.watch(counts.clone());
        drop(opens);
        writer.join();
        let state = bench.scene.until(|state| state.own_threads_sleep() && state.senders(second).len() >= 2);
        let senders = state.senders(second);
        assert_eq!((senders[0], senders[1]), ("writer", worker.as_str()), "{:?}", state.sent);
        assert!(!senders[1..].contains(&"writer"), "{:?}", state.sent);
        assert_ne!(counts.0.load(Ordering::Relaxed), 0, "its user is told");
    }
}

/// A call by the owner of a connection has performed its effects when it returns: the device is notified of the
/// segment, and a poll set of the readiness.
#[every_arch]
fn a_call_on_the_owners_thread_performs_its_effects(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::on_one_thread(arch, ends);
        let (a, b) = bench.ports(2, 0, 1);
        for port in [a, b] {
            let connection = bench.connect(port);
            let set = stack::socket::PollSet::new(false).expect("a set");
            connection.socket.ready.register(&connection.socket, &set, 7);
            let mut events = Vec::new();
            set.try_wait(&mut events, 8);
            bench.call(&connection, send(b"text"));
            assert!(!bench.scene.state().unflushed, "the device was notified of the segment");
            assert!(bench.collect() > 0);
            bench.call(&connection, Call::Abort(tcp::Abort));
            assert!(!bench.scene.state().unflushed, "the device was notified of the reset");
            assert_eq!(set.try_wait(&mut events, 8), 1, "the poll set is told that the socket is closed");
            assert!(events[0].ready.contains(stack::socket::Readiness::CLOSED));
        }
    }
}
