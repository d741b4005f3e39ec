//! Connections that are bound to the squeue of the CPU on which they began (Solaris: `conn_sqp`): which thread runs their events,
//! what they wait for, and how long a binding lasts.
//!
//! The flow's hash, the queue on which it begins and the queues on which its segments arrive later are all chosen by the test.

use std::time::Duration;

use stack::call::{Call, Reply};
use stack::socket::Readiness;
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::{Connection, PORT};
use crate::scene::TEST;
use crate::two_queues::{CPUS, QUEUES, TwoQueues, fin};

/// Every way to enter a shard.
const BINDING: [&str; 6] = [
    "squeue:fill+bind",
    "squeue:nodrain+bind",
    "squeue:process+bind",
    "squeue:fill+poll+bind",
    "squeue:nodrain+poll+bind",
    "squeue:process+poll+bind",
];

fn worker(shard: usize) -> String {
    format!("heddle-sq{shard}")
}

impl TwoQueues {
    /// The first port of a peer from `from` on with a flow that hashes to this CPU.
    fn port_of(&self, cpu: usize, from: u16) -> u16 {
        let hash = |port: u16| self.stack.flow((self.ends.dst, PORT).into(), (self.ends.src, port).into());
        (from..).find(|port| hash(*port).index(CPUS) == cpu).expect("a port")
    }

    /// A connection from this port, the SYN of which arrives on queue `begins`, and the rest of the handshake on the other.
    fn connect_on(&mut self, port: u16, begins: usize) -> Connection {
        let (mut queue, listener) = (begins, self.listener.clone());
        let connection = Connection::open((self.ends, port), &listener, |frame| {
            self.put_on(frame, queue);
            queue = (queue + 1) % QUEUES;
            self.settle()
        });
        self.scene.state().sent.clear();
        connection
    }

    /// The receive thread of this queue takes one frame.
    fn take_on(&mut self, frame: &[u8], queue: usize) {
        self.put_on(frame, queue);
        assert_eq!(self.drivers[queue].poll(), 1);
    }

    /// The threads that answer a SYN from `port` on this queue, and the last segment of the answer.
    fn answer_of_a_syn(&mut self, port: u16, queue: usize) -> (Vec<String>, wire::tcp::Header) {
        self.scene.state().sent.clear();
        self.take_on(&Segment::syn(port, PORT).frame_over(self.ends), queue);
        let sent = self.settle();
        let mut headers = sent.iter().filter_map(|frame| tcp_of(frame)).map(|(header, _)| header);
        let answer = headers.rfind(|header| header.dst_port == port).expect("a SYN-ACK");
        (self.scene.state().senders(port).into_iter().map(str::to_owned).collect(), answer)
    }
}

/// Whatever its hash, and on whatever queue its segments arrive.
#[test]
fn a_connection_is_run_in_the_squeue_of_the_cpu_on_which_its_first_segment_arrived() {
    for ends in Ends::BOTH_FAMILIES {
        for (begins, cpu) in (0..QUEUES).flat_map(|begins| (0..CPUS).map(move |cpu| (begins, cpu))) {
            for (arch, shard) in [("squeue:fill+bind", begins), ("squeue:fill", cpu)] {
                let mut bench = TwoQueues::steered(arch, ends);
                let port = bench.port_of(cpu, 2000);
                let mut connection = bench.connect_on(port, begins);
                for queue in [0, 1, 1, 0] {
                    let data = connection.data(&[7; 1000]);
                    bench.take_on(&data, queue);
                }
                bench.take_on(&fin(&mut connection), (begins + 1) % QUEUES);
                bench.settle();
                let (state, shard) = (bench.scene.state(), worker(shard));
                assert!(state.senders(port).len() > 1, "{arch}");
                assert!(state.senders(port).iter().all(|by| *by == shard), "{arch}, {begins}, {cpu}: {:?}", state.sent);
                drop(state);
                assert_eq!((bench.read(&connection).len(), bench.misordered()), (4007, 0));
            }
        }
    }
}

/// A connection that is opened here is bound to the squeue of its caller's CPU: in these tests that of queue 0.
#[test]
fn an_active_open_is_bound_to_the_cpu_of_its_caller() {
    for (ends, cpu) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| (0..CPUS).map(move |cpu| (ends, cpu))) {
        for (arch, shard) in [("squeue:fill+bind", 0), ("squeue:fill", cpu)] {
            let mut bench = TwoQueues::steered(arch, ends);
            let to = |port: u16| bench.stack.flow((ends.dst, 5000).into(), (ends.src, port).into()).index(CPUS);
            let port = (2000..).find(|port| to(*port) == cpu).expect("a port");
            let local = Some((ends.dst, 5000).into());
            let socket = bench.stack.connect(local, (ends.src, port).into(), &Default::default()).expect("opens");
            let sent = bench.settle();
            let syn =
                sent.iter().filter_map(|frame| tcp_of(frame)).map(|(header, _)| header).next_back().expect("a SYN");
            let next = syn.seq.0.wrapping_add(1);
            let answer = Segment { flags: TcpFlags::SYN | TcpFlags::ACK, ack: next, ..Segment::syn(port, 5000) };
            bench.scene.state().sent.clear();
            bench.take_on(&answer.frame_over(ends), 1);
            bench.settle();
            assert_eq!(bench.scene.state().senders(port), [worker(shard)], "{arch}, {cpu}");
            assert!(socket.ready.get().contains(Readiness::WRITABLE), "the handshake is complete");
        }
    }
}

