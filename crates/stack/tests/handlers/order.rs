//! The order of callbacks: `open`, data in the order of the stream, `end`, `closed` once and last; `writable` after a full
//! buffer; timers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use every_arch::every_arch;
use stack::Architecture;
use testbed::frames::Ends;
use wire::tcp::TcpFlags;

use super::scene::{Log, Peer, Scripted, Seen, data_of, node, seen, serve};

/// The data of callbacks that all give data, which may be cut in any way.
fn joined(seen: Vec<(u16, Seen)>) -> Vec<u8> {
    let data = |(_, seen)| match seen {
        Seen::Data(data) => data,
        other => panic!("{other:?} is no data"),
    };
    seen.into_iter().flat_map(data).collect()
}

#[every_arch]
fn callbacks_come_in_order_and_none_after_closed(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let _listener = serve(&node, &log, |conn, seen| {
            if *seen == Seen::End {
                assert_eq!(conn.send(b"bye"), Ok(3));
                conn.close();
                assert_eq!(conn.send(b"more"), Err(tcp::Error::NotConnected), "it is closed");
            }
        });
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        assert_eq!(seen(&log), [(2000, Seen::Open)]);
        // Out of order, and then the missing data with the data after it.
        let (first, second) = (peer.frame(TcpFlags::PSH, b"one"), peer.frame(TcpFlags::PSH, b"two"));
        node.put(&second);
        peer.listen(&mut node);
        assert_eq!(seen(&log), []);
        node.put(&first);
        peer.listen(&mut node);
        assert_eq!(joined(seen(&log)), b"onetwo");
        // The last data and the end of the stream in one segment.
        let heard = peer.say(&mut node, TcpFlags::FIN, b"three");
        let closed = [Seen::Data(b"three".to_vec()), Seen::End, Seen::Closed(Ok(()))];
        assert_eq!(seen(&log), closed.map(|seen| (2000, seen)));
        assert_eq!(data_of(&heard), b"bye");
        assert!(heard.last().is_some_and(|(header, _)| header.flags.contains(TcpFlags::FIN)), "{heard:?}");
        peer.say(&mut node, TcpFlags::NONE, b"");
        peer.say(&mut node, TcpFlags::RST, b"");
        peer.wait(&mut node, Duration::from_millis(100));
        assert_eq!(seen(&log), [], "after closed");
        assert_eq!(node.stack.stats().connections, 0);
    }
}

#[every_arch]
fn a_reset_is_the_last_callback_with_its_reason(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let _listener = serve(&node, &log, |_, _| ());
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        peer.say(&mut node, TcpFlags::RST, b"");
        assert_eq!(seen(&log), [Seen::Open, Seen::Closed(Err(tcp::Error::Reset))].map(|seen| (2000, seen)));
        assert_eq!(node.stack.stats().connections, 0);
    }
}

/// Both directions may end one after the other; the connection is over when both have.
#[every_arch]
fn a_half_closed_connection_still_gets_data(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let _listener = serve(&node, &log, |conn, seen| {
            if *seen == Seen::Open {
                conn.send(b"hello").expect("room");
                conn.shutdown_write();
            }
        });
        let (mut peer, heard) = Peer::connect(&mut node, ends, 2000);
        assert_eq!(data_of(&heard), b"hello");
        peer.say(&mut node, TcpFlags::PSH, b"more");
        peer.say(&mut node, TcpFlags::FIN, b"");
        let expected = [Seen::Open, Seen::Data(b"more".to_vec()), Seen::End, Seen::Closed(Ok(()))];
        assert_eq!(seen(&log), expected.map(|seen| (2000, seen)));
    }
}

/// A send that is not taken whole is followed by `writable`, when the peer has acknowledged enough, and not before.
#[every_arch]
fn writable_follows_a_full_buffer(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let total = 8 << 20;
        let mut left = total;
        let _listener = serve(&node, &log, move |conn, seen| {
            if matches!(seen, Seen::Open | Seen::Writable) {
                left -= conn.send(&vec![7; left]).expect("a connection");
                assert!(*seen != Seen::Open || left > 0, "more than any buffer");
                if left == 0 {
                    conn.close();
                }
            }
        });
        let (mut peer, heard) = Peer::connect(&mut node, ends, 2000);
        assert_eq!(seen(&log), [(2000, Seen::Open)]);
        let mut got = data_of(&heard).len();
        while got < total {
            let heard = peer.say(&mut node, TcpFlags::NONE, b"");
            assert!(!heard.is_empty(), "{got} of {total} bytes, and no more");
            got += data_of(&heard).len();
        }
        let log = seen(&log);
        let (last, before) = log.split_last().expect("callbacks");
        assert!(!before.is_empty() && before.iter().all(|(_, seen)| *seen == Seen::Writable), "{before:?}");
        assert_eq!(*last, (2000, Seen::Closed(Ok(()))));
    }
}

