//! Checksums that are checked after the connection has been released (`ChecksumPlacement::After`): a user is never given damaged data,
//! by whichever way it takes data, and the connection ends when some is found. What is sent is summed when nothing is held.

use std::sync::{Arc, Mutex};

use dev::Framing;
use dev::layout::Layout;
use every_arch::every_arch;
use observe::DropReason::{TcpBadChecksum, TcpDamagedLate};
use pktbuf::PktBuf;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::TcpSocket;
use stack::socket::handler::{Conn, ConnectionHandler};
use sync::walk::{WalkStep, record};
use sync::{LockClass, Real};
use tcp::config::ChecksumPlacement;
use testbed::frames::{Checksum, Ends, ISS, Segment, TcpOptions, neighbour_solicitation, tcp_of};
use testbed::node::{Node, NodeConfig, send};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;
const PEER: u16 = 2000;
/// The timestamp option, which the peer sends in each segment, so that the connection has nothing unusual.
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0];
/// Data whose check can wait.
const LONG: usize = 1400;

/// A stack that checks late, and the peer of its one connection.
struct Scene {
    node: Node<Real>,
    ends: Ends,
    /// The peer's next sequence number and acknowledgement.
    seq: u32,
    ack: u32,
}

impl Scene {
    fn new(arch: Architecture, ends: Ends, own_threads: bool) -> Scene {
        let mut config = NodeConfig { own_threads, ..NodeConfig::new(arch) };
        config.tcp.checksum_placement = ChecksumPlacement::After;
        let mut node = Node::with_known_peer(config);
        node.exchange(&neighbour_solicitation());
        Scene { node, ends, seq: ISS, ack: 0 }
    }

    fn connect(&mut self) {
        let options = TcpOptions::new(&[&[2, 4, 0x05, 0x78, 1, 3, 3, 0], &TIMESTAMPS[..]].concat());
        let sent = self.node.exchange(&Segment::syn(PEER, PORT).options(options).frame_over(self.ends));
        let answer = sent.iter().filter_map(|frame| tcp_of(frame)).next_back().expect("a SYN-ACK").0;
        (self.seq, self.ack) = (ISS.wrapping_add(1), answer.seq.0.wrapping_add(1));
        self.node.exchange(&self.segment().frame_over(self.ends));
    }

    /// The peer's next segment, without data.
    fn segment(&self) -> Segment<'static> {
        Segment::ack((PEER, PORT), self.seq, self.ack).options(TcpOptions::new(&TIMESTAMPS))
    }

    /// An accepted connection.
    fn accepted(arch: Architecture, ends: Ends, own_threads: bool) -> (Scene, Arc<TcpSocket<Real>>) {
        let mut scene = Scene::new(arch, ends, own_threads);
        let listener = scene.node.listen(PORT, 4);
        scene.connect();
        let socket = listener.accept().expect("the handshake is complete");
        (scene, socket)
    }

    /// The peer sends data; the header's flags and acknowledgement numbers of the answers.
    fn send(&mut self, data: &[u8], checksum: Checksum) -> Vec<(TcpFlags, u32)> {
        let segment = Segment { data, checksum, ..self.segment() }.and(TcpFlags::PSH);
        self.seq = self.seq.wrapping_add(data.len() as u32);
        let sent = self.node.exchange(&segment.frame_over(self.ends));
        sent.iter().filter_map(|frame| tcp_of(frame)).map(|(header, _)| (header.flags, header.ack.0)).collect()
    }

    fn good(&mut self, data: &[u8]) -> Vec<(TcpFlags, u32)> {
        self.send(data, Checksum::Right)
    }

    fn damaged(&mut self, data: &[u8]) -> Vec<(TcpFlags, u32)> {
        self.send(data, Checksum::OffBy(1))
    }

    /// Data that was dropped when it arrived, and when it was taken.
    fn dropped(&self) -> [u64; 2] {
        let counters = self.node.stack.stats().counters;
        [counters.dropped(TcpBadChecksum), counters.dropped(TcpDamagedLate)]
    }

    /// Whether the stack has reset the connection.
    fn was_reset(&mut self) -> bool {
        let sent = self.node.settle();
        sent.iter().filter_map(|frame| tcp_of(frame)).any(|(header, _)| header.flags.contains(TcpFlags::RST))
    }
}

fn bytes(received: &tcp::Received) -> Vec<u8> {
    received.data.iter().flat_map(|data| data.to_vec()).collect()
}

/// Receives as streams do.
fn receive(scene: &Scene, socket: &TcpSocket<Real>) -> Result<Vec<u8>, tcp::Error> {
    let mut received = tcp::Received::default();
    let taken = scene.node.stack.receive(&socket.target(), tcp::Receive { max: 1 << 16 }, &mut received);
    taken.expect("the connection is there").map(|()| bytes(&received))
}

/// Receives by a call.
fn call(scene: &Scene, socket: &TcpSocket<Real>) -> Result<Vec<u8>, tcp::Error> {
    match scene.node.call(socket, Call::Receive(tcp::Receive { max: 1 << 16 })) {
        Reply::Received(taken) => taken.map(|received| bytes(&received)),
        _ => panic!("the connection is gone"),
    }
}

