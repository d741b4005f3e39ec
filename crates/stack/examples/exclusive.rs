//! The overhead of `up` over a plain function call: the same segments given to a cell directly, and through the
//! architecture.
//!
//! `exclusive direct N` and `exclusive trait N` run N data segments into one connection whose user reads them;
//! `cargo xtask exclusive` counts the instructions of both under callgrind and prints the ratio.

use std::net::IpAddr;
use std::sync::Arc;

use dev::Device;
use observe::Time;
use pktbuf::PktBuf;
use stack::arch::RunningArchitecture;
use stack::arch::select::{self, Architecture, ThreadConfig};
use stack::call::{ArrivingSegment, Call, ControlRequest, Ingress, Reply};
use stack::connections::{Arrivals, Calls, Upkeep};
use stack::deferred::DeferredEffects;
use stack::flow::{Flow, Target};
use stack::place::connection::connections;
use stack::place::{Cell, Contents};
use stack::shared::Shared;
use stack::socket::ListenerShared;
use stack::{InterfaceConfig, Stack, StackConfig};
use sync::Real;
use wire::checksum::pseudo_header;
use wire::tcp::{Header, Options, TcpFlags};
use wire::{FourTuple, SeqNumber};

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const REMOTE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const DATA: usize = 1448;

/// The two ways into a cell.
enum Way {
    Direct(Box<Cell<Real>>),
    Trait(Arc<dyn RunningArchitecture<Real>>),
}

impl Way {
    #[inline(never)]
    fn post(&mut self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<Real>) {
        match self {
            Way::Direct(cell) => cell.ingress(ingress, now, deferred),
            Way::Trait(arch) => arch.post(ingress, now, deferred),
        }
    }

    /// A user's call, which reads the clock, as any caller must, and performs all effects.
    fn call(&mut self, target: &Target, mut call: Call<Real>, shared: &Shared<Real>) -> Reply {
        let mut reply = Reply::Gone;
        match self {
            Way::Direct(cell) => {
                let mut deferred = DeferredEffects::default();
                cell.call(target, &mut call, shared.clock().now(), &mut deferred, &mut reply);
                deferred.flush(shared.links());
            }
            Way::Trait(arch) => arch.call(target, &mut call, &mut reply),
        }
        reply
    }

    fn control(&mut self, change: ControlRequest<Real>) {
        match self {
            Way::Direct(cell) => cell.control(change, Time::ZERO, &mut DeferredEffects::default()),
            Way::Trait(arch) => arch.control(change),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let count: u32 = arguments.get(2).and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let direct = match arguments.get(1).map(String::as_str) {
        Some("direct") => true,
        Some("trait") => false,
        _ => {
            eprintln!("usage: exclusive direct|trait [SEGMENTS]");
            std::process::exit(2);
        }
    };
    let (ours, mut theirs) = dev::mem::pair::<Real>(dev::mem::MemConfig::default());
    let interface = InterfaceConfig {
        device: Box::new(ours),
        addresses: vec![(LOCAL, 24)],
        gateways: vec![],
        addressing: Default::default(),
    };
    let (stack, drivers) =
        Stack::build(StackConfig::new(Architecture::reference()), vec![interface]).expect("the stack builds");
    let mut far = theirs.take_queues();
    let shared = stack.shared().clone();
    let way = if direct {
        Way::Direct(Box::new(Cell::new(&shared, &connections(), sync::Writers::One)))
    } else {
        let arch = select::build(
            Architecture::reference(),
            &shared,
            ThreadConfig { cpus: 1, own_threads: false },
            Box::new(Contents::empty()),
        );
        arch.tick(shared.clock().now());
        Way::Trait(arch)
    };
    let delivered = run(way, &shared, &mut far[0].rx, count);
    assert_eq!(delivered, u64::from(count) * DATA as u64, "every segment was delivered");
    println!("{count} segments, {delivered} bytes");
    drop(drivers);
}

/// A handshake, then `count` segments, read two by two. Bytes delivered.
fn run(mut way: Way, shared: &Arc<Shared<Real>>, far: &mut Box<dyn dev::RxQueue>, count: u32) -> u64 {
    let local = "10.0.0.1:80".parse().expect("an address");
    let listener = ListenerShared::new(local, (16, 16), Default::default(), shared.links().alarms().clone());
    way.control(ControlRequest::Listen(listener.clone()));
    let now = shared.clock().now();
    let mut deferred = DeferredEffects::default();
    // The neighbour's link address, so that answers need not wait for it.
    let mac = wire::ethernet::MacAddr([2, 0, 0, 0, 0, 9]);
    let arp =
        wire::arp::Packet { op: wire::arp::Operation::Request, sha: mac, spa: REMOTE_V4, tha: mac, tpa: LOCAL_V4 };
    shared.internet().arp_arrives(&mut shared.context(0, &mut deferred), &arp);
    way.post(&mut segment(SeqNumber(0), SeqNumber(0), TcpFlags::SYN, 0), now, &mut deferred);
    let ours = answer(far) + 1;
    way.post(&mut segment(SeqNumber(1), ours, TcpFlags::ACK, 0), now, &mut deferred);
    let socket = listener.accept().expect("the handshake is complete");
    let target = socket.target();
    let (mut seq, mut delivered, mut sink) = (SeqNumber(1), 0, Vec::new());
    for n in 0..count {
        way.post(&mut segment(seq, ours, TcpFlags::ACK, DATA), now, &mut deferred);
        deferred.flush(shared.links());
        seq += DATA as u32;
        if n % 2 == 1 || n + 1 == count {
            let call = Call::Receive(tcp::Receive { max: 1 << 20 });
            if let Reply::Received(Ok(received)) = way.call(&target, call, shared) {
                delivered += received.data.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
            }
            far.receive(&mut sink, 64);
            sink.clear();
        }
    }
    delivered
}

const LOCAL_V4: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 0, 0, 1);
const REMOTE_V4: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 0, 0, 2);

/// A segment of the peer, as the receive path posts it.
fn segment(seq: SeqNumber, ack: SeqNumber, flags: TcpFlags, data: usize) -> Ingress {
    let header = Header {
        src_port: 4711,
        dst_port: 80,
        seq,
        ack,
        flags,
        window: 65_535,
        urgent: 0,
        header_len: 20,
        options: Options::NONE,
    };
    let mut buffer = PktBuf::alloc(data).expect("a buffer");
    buffer.append(data).fill(7);
    let length = header.emitted_len();
    header.emit(buffer.push_front(length));
    let sum = pseudo_header(REMOTE, LOCAL, wire::protocol::TCP, buffer.len() as u32).add(pktbuf::sum(&buffer));
    buffer[16..18].copy_from_slice(&sum.finish().to_be_bytes());
    let tuple = FourTuple { local_addr: LOCAL, remote_addr: REMOTE, local_port: 80, remote_port: 4711 };
    let flow = Flow { tuple, hash: 1 };
    let segment = tcp::Segment::parse(LOCAL, REMOTE, buffer, tcp::Verify::Now).expect("a good segment");
    Ingress::Segment(ArrivingSegment { hash: flow.hash, segment: Some(segment) })
}

/// The sequence number of the last TCP segment that the stack has sent.
fn answer(far: &mut Box<dyn dev::RxQueue>) -> SeqNumber {
    let mut frames = Vec::new();
    far.receive(&mut frames, 64);
    let last = frames.iter().rev().find(|frame| frame.len() > 54 && frame[23] == wire::protocol::TCP);
    let frame = last.expect("the stack has answered the SYN");
    wire::tcp::parse(&frame[34..]).expect("a good segment").seq
}
