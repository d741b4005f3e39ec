//! Work that a user's call creates while the receive thread sleeps: the thread is woken if it would sleep beyond the
//! time of that work, and not otherwise.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dev::Wake;
use every_arch::every_arch;
use observe::Time;
use pktbuf::PktBuf;
use stack::Architecture;
use stack::call::Reply;
use stack::socket::TcpSocket;
use sync::Real;
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};

const PORTS: (u16, u16) = (2000, 80);

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stack with a receive thread that sleeps while the test makes calls.
struct Scene {
    node: Node<Real>,
    ends: Ends,
    bell: Arc<Bell>,
}

impl Scene {
    fn new(arch: Architecture, ends: Ends) -> Scene {
        Scene::of(NodeConfig::new(arch), ends)
    }

    fn of(terms: NodeConfig, ends: Ends) -> Scene {
        let mut node = Node::<Real>::with_known_peer(terms);
        node.exchange(&frames::neighbour_solicitation());
        let bell = Arc::new(Bell::default());
        node.stack.shared().links().alarms().add_wakers(0, std::iter::once(bell.clone() as Arc<dyn Wake>));
        Scene { node, ends, bell }
    }

    fn connection(&mut self) -> Arc<TcpSocket<Real>> {
        let listener = self.node.listen(PORTS.1, 4);
        let answers = self.node.exchange(&Segment::syn(PORTS.0, PORTS.1).frame_over(self.ends));
        let ack = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        self.node.exchange(&Segment::ack(PORTS, ISS.wrapping_add(1), ack).frame_over(self.ends));
        listener.accept().expect("a child waits")
    }

    /// Whether the receive thread, which sleeps until `until`, is woken by `work`.
    fn wakes(&mut self, until: Time, work: impl FnOnce(&Node<Real>)) -> bool {
        let alarms = self.node.stack.shared().links().alarms();
        let before = self.bell.0.load(Ordering::Relaxed);
        assert_eq!(alarms.park(0, || until), until);
        work(&self.node);
        let after = self.bell.0.load(Ordering::Relaxed);
        alarms.unpark(0);
        self.node.settle();
        after > before
    }
}

/// The retransmission timer of the data is due 200 ms later at the earliest.
#[every_arch]
fn data_that_is_sent_wakes_a_thread_that_would_sleep_beyond_its_timer(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        for (sleeps, woken) in [(Duration::from_millis(1), false), (Duration::from_secs(3600), true)] {
            let mut scene = Scene::new(arch, ends);
            let socket = scene.connection();
            let until = scene.node.clock.now() + sleeps;
            let found =
                scene.wakes(until, |node| assert!(matches!(node.call(&socket, send(b"text")), Reply::Sent(Ok(_)))));
            assert_eq!(found, woken, "{arch}: it sleeps for {sleeps:?}");
        }
    }
}

/// Protocol threads run the timers of their connections themselves.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2, layer))]
fn data_that_is_sent_wakes_no_receive_thread_for_a_protocol_threads_timer(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut scene = Scene::of(NodeConfig { own_threads: true, ..NodeConfig::new(arch) }, ends);
        let socket = scene.connection();
        let sends = |node: &Node<Real>| assert!(matches!(node.call(&socket, send(b"text")), Reply::Sent(Ok(_))));
        assert!(!scene.wakes(Time::MAX, sends), "{arch}");
        assert_eq!(scene.node.stack.stats().timers, 1, "it is armed");
    }
}

/// The link address of a neighbour is asked for again after a second.
#[every_arch]
fn a_question_for_a_neighbour_wakes_a_thread_that_would_sleep_beyond_its_repetition(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let unknown: IpAddr =
            if ends.src.is_ipv4() { [10, 0, 0, 99].into() } else { "fd00::99".parse().expect("an address") };
        for (sleeps, woken) in [(Duration::from_millis(1), false), (Duration::from_secs(3600), true)] {
            let mut scene = Scene::new(arch, ends);
            let socket = scene.node.stack.bind_udp(SocketAddr::new(ends.dst, 4000)).expect("the port is free");
            let until = scene.node.clock.now() + sleeps;
            let found = scene.wakes(until, |node| {
                let payload = PktBuf::from_slice(b"text").expect("a packet buffer");
                assert_eq!(node.stack.send_udp(&socket, payload, Some(SocketAddr::new(unknown, 9))), Ok(4));
            });
            assert_eq!(found, woken, "{arch}: it sleeps for {sleeps:?}");
        }
    }
}