/// A paused handler gets no data, and the window closes; after `resume` it gets all of it.
#[every_arch]
fn a_paused_handler_gets_its_data_when_it_resumes(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let _listener = serve(&node, &log, |conn, seen| match seen {
            Seen::Open => {
                conn.pause();
                conn.set_timer(Some(Duration::from_secs(1)));
            }
            Seen::Timer => conn.resume(),
            _ => {}
        });
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        let before = peer.say(&mut node, TcpFlags::PSH, &[1; 1000]);
        peer.say(&mut node, TcpFlags::PSH, &[2; 1000]);
        peer.wait(&mut node, Duration::from_millis(500));
        assert_eq!(seen(&log), [(2000, Seen::Open)], "{before:?}");
        peer.wait(&mut node, Duration::from_secs(1));
        let mut after = seen(&log);
        assert_eq!(after.remove(0), (2000, Seen::Timer));
        assert_eq!(joined(after), [[1; 1000], [2; 1000]].concat());
    }
}

/// A timer is called once, not before its time, although TCP's own timers of the connection fire earlier.
#[every_arch]
fn a_timer_fires_once_at_its_time(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let _listener = serve(&node, &log, |conn, seen| {
            if *seen == Seen::Open {
                // Not acknowledged: the retransmission timer fires meanwhile.
                conn.send(b"anybody there?").expect("room");
                conn.set_timer(Some(Duration::from_secs(3)));
            }
        });
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        let repeated = node.pass(Duration::from_millis(2990), Duration::from_millis(10));
        assert!(!repeated.is_empty(), "retransmissions");
        assert_eq!(seen(&log), [(2000, Seen::Open)]);
        node.pass(Duration::from_millis(20), Duration::from_millis(10));
        assert_eq!(seen(&log), [(2000, Seen::Timer)]);
        peer.say(&mut node, TcpFlags::NONE, b"");
        node.pass(Duration::from_secs(10), Duration::from_millis(100));
        assert_eq!(seen(&log), []);
    }
}

/// An active open: nothing before the peer has answered, and a refusal is the only callback.
#[every_arch]
fn an_active_open_is_notified_of_its_outcome(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        for refused in [false, true] {
            let remote = std::net::SocketAddr::new(ends.src, 90);
            let handler = Scripted::boxed(&log, |conn, seen| {
                if *seen == Seen::Open {
                    conn.send(b"hello").expect("room");
                }
            });
            let name =
                node.stack.connect_with_handler(None, remote, &Default::default(), b"", handler).expect("a route");
            let port = name.tuple().local_port;
            let syn = node.settle();
            let (header, _) = syn.iter().find_map(|frame| testbed::frames::tcp_of(frame)).expect("a SYN");
            assert_eq!(seen(&log), []);
            let flags = if refused { TcpFlags::RST } else { TcpFlags::SYN };
            let answer = testbed::frames::Segment::ack((90, port), 5000, header.seq.0.wrapping_add(1)).and(flags);
            let sent = node.exchange(&answer.frame_over(ends));
            let data: Vec<u8> =
                sent.iter().filter_map(|frame| testbed::frames::tcp_of(frame)).flat_map(|s| s.1.to_vec()).collect();
            let expected = if refused { Seen::Closed(Err(tcp::Error::Refused)) } else { Seen::Open };
            assert_eq!(seen(&log), [(90, expected)]);
            assert_eq!(data, if refused { &b""[..] } else { b"hello" });
            assert_eq!(name.is_closed(), refused);
        }
    }
}

/// Something that a handler owns: notes when it is dropped, and whether a lock is held then.
struct Owned(Arc<Mutex<Vec<bool>>>);

impl Clone for Owned {
    fn clone(&self) -> Self {
        Owned(self.0.clone())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let free = std::panic::catch_unwind(|| sync::lock_order::assert_none_held::<sync::Real>("a handler ends"));
        self.0.lock().expect("no test panics with it").push(free.is_err());
    }
}

/// A handler may own anything, also what calls the stack when it is dropped: that happens where no lock is held.
#[every_arch]
fn a_handler_that_is_over_is_dropped_where_no_lock_is_held(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (node(arch), Log::default());
        let dropped = Arc::new(Mutex::new(Vec::new()));
        let owned = Owned(dropped.clone());
        let _listener = serve(&node, &log, move |conn, seen| {
            let _owned = &owned;
            if *seen == Seen::End {
                conn.close();
            }
        });
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        let before = std::mem::take(&mut *dropped.lock().expect("no test panics with it"));
        peer.say(&mut node, TcpFlags::FIN, b"");
        peer.say(&mut node, TcpFlags::NONE, b"");
        assert!(seen(&log).contains(&(2000, Seen::Closed(Ok(())))));
        let held = dropped.lock().expect("no test panics with it").clone();
        assert_eq!((held, before), (vec![false], vec![]), "{arch}");
    }
}
