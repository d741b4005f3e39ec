//! Invariants of every schedule that the model checker's own scenes do not cover: those that need time, another
//! architecture, or a comparison.

use std::time::Duration;

use stack::Architecture;
use stack::call::Call;
use stack::socket::Readiness;
use testbed::frames::Ends;

use crate::scene::{Around, PORT, Scene, caller, join, read, write};

/// Two callers write, and the peer's data arrives meanwhile and is read: all bytes arrive, those of each writer in one
/// piece, and the segments leave in the order of their sequence numbers. So the bytes read and sent are the same under
/// every architecture and schedule, except for which writer comes first (G3, G7).
pub fn exchange(arch: Architecture, ends: Ends, around: Around) {
    let mut scene = Scene::start(arch, ends, around);
    let mut connection = scene.open(2000);
    let writers = [b"aaaa", b"bbbb"].map(|data| {
        let (stack, socket) = (scene.stack.clone(), connection.socket.clone());
        caller(move || {
            write(&stack, &socket, data);
            if data == b"aaaa" {
                assert_eq!(read(&stack, &socket, 4), b"cccc");
            }
        })
    });
    let frame = scene.data(&mut connection, 0, b"cccc");
    scene.put(&[frame]);
    let mut sent = Vec::new();
    let (mut next, first) = (connection.first, connection.first);
    while next != first.wrapping_add(8) {
        let (seq, data) = scene.expect(|header, data| (!data.is_empty()).then(|| (header.seq.0, data.to_vec())));
        assert_eq!(seq, next, "a segment overtook another (G7)");
        next = next.wrapping_add(data.len() as u32);
        sent.extend(data);
    }
    assert!([b"aaaabbbb", b"bbbbaaaa"].iter().any(|whole| sent == **whole), "sent {sent:?}");
    writers.into_iter().for_each(join);
    scene.stack.call(&connection.socket.target(), Call::Abort(tcp::Abort));
    scene.end();
}

/// Data is acknowledged at the moment when its retransmission timer fires: once the acknowledgement has been processed,
/// the data is never sent again (G8).
pub fn stale_timer(arch: Architecture, ends: Ends) {
    let mut scene = Scene::start(arch, ends, |device| device);
    scene.resends = true;
    let mut connection = scene.open(2000);
    write(&scene.stack, &connection.socket, b"data");
    scene.expect(|_, data| (data == b"data").then_some(()));
    let passes = scene.clock();
    let clock = caller(move || (0..4).for_each(|_| passes(Duration::from_millis(700))));
    let acknowledgement = scene.data(&mut connection, 4, b"");
    let next = scene.data(&mut connection, 4, b"next");
    scene.put(&[acknowledgement, next]);
    join(clock);
    let delayed = scene.clock();
    delayed(Duration::from_secs(1));
    scene.until_acknowledged(&connection, |_, _| ());
    delayed(Duration::from_secs(60));
    let last = scene.data(&mut connection, 4, b"last");
    scene.put(&[last]);
    delayed(Duration::from_secs(1));
    scene.until_acknowledged(&connection, |_, data| assert!(data.is_empty(), "a stale timer has sent data again (G8)"));
    scene.stack.call(&connection.socket.target(), Call::Abort(tcp::Abort));
    scene.end();
}

/// A stack with data in flight in both directions is switched to another architecture and back, while a caller sleeps
/// until data arrives: no data is lost (G9).
pub fn switched(arch: Architecture, ends: Ends) {
    let mut scene = Scene::start(arch, ends, |device| device);
    let mut connection = scene.open(2000);
    write(&scene.stack, &connection.socket, b"one");
    let other = if arch == Architecture::reference() { "msgp:2" } else { "giant" };
    let other: Architecture = other.parse().expect("an architecture");
    for (turn, to) in [other, arch].into_iter().enumerate() {
        let frame = scene.data(&mut connection, 0, if turn == 0 { b"first" } else { b"again" });
        scene.put(&[frame]);
        scene.switch(to);
        let (stack, socket) = (scene.stack.clone(), connection.socket.clone());
        let reader = caller(move || assert!(matches!(&read(&stack, &socket, 5)[..], b"first" | b"again")));
        join(reader);
    }
    write(&scene.stack, &connection.socket, b"two");
    let first = connection.first;
    let mut sent = [0; 6];
    while sent != *b"onetwo" {
        let (at, data) = scene.expect(|header, data| {
            (!data.is_empty()).then(|| (header.seq.0.wrapping_sub(first) as usize, data.to_vec()))
        });
        sent[at..at + data.len()].copy_from_slice(&data);
    }
    scene.stack.call(&connection.socket.target(), Call::Abort(tcp::Abort));
    scene.end();
}

/// A caller aborts a connection while its peer sends on it.
pub fn abort(arch: Architecture, ends: Ends) {
    let mut scene = Scene::start(arch, ends, |device| device);
    scene.strays = true;
    let mut connection = scene.open(2000);
    let (stack, target) = (scene.stack.clone(), connection.socket.target());
    let aborts = caller(move || drop(stack.call(&target, Call::Abort(tcp::Abort))));
    let frames = [b"some", b"more"].map(|data| scene.data(&mut connection, 0, data));
    scene.put(&frames);
    join(aborts);
    connection.socket.ready.wait(Readiness::CLOSED, None);
    scene.end();
}

/// A listener closes while peers connect: once `close` has returned, no cell accepts a peer. `closes` is called before.
pub fn close(arch: Architecture, ends: Ends, closes: fn()) {
    const CELLS: usize = 4;
    let mut scene = Scene::start(arch, ends, |device| device);
    scene.strays = true;
    let cell = |port: u16| scene.stack.flow((ends.dst, PORT).into(), (ends.src, port).into()).index(CELLS);
    let ports: Vec<u16> =
        (0..CELLS).map(|wanted| (3000..).find(|port| cell(*port) == wanted).expect("a port")).collect();
    let (stack, listener) = (scene.stack.clone(), scene.listener.clone());
    closes();
    let closing = caller(move || stack.unlisten(&listener));
    scene.send_syn(2000);
    join(closing);
    for port in ports {
        assert_eq!(scene.send_syn(port), None, "a peer was let in after the listener had closed");
    }
    scene.end();
}