/// A segment waits for those of its own squeue, and for no other: its hash has no part in it.
#[test]
fn what_a_connection_waits_for_is_the_squeue_that_it_is_bound_to() {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::steered("squeue:process+bind", ends);
        let [a, b, c] = [1, 2, 0].map(|cpu| bench.port_of(cpu, 2000 + 1000 * cpu as u16));
        let (one, mut two, mut other) = (bench.connect_on(a, 0), bench.connect_on(b, 0), bench.connect_on(c, 1));
        bench.scene.close(a);
        let (stack, target) = (bench.stack.clone(), one.socket.target());
        let writer = bench.scene.spawn("writer", move || drop(stack.call(&target, send(b"busy"))));
        drop(bench.scene.until(|state| !state.stopped.is_empty()));
        bench.take_on(&fin(&mut two), 1);
        bench.take_on(&fin(&mut other), 0);
        assert_eq!(bench.scene.state().senders(b), [""; 0], "the writer has the flag of its squeue");
        assert_eq!(bench.scene.state().senders(c), [TEST], "this one is free");
        bench.scene.open_port(a);
        writer.join();
        assert_eq!(bench.scene.state().senders(b), ["writer"], "it drains what it finds");
        bench.settle();
    }
}

/// A peer repeats its SYN, and the copy arrives on another queue before the first has been processed. There is one connection.
#[test]
fn segments_between_the_syn_and_its_answer_are_those_of_one_connection() {
    for (ends, arch) in Ends::BOTH_FAMILIES
        .into_iter()
        .flat_map(|ends| ["squeue:fill+bind", "squeue:fill+poll+bind"].map(|arch| (ends, arch)))
    {
        let mut bench = TwoQueues::steered(arch, ends);
        let (first, port) = (bench.port_of(2, 2000), bench.port_of(1, 4000));
        let mut busy = bench.connect_on(first, 0);
        bench.scene.close(first);
        bench.take_on(&fin(&mut busy), 1);
        drop(bench.scene.until(|state| state.stopped.contains(&worker(0))));
        bench.take_on(&Segment::syn(port, PORT).frame_over(ends), 0);
        bench.take_on(&Segment::syn(port, PORT).frame_over(ends), 1);
        drop(bench.scene.until(|state| state.sleeps(&worker(1), &[]) && state.sleeps(&worker(2), &[])));
        assert_eq!(bench.scene.state().senders(port), [""; 0], "both wait for the squeue of the first");
        bench.scene.open_port(first);
        let sent = bench.settle();
        let answers: Vec<_> =
            sent.iter().filter_map(|frame| tcp_of(frame)).filter(|(to, _)| to.dst_port == port).collect();
        assert!(answers.iter().all(|(answer, _)| answer.seq == answers[0].0.seq), "{answers:?}");
        assert!(bench.scene.state().senders(port).iter().all(|by| *by == worker(0)));
        // The rest arrives on both queues while that squeue is in use again: nothing is lost, and nothing overtakes.
        let next = answers[0].0.seq.0.wrapping_add(1);
        bench.scene.close(first);
        bench.take_on(&busy.segment(TcpFlags::FIN, &[]), 1);
        let data = |at: u32, flags| Segment {
            data: &[7; 100],
            ..Segment::ack((port, PORT), ISS.wrapping_add(1 + at), next).and(flags)
        };
        for (n, queue) in [1, 0, 1, 1, 0].into_iter().enumerate() {
            let flags = if n == 4 { TcpFlags::FIN } else { TcpFlags::PSH };
            bench.put_on(&data(100 * n as u32, flags).frame_over(ends), queue);
            // Under `+poll` a ring is shut while the squeue is in use, so the order of the two rings is not that of arrival.
            if !arch.contains("poll") {
                assert_eq!(bench.drivers[queue].poll(), 1);
            }
        }
        bench.scene.open_port(first);
        bench.settle();
        let socket = bench.listener.accept().expect("the handshake is complete");
        let read = match bench.stack.call(&socket.target(), Call::Receive(tcp::Receive { max: 1 << 16 })) {
            Reply::Received(Ok(got)) => got.data.iter().map(|data| data.to_vec().len()).sum(),
            _ => 0,
        };
        assert_eq!(read, 500, "{arch}");
        assert!(bench.listener.accept().is_none(), "there is one connection");
        if !arch.contains("poll") {
            assert_eq!(bench.misordered(), 0);
        }
    }
}

