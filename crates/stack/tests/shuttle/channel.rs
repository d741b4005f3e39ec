//! The channel between a connection's user and its owner: both write a word and then read the other's.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::net::IpAddr;
use std::sync::Arc;

use stack::flow::Flow;
use stack::socket::channel::{Channel, OwnerEnd, channel};
use stack::socket::{Readiness, TcpSocket};
use sync::{Atomic, Condvar, Lock, LockClass, LockKind, Ordering, Platform, ThreadClass};
use tcp::Received;

fn ends<P: Platform>() -> (Arc<TcpSocket<P>>, Channel<P>, OwnerEnd<P>) {
    let address = IpAddr::from([10, 0, 0, 1]);
    let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 1, remote_port: 2 };
    let socket = TcpSocket::new(Flow { tuple, hash: 0 });
    let (user, owner) = channel(&socket);
    (socket, user, owner)
}

/// A user that finds the ring empty, clears readiness and sleeps, while the owner puts an item in. Readiness is left
/// from an item that has been taken. A sleep here ends only by a wake-up, so a lost one is a deadlock.
pub fn item_while_falling_asleep<P: Platform>() {
    let (socket, user, mut owner) = ends::<P>();
    socket.ready.raise(Readiness::READABLE);
    let waits = socket.clone();
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        while user.take(1, &mut Received::default()).is_none() {
            if user.is_exhausted(&waits) {
                waits.ready.wait(Readiness::READABLE, None);
            }
        }
    });
    owner.put(Received { end: true, ..Received::default() });
    owner.publish();
    socket.ready.raise(Readiness::READABLE);
    P::join(caller).expect("the caller ends well");
}

/// The owner finds the ring full while its user empties it: the owner sees the room, or the user sees that it must
/// notify the owner.
pub fn room_while_looking<P: Platform>() {
    let (_socket, user, mut owner) = ends::<P>();
    while owner.has_room() {
        owner.put(Received::default());
    }
    // The flag of that check is cleared: the test looks for the next one.
    owner.take_back();
    let told = Arc::new(P::AtomicBool::new(false));
    let tells = told.clone();
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        let taken = user.take(usize::MAX, &mut Received::default()).expect("the ring is full");
        tells.store(taken.more, Ordering::Relaxed);
    });
    let seen = owner.has_room();
    P::join(caller).expect("the caller ends well");
    assert!(seen || told.load(Ordering::Relaxed), "nobody was told");
}

/// The user's message to the owner of [`asked_while_room_comes`].
#[derive(PartialEq)]
enum Mail {
    None,
    Asks,
    Ends,
}

/// A user without a grant asks for room and sleeps, while an acknowledgement makes room. The socket is writable from before.
pub fn asked_while_room_comes<P: Platform>() {
    let (socket, user, mut owner) = ends::<P>();
    socket.ready.raise(Readiness::WRITABLE);
    let queue = Lock::<Mail, P>::new(LockKind::Blocking, LockClass::Handoff, Mail::None);
    let mailbox = Arc::new((queue, Condvar::<P>::new()));
    let (waits, sends) = (socket.clone(), mailbox.clone());
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        let send = |mail| {
            *sends.0.lock() = mail;
            sends.1.notify_one();
        };
        let ask = || {
            send(Mail::Asks);
            true
        };
        while user.reserve(1) == 0 {
            assert!(user.await_room(&waits, ask), "the message is sent");
            waits.ready.wait(Readiness::WRITABLE, None);
        }
        send(Mail::Ends);
    });
    // Nobody has asked yet, so the acknowledgement makes nothing writable.
    owner.grant(1);
    loop {
        let mut mail = mailbox.0.lock();
        while *mail == Mail::None {
            mail = mailbox.1.wait(mail);
        }
        let ends = std::mem::replace(&mut *mail, Mail::None) == Mail::Ends;
        drop(mail);
        if ends {
            break;
        }
        socket.ready.raise(Readiness::WRITABLE);
    }
    P::join(caller).expect("the caller ends well");
}
