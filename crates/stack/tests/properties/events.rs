//! Walks of the events of one connection, all on one thread.

use std::time::Duration;

use stack::Architecture;
use stack::call::{Call, Reply};
use sync::walk::record;
use testbed::frames::Ends;
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::{Bench, Connection};
use crate::scene::Sent;
use crate::walk::{Moment, What, count, moments};

/// The number of segments in a batch: two connections have one each, and the first another.
pub const SEGMENTS: usize = 3;

/// The recorded data.
pub struct Walks {
    /// Three segments with payload, in order, of two connections; none is answered at once.
    pub data: Vec<Moment>,
    /// A segment with payload that is answered at once.
    pub answered: Vec<Moment>,
    /// A pure acknowledgement of data in flight.
    pub ack: Vec<Moment>,
    /// A call that reads, and one that writes.
    pub read: Vec<Moment>,
    pub write: Vec<Moment>,
    /// The retransmission timer of a connection.
    pub timer: Vec<Moment>,
    /// The peer's FIN.
    pub fin: Vec<Moment>,
    /// A poll that finds nothing to do.
    pub idle: Vec<Moment>,
    /// The segments that were sent in answer to `answered`, by `write` and by `timer`.
    pub sent: [Sent; 3],
}

impl Walks {
    /// The walks of data events on an open connection.
    pub fn of_data(&self) -> [&[Moment]; 5] {
        [&self.data, &self.answered, &self.ack, &self.read, &self.write]
    }

    /// Every walk but the idle one.
    pub fn all(&self) -> [&[Moment]; 7] {
        [&self.data, &self.answered, &self.ack, &self.read, &self.write, &self.timer, &self.fin]
    }
}

/// Records the walks under `arch`. Asserts that each contains its event; how a read proceeds depends on the cell.
pub fn walks(arch: Architecture, ends: Ends) -> Walks {
    walks_on(Bench::on_one_thread(arch, ends))
}

/// The same of a stack that is there.
pub fn walks_on(mut bench: Bench) -> Walks {
    let (first, second) = bench.ports(2, 0, 1);
    let (mut one, mut two) = (bench.connect(first), bench.connect(second));
    bench.pass(Duration::from_millis(300));
    let idle = moments(&bench.walk(&[]));
    let frames = [one.data(b"first"), two.data(b"other"), one.segment(TcpFlags::NONE, b"")];
    let data = moments(&bench.walk(&frames));
    bench.pass(Duration::from_millis(300));
    let frames = [one.data(&[1; 1000]), one.data(&[2; 1000])];
    bench.walk(&frames[..1]);
    let answered = moments(&bench.walk(&frames[1..]));
    let sent_answered = last(&bench);
    bench.settle();
    let (reply, read) = record(|| bench.call(&one, Call::Receive(tcp::Receive { max: 10 })));
    assert!(matches!(reply, Reply::Received(Ok(_))));
    let (write, sent_write) = written(&bench, &one);
    bench.collect();
    let frame = one.ack(4);
    let ack = moments(&bench.walk(&[frame]));
    bench.call(&one, send(b"text"));
    bench.settle();
    bench.clock.advance(Duration::from_secs(1));
    let timer = moments(&bench.walk(&[]));
    let sent_timer = last(&bench);
    bench.settle();
    let frame = one.ack(4);
    bench.walk(&[frame]);
    bench.pass(Duration::from_millis(300));
    let frame = one.segment(TcpFlags::FIN, &[]);
    let fin = moments(&bench.walk(&[frame]));
    let sent = [sent_answered, sent_write, sent_timer];
    assert_eq!(count(&data, What::Runs), SEGMENTS);
    for walk in [&answered, &ack, &write, &timer, &fin] {
        assert_eq!(count(walk, What::Runs), 1, "{walk:?}");
    }
    Walks { data, answered, ack, read: moments(&read), write, timer, fin, idle, sent }
}

fn written(bench: &Bench, connection: &Connection) -> (Vec<Moment>, Sent) {
    let (reply, write) = record(|| bench.call(connection, send(b"text")));
    assert!(matches!(reply, Reply::Sent(Ok(_))));
    (moments(&write), last(bench))
}

fn last(bench: &Bench) -> Sent {
    bench.scene.state().sent.last().expect("a segment was sent").clone()
}
