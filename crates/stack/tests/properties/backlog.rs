//! Connections that threads own in turn (`backlog`, `steal`; Linux: `lock_sock`, `sk_add_backlog`, `release_sock`): the
//! thread that processes segments for a connection in use, their order, and the limit of the backlog.

use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, DropReason};
use stack::Architecture;
use stack::call::{Call, Reply};
use sync::LockClass::{Backlog, ConnTable, Timers};
use testbed::frames::Ends;
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::{Bench, Connection};
use crate::events::{SEGMENTS, walks};
use crate::walk::{What, count, held_by_events, taken};

const WRITER: &str = "writer";

/// A connection, and a thread that is stopped in a write on it.
fn in_use(bench: &mut Bench) -> (Connection, crate::scene::Thread) {
    let connection = bench.connect(2000);
    let writer = bench.stop_in_a_write(WRITER, &connection);
    bench.scene.state().sent.clear();
    (connection, writer)
}

fn dropped(bench: &Bench) -> u64 {
    bench.stack.stats().counters.dropped(DropReason::TcpBacklogFull)
}

fn read(bench: &Bench, connection: &Connection) -> Vec<u8> {
    match bench.call(connection, Call::Receive(tcp::Receive { max: 1 << 20 })) {
        Reply::Received(Ok(got)) => got.data.iter().flat_map(|data| data.to_vec()).collect(),
        _ => Vec::new(),
    }
}

/// `lock_sock`: the lock is dropped once the connection is owned, so an event runs without one.
#[every_arch(only(backlog, steal))]
fn an_owner_runs_its_event_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        // Those of the wheel are taken when the connection is free.
        let locks = |walk| taken(walk).into_iter().filter(|class| *class != Timers).collect::<Vec<_>>();
        assert_eq!(locks(&walks.data), [[ConnTable, Backlog, Backlog]; SEGMENTS].concat());
        for call in [&walks.read, &walks.write] {
            assert_eq!(locks(call), [ConnTable, Backlog, Backlog], "it looks, owns, and lets go");
        }
        for walk in walks.all() {
            assert_eq!(count(walk, What::HandsOver), 0, "a free connection is used at once");
            assert!(held_by_events(walk).iter().all(|held| held.is_empty()), "{walk:?}");
            assert!(walk.iter().all(|moment| moment.held.len() <= 1), "never two locks at once: {walk:?}");
        }
        assert!(walks.sent.iter().all(|sent| sent.held.is_empty()), "{:?}", walks.sent);
    }
}

/// `tcp_v4_rcv`: "if (!sock_owned_by_user(sk)) tcp_v4_do_rcv(sk, skb) else tcp_add_backlog(sk, skb)". While a call uses
/// a connection, the thread that receives segments for it does not process them, but continues with others; the caller
/// processes them, in their order, before its call returns.
#[every_arch(only(backlog, steal))]
fn segments_for_a_connection_in_use_are_processed_by_its_owner_in_order(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let mut other = bench.connect(3000);
        let opens = bench.scene.opens();
        let (mut connection, writer) = in_use(&mut bench);
        let disorder = bench.stack.stats().counters.get(Counter::OutOfOrderAtEntry);
        for data in [&b"first "[..], b"second ", b"third "] {
            let frame = connection.data(data);
            bench.put(&frame);
            assert_eq!(bench.driver.poll(), 1, "the receive thread does not wait");
        }
        let fin = connection.segment(TcpFlags::FIN | TcpFlags::PSH, b"last");
        bench.put(&fin);
        let text = other.data(b"text");
        bench.put(&text);
        assert_eq!(bench.driver.poll(), 2);
        assert_eq!(read(&bench, &other), b"text", "another connection is not in use");
        assert_eq!(bench.scene.state().senders(2000), [""; 0], "nothing was processed");
        assert!(!bench.stack.is_quiescent(), "there is work to do");
        drop(opens);
        writer.join();
        assert!(bench.stack.is_quiescent());
        let senders = bench.scene.state().senders(2000).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert!(!senders.is_empty() && senders.iter().all(|by| by == WRITER), "{senders:?}");
        assert_eq!(read(&bench, &connection), b"first second third last");
        let after = bench.stack.stats().counters.get(Counter::OutOfOrderAtEntry);
        assert_eq!(after, disorder, "each was the next when it was processed");
    }
}

/// `TCP_WRITE_TIMER_DEFERRED`: a timer of a connection in use is its owner's too.
#[every_arch(only(backlog, steal))]
fn a_timer_of_a_connection_in_use_is_run_by_its_owner(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let connection = bench.connect(2000);
        bench.call(&connection, Call::SetOption(tcp::SetOption(tcp::SocketOption::NoDelay(true))));
        bench.call(&connection, send(b"text"));
        let opens = bench.scene.opens();
        let writer = bench.stop_in_a_write(WRITER, &connection);
        bench.scene.state().sent.clear();
        bench.clock.advance(Duration::from_secs(1));
        bench.driver.poll();
        assert_eq!(bench.scene.state().senders(2000), [""; 0]);
        drop(opens);
        writer.join();
        assert_eq!(bench.scene.state().senders(2000), [WRITER], "the data is sent again");
    }
}

/// `sk_add_backlog`: "if (sk_rcvqueues_full(sk, limit)) return -ENOBUFS". As much as the largest receive buffer and 64
/// KiB may wait; segments that exceed it are dropped and counted, and the connection continues.
#[every_arch(only(backlog, steal))]
fn a_full_backlog_drops_and_counts(arch: Architecture) {
    /// A segment counts with its data and 256 bytes.
    const DATA: [u8; 1000] = [7; 1000];
    let room = (tcp::Config::default().receive_buffer.max as usize + (64 << 10)) / (DATA.len() + 256);
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let opens = bench.scene.opens();
        let (mut connection, writer) = in_use(&mut bench);
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
        assert!(bench.stack.is_quiescent(), "what was left has been processed");
        assert_eq!(read(&bench, &connection), DATA, "all others were the same again");
        let last = connection.data(b"last");
        bench.put(&last);
        bench.settle();
        assert_eq!((read(&bench, &connection), dropped(&bench)), (b"last".to_vec(), 3));
    }
}