/// How a connection, or what may become one, ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// A stray segment, which has never been more.
    Stray,
    /// Its peer resets the half-open connection.
    ResetHalfOpen,
    /// The handshake is not completed in time.
    TimedOut,
    /// Its peer resets the connection, and its user, having seen that, closes it.
    Reset,
    /// Its user aborts it.
    Aborted,
    /// It is closed, and its TIME-WAIT ends.
    TimeWait,
}

/// Ends the connection of `port`, which has begun on queue 0.
fn end(bench: &mut TwoQueues, port: u16, end: End) {
    let ends = bench.ends;
    let reset = |seq: u32| Segment { flags: TcpFlags::RST, seq, ..Segment::syn(port, PORT) };
    match end {
        End::Stray => bench.take_on(&Segment::ack((port, PORT), 1, 1).frame_over(ends), 0),
        End::ResetHalfOpen => {
            bench.answer_of_a_syn(port, 0);
            bench.take_on(&reset(ISS.wrapping_add(1)).frame_over(ends), 1);
        }
        End::TimedOut => {
            bench.answer_of_a_syn(port, 0);
            bench.pass(Duration::from_secs(200), Duration::from_secs(1));
        }
        End::Reset => {
            let connection = bench.connect_on(port, 0);
            bench.take_on(&reset(ISS.wrapping_add(1)).frame_over(ends), 1);
            bench.settle();
            bench.stack.call(&connection.socket.target(), Call::Close(tcp::Close));
        }
        End::Aborted => {
            let connection = bench.connect_on(port, 0);
            bench.stack.call(&connection.socket.target(), Call::Abort(tcp::Abort));
        }
        End::TimeWait => {
            let mut connection = bench.connect_on(port, 0);
            bench.stack.call(&connection.socket.target(), Call::Close(tcp::Close));
            bench.settle();
            connection.acknowledged = connection.acknowledged.wrapping_add(1);
            let last = connection.segment(TcpFlags::FIN, &[]);
            bench.take_on(&last, 1);
            bench.settle();
            assert_eq!(bench.stack.stats().time_wait, 1, "it waits");
            bench.pass(Duration::from_secs(130), Duration::from_secs(1));
        }
    }
    // Neighbours are known for a shorter time than some of these take.
    for frame in [frames::arp_request(), frames::neighbour_solicitation()] {
        bench.exchange(&frame);
    }
}

/// The binding ends with the last that refers to it: a connection with the same tuple is bound to the CPU on which it begins.
#[test]
fn a_binding_ends_with_its_connection() {
    let ways = [End::Stray, End::ResetHalfOpen, End::TimedOut, End::Reset, End::Aborted, End::TimeWait];
    for (ends, way) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| ways.map(|way| (ends, way))) {
        let mut bench = TwoQueues::steered("squeue:fill+bind", ends);
        let port = bench.port_of(2, 2000);
        end(&mut bench, port, way);
        assert_eq!(bench.stack.stats().connections, 0, "{way:?}: it has ended");
        let (by, _) = bench.answer_of_a_syn(port, 1);
        assert_eq!(by, [worker(1)], "{way:?}");
    }
}

/// While it is half-open, open or in TIME-WAIT, a copy of its SYN on another queue is its own.
#[test]
fn a_binding_lasts_as_long_as_its_connection() {
    for (ends, arch) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| BINDING.map(|arch| (ends, arch))) {
        let mut bench = TwoQueues::steered(arch, ends);
        let port = bench.port_of(2, 2000);
        let (_, first) = bench.answer_of_a_syn(port, 0);
        let (_, again) = bench.answer_of_a_syn(port, 1);
        assert_eq!(first.seq, again.seq, "{arch}: it is the same half-open connection");
        let other = bench.port_of(2, port + 1);
        let mut connection = bench.connect_on(other, 0);
        bench.stack.call(&connection.socket.target(), Call::Close(tcp::Close));
        bench.settle();
        connection.acknowledged = connection.acknowledged.wrapping_add(1);
        let last = connection.segment(TcpFlags::FIN, &[]);
        bench.take_on(&last, 0);
        bench.settle();
        bench.scene.state().sent.clear();
        bench.take_on(&last, 1);
        bench.settle();
        let state = bench.scene.state();
        let by = state.senders(other);
        assert_eq!(by.len(), 1, "{arch}: TIME-WAIT acknowledges the repeated FIN");
        assert!(!arch.contains("fill") || by[0] == worker(0), "{arch}: {by:?}");
    }
}
