//! Connections that a SYN with data opens at once (RFC 7413), as a listener and its user see them: they are accepted
//! early and once, hold their places until the handshake ends, and leave nothing behind however it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use observe::Counter;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use sync::Real;
use tcp::State;
use tcp::config::FastOpenMode;
use testbed::frames::{self, Ends, ISS, Segment, TcpOptions, tcp_of};
use testbed::node::{Node, NodeConfig, received};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;
const REQUEST: &[u8] = b"request";
/// The peer's next sequence number after its SYN with the request.
const NEXT: u32 = ISS.wrapping_add(1 + REQUEST.len() as u32);

/// A listener that takes data in SYNs without cookies, for so many connections at a time, and its peer.
struct Scene {
    node: Node<Real>,
    listener: Arc<ListenerShared<Real>>,
    ends: Ends,
}

impl Scene {
    fn new(arch: Architecture, ends: Ends, limit: usize) -> Scene {
        let mut terms = NodeConfig::new(arch);
        terms.tcp.fast_open = FastOpenMode(FastOpenMode::SERVER | FastOpenMode::SERVER_WITHOUT_COOKIE);
        let mut node = Node::with_known_peer(terms);
        node.exchange(&frames::neighbour_solicitation());
        let listener = node.listen(PORT, 8);
        listener.set_fast_open(limit);
        Scene { node, listener, ends }
    }

    /// The number that the stack expects next, and its own, after a SYN with the request from this port.
    fn syn(&mut self, port: u16) -> (u32, u32) {
        let syn = Segment { data: REQUEST, ..Segment::syn(port, PORT) };
        let answers = self.node.exchange(&syn.frame_over(self.ends));
        let (syn_ack, _) = answers.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
        (syn_ack.ack.0, syn_ack.seq.0.wrapping_add(1))
    }

    /// The peer's next segment after its SYN.
    fn peer(&mut self, port: u16, ack: u32, flags: TcpFlags) -> Vec<Vec<u8>> {
        self.node.exchange(&Segment::ack((port, PORT), NEXT, ack).and(flags).frame_over(self.ends))
    }

    /// Handshakes in progress, connections in the queue, and connections that are open early.
    fn held(&self) -> (usize, usize, usize) {
        let (half_open, waiting) = self.listener.occupancy();
        (half_open, waiting, self.listener.early())
    }

    /// Bytes in the stack's account.
    fn memory(&self) -> u64 {
        self.node.stack.shared().control().memory()
    }

    fn state(&self, socket: &TcpSocket<Real>) -> Option<State> {
        match self.node.call(socket, Call::Status(tcp::Status)) {
            Reply::Status(report) => Some(report.state),
            _ => None,
        }
    }

    fn request(&self, socket: &TcpSocket<Real>) -> Option<(Vec<u8>, bool)> {
        received(self.node.call(socket, Call::Receive(tcp::Receive { max: 100 })))
    }

    /// The user is through with the connection: nothing of it is left, a while later.
    fn leaves_nothing(&mut self, socket: &TcpSocket<Real>) {
        self.node.call(socket, Call::Abort(tcp::Abort));
        self.node.settle();
        let stats = self.node.stack.stats();
        assert_eq!((stats.connections, stats.timers), (0, 0));
    }
}

#[every_arch]
fn an_early_connection_is_accepted_before_its_handshake_ends_and_only_once(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut scene = Scene::new(arch, ends, 4);
        let peers = [2000, 2001, 2002].map(|port| {
            let (acknowledged, ack) = scene.syn(port);
            assert_eq!(acknowledged, NEXT, "the data is taken");
            (port, ack)
        });
        assert_eq!(scene.held(), (0, 3, 3));
        assert!(scene.memory() >= 3 * REQUEST.len() as u64, "{} bytes wait for the user", scene.memory());
        assert!(scene.listener.ready.get().contains(Readiness::ACCEPTABLE));
        let sockets: Vec<_> = std::iter::from_fn(|| scene.listener.accept()).collect();
        assert_eq!((sockets.len(), scene.held()), (3, (0, 0, 3)), "each holds a place until its handshake ends");
        for socket in &sockets {
            assert_eq!(scene.state(socket), Some(State::SynReceived));
            assert_eq!(scene.request(socket), Some((REQUEST.to_vec(), false)));
        }
        assert_eq!(scene.memory(), 0, "all is read");
        // The last first.
        for (left, (port, ack)) in peers.into_iter().enumerate().rev() {
            assert!(scene.peer(port, ack, TcpFlags::NONE).is_empty());
            assert_eq!(scene.held(), (0, 0, left), "{arch}: port {port}");
        }
        assert!(sockets.iter().all(|socket| scene.state(socket) == Some(State::Established)));
        assert!(scene.listener.accept().is_none(), "it was accepted already");
        assert_eq!(scene.node.stack.stats().counters.get(Counter::ConnectionsAccepted), 3);
    }
}