/// Receives with an application ticket.
fn call_in_order(scene: &Scene, socket: &TcpSocket<Real>) -> Result<Vec<u8>, tcp::Error> {
    match scene.node.call(socket, Call::ReceiveInOrder(tcp::ReceiveInOrder { max: 1 << 16 })) {
        Reply::ReceivedInOrder(taken) => taken.map(|taken| bytes(&taken.received)),
        _ => panic!("the connection is gone"),
    }
}

type Way = fn(&Scene, &TcpSocket<Real>) -> Result<Vec<u8>, tcp::Error>;

const WAYS: [Way; 3] = [receive, call, call_in_order];

/// Data arrives whole, whether its check can wait or not: in order, beside what is queued, short, and to fill a hole.
#[every_arch]
fn good_data_is_delivered(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        for take in WAYS {
            let (mut scene, socket) = Scene::accepted(arch, ends, false);
            let mut sent = Vec::new();
            for (byte, len) in [(1, LONG), (2, 100), (3, 100), (4, LONG), (5, LONG)] {
                let data = vec![byte; len];
                scene.good(&data);
                sent.extend(data);
            }
            let (start, late, first) = (scene.seq, [7; LONG], [6; LONG]);
            scene.seq = start.wrapping_add(LONG as u32);
            scene.good(&late);
            scene.seq = start;
            scene.good(&first);
            sent.extend(first);
            sent.extend(late);
            let mut got = Vec::new();
            while let Ok(data) = take(&scene, &socket) {
                got.extend(data);
            }
            assert_eq!((got, scene.dropped()), (sent, [0, 0]));
        }
    }
}

/// What the knob gives up: damaged data is acknowledged. What it keeps: its user is not given it, nor what follows it, and the
/// connection is reset.
#[every_arch]
fn damaged_data_ends_the_connection_when_it_is_taken(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        for take in WAYS {
            let (mut scene, socket) = Scene::accepted(arch, ends, false);
            scene.good(&[1; LONG]);
            let answers = scene.damaged(&[2; LONG]);
            scene.good(&[3; LONG]);
            assert!(answers.iter().any(|(_, ack)| *ack == ISS.wrapping_add(1 + 2 * LONG as u32)), "{answers:?}");
            assert_eq!(scene.dropped(), [0, 0]);
            assert_eq!(take(&scene, &socket), Ok(vec![1; LONG]), "what came before is good");
            assert_eq!(take(&scene, &socket), Err(tcp::Error::Aborted));
            assert_eq!(take(&scene, &socket), Err(tcp::Error::NotConnected), "the reason is reported once");
            assert!(scene.was_reset());
            assert_eq!(scene.dropped(), [0, 1]);
        }
    }
}

/// Nothing but damaged data: the call that finds it fails.
#[every_arch]
fn a_call_that_finds_only_damaged_data_fails(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        for take in WAYS {
            let (mut scene, socket) = Scene::accepted(arch, ends, false);
            scene.damaged(&[2; LONG]);
            assert_eq!(take(&scene, &socket), Err(tcp::Error::Aborted));
            assert!(scene.was_reset());
            assert_eq!(scene.dropped(), [0, 1]);
        }
    }
}

/// The check of short data, of data that does not begin where the last ended, and of a FIN does not wait: such a segment is dropped,
/// and accepted when it is sent again.
#[every_arch]
fn what_cannot_wait_is_checked_before_it_is_accepted(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut scene, socket) = Scene::accepted(arch, ends, false);
        let start = scene.seq;
        scene.damaged(&[1; 100]);
        scene.seq = start.wrapping_add(100);
        scene.damaged(&[2; LONG]);
        assert_eq!(scene.dropped(), [2, 0]);
        scene.seq = start;
        scene.good(&[1; 100]);
        scene.good(&[2; LONG]);
        assert_eq!(call(&scene, &socket).map(|data| data.len()), Ok(100 + LONG));
        let fin = Segment { data: &[3; LONG], ..scene.segment() }.and(TcpFlags::FIN);
        scene.node.exchange(&Segment { checksum: Checksum::OffBy(1), ..fin }.frame_over(ends));
        assert_eq!(call(&scene, &socket), Err(tcp::Error::WouldBlock));
        scene.node.exchange(&fin.frame_over(ends));
        assert_eq!(call(&scene, &socket), Ok(vec![3; LONG]));
        assert_eq!(scene.dropped(), [3, 0]);
    }
}

/// Data that is looked at is good data only, and stays where it is.
#[every_arch]
fn damaged_data_is_not_shown(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut scene, socket) = Scene::accepted(arch, ends, false);
        scene.good(&[1; LONG]);
        scene.damaged(&[2; LONG]);
        let peek = Call::Peek(tcp::Peek { max: 1 << 16, follows_data: false });
        let Reply::Peeked(Ok(peeked)) = scene.node.call(&socket, peek) else { panic!("there is data") };
        assert_eq!(peeked.data, [1; LONG]);
        assert_eq!(call(&scene, &socket), Ok(vec![1; LONG]));
        assert_eq!(call(&scene, &socket), Err(tcp::Error::Aborted));
    }
}