/// A reset keeps its place for a minute, so that an attacker cannot open connections from false addresses without end
/// (RFC 7413 section 5.1).
#[every_arch]
fn an_early_connection_that_is_reset_holds_its_place_for_a_while(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut scene = Scene::new(arch, ends, 1);
        let (_, ack) = scene.syn(2000);
        let socket = scene.listener.accept().expect("it is open");
        assert!(scene.peer(2000, ack, TcpFlags::RST).is_empty());
        assert_eq!((scene.state(&socket), scene.held()), (Some(State::Closed), (0, 0, 1)));
        scene.leaves_nothing(&socket);
        assert_eq!((scene.syn(2001).0, scene.held()), (ISS.wrapping_add(1), (1, 0, 1)), "an ordinary handshake");
        scene.node.clock.advance(Duration::from_secs(61));
        assert_eq!(scene.syn(2002).0, NEXT, "the place is free");
    }
}

/// A peer that never acknowledges the SYN-ACK: the connection is given up, and its place is free at once.
#[every_arch]
fn an_early_connection_that_is_given_up_holds_no_place(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut scene = Scene::new(arch, ends, 1);
        scene.syn(2000);
        let socket = scene.listener.accept().expect("it is open");
        for _ in 0..400 {
            scene.node.clock.advance(Duration::from_millis(500));
            scene.node.settle();
        }
        assert_eq!((scene.state(&socket), scene.held()), (Some(State::Closed), (0, 0, 0)));
        scene.leaves_nothing(&socket);
    }
}

/// The user ends the connection before the handshake has ended: it leaves the table, and its place is free.
#[every_arch]
fn an_early_connection_that_its_user_aborts_holds_no_place(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut scene = Scene::new(arch, ends, 2);
        let sockets = [2000, 2001].map(|port| {
            scene.syn(port);
            scene.listener.accept().expect("it is open")
        });
        scene.node.call(&sockets[1], Call::Abort(tcp::Abort));
        scene.node.settle();
        assert_eq!((scene.held(), scene.node.stack.stats().connections), ((0, 0, 1), 1));
        scene.leaves_nothing(&sockets[0]);
        assert_eq!(scene.held(), (0, 0, 0));
    }
}

/// The cookie that a server gives with its SYN-ACK is for later opens.
#[every_arch]
fn a_cookie_is_learnt_from_the_answer_to_an_open(arch: Architecture) {
    let mode = FastOpenMode(FastOpenMode::CLIENT);
    for ends in Ends::BOTH_FAMILIES {
        let mut terms = NodeConfig::new(arch);
        terms.tcp.fast_open = mode;
        let mut node = Node::<Real>::with_known_peer(terms);
        node.exchange(&frames::neighbour_solicitation());
        let room = |node: &Node<Real>| {
            let now = node.clock.now();
            node.stack.shared().destinations.offer(ends.src, 1460, mode, now).max_data
        };
        let to = SocketAddr::new(ends.src, PORT);
        let socket = node.stack.connect_with(None, &to, &Default::default(), REQUEST).expect("a route");
        let sent = node.settle();
        let (syn, data) = sent.iter().find_map(|frame| tcp_of(frame)).expect("a SYN");
        assert_eq!((data.len(), room(&node)), (0, 0), "no cookie is known yet");
        let answer = Segment::ack((PORT, syn.src_port), ISS, syn.seq.0.wrapping_add(1)).and(TcpFlags::SYN);
        let cookie = TcpOptions::new(&[34, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        node.exchange(&answer.options(cookie).frame_over(ends));
        assert!(socket.ready.get().contains(Readiness::CONNECTED));
        assert!(usize::from(room(&node)) >= REQUEST.len(), "the next SYN may carry data");
    }
}