/// The data that a handler was given, and the outcome of its connection.
type Recorded = (Vec<u8>, Option<Result<(), tcp::Error>>);

/// Records its data, and how it ended.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Recorded>>);

impl ConnectionHandler<Real> for Records {
    fn data(&mut self, _: &mut Conn<'_, Real>, data: PktBuf) {
        self.0.lock().expect("no test panics with it").0.extend_from_slice(&data);
    }

    fn closed(&mut self, _: &mut Conn<'_, Real>, outcome: Result<(), tcp::Error>) {
        self.0.lock().expect("no test panics with it").1 = Some(outcome);
    }
}

/// The locks that the calling thread held whenever it summed a frame to send.
fn held_by_sums(steps: &[WalkStep]) -> Vec<Vec<LockClass>> {
    let (mut held, mut sums): (Vec<LockClass>, _) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            WalkStep::Take(class) => held.push(*class),
            WalkStep::Release(class) => {
                let place = held.iter().rposition(|other| other == class).expect("a lock that was taken");
                held.remove(place);
            }
            WalkStep::Note { text, .. } if text.starts_with("sums a frame") => sums.push(held.clone()),
            _ => {}
        }
    }
    sums
}

/// What is sent leaves with a correct checksum and in order, and is summed by a thread that holds nothing: neither a connection nor the
/// queue of the device. So is the answer to data that arrives.
#[every_arch]
fn what_is_sent_is_summed_when_nothing_is_held(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut scene, socket) = Scene::accepted(arch, ends, false);
        let data: Vec<u8> = (0..4 * LONG).map(|n| (n / 7) as u8).collect();
        let (sent, steps) = record(|| {
            scene.node.call(&socket, send(&data));
            scene.node.settle()
        });
        let payload: Vec<u8> =
            sent.iter().filter_map(|frame| tcp_of(frame)).flat_map(|(_, data)| data.to_vec()).collect();
        assert!(payload.len() >= 2 * LONG && data.starts_with(&payload), "{} bytes", payload.len());
        let held = held_by_sums(&steps);
        assert!(held.len() >= sent.len() && held.iter().all(|held| held.is_empty()), "{held:?}");
        let segment = Segment { data: &[1; LONG], ..scene.segment() }.and(TcpFlags::FIN);
        let (answers, steps) = record(|| scene.node.exchange(&segment.frame_over(ends)));
        assert!(!answers.is_empty() && !held_by_sums(&steps).is_empty(), "the acknowledgement");
        assert!(held_by_sums(&steps).iter().all(|held| held.is_empty()), "{steps:?}");
        for frame in sent.iter().chain(&answers) {
            let frame = PktBuf::from_slice(frame).expect("a packet buffer");
            let layout = Layout::framed(Framing::Ethernet, &frame).expect("a segment");
            assert!(layout.checksum_is_good(&frame));
        }
    }
}

/// A handler is not given damaged data, and learns that the connection has ended.
#[every_arch]
fn a_handler_is_not_given_damaged_data(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut scene, records) = (Scene::new(arch, ends, false), Records::default());
        let (given, any) = (records.clone(), "[::]:80".parse().expect("an address"));
        let make = move |_: &_| Box::new(given.clone()) as Box<dyn ConnectionHandler<Real>>;
        let listener =
            scene.node.stack.listen_with_handlers(any, 8, Default::default(), make).expect("the port is free");
        scene.connect();
        scene.good(&[1; LONG]);
        let answers = scene.damaged(&[2; LONG]);
        let reset = answers.iter().any(|(flags, _)| flags.contains(TcpFlags::RST)) || scene.was_reset();
        let (data, outcome) = records.0.lock().expect("no test panics with it").clone();
        assert_eq!((data, outcome, reset), (vec![1; LONG], Some(Err(tcp::Error::Aborted)), true));
        assert_eq!(scene.dropped(), [0, 1]);
        scene.node.stack.unlisten(&listener);
    }
}

/// Nor is the user of a channel.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2, layer))]
fn damaged_data_does_not_pass_a_channel(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut scene, socket) = Scene::accepted(arch, ends, true);
        let channel = scene.node.stack.open_channel(&socket).expect("another thread owns the connection");
        scene.good(&[1; LONG]);
        scene.damaged(&[2; LONG]);
        let mut got = Vec::new();
        let failed = loop {
            let mut received = tcp::Received::default();
            let event = tcp::Receive { max: 1 << 16 };
            match scene.node.stack.receive_over(&channel, &socket, event, &mut received).expect("it is there") {
                Ok(()) => {
                    got.extend(bytes(&received));
                    assert!(got == [1; LONG], "damaged data was delivered");
                }
                Err(tcp::Error::WouldBlock) => drop(scene.node.settle()),
                Err(error) => break error,
            }
        };
        assert_eq!((got, failed), (vec![1; LONG], tcp::Error::Aborted));
        assert_eq!(scene.dropped(), [0, 1]);
    }
}
