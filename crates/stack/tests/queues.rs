//! Packets other than TCP also leave by the device queue of their flow: datagrams, their fragments, and packets that
//! waited for a neighbour. None overtakes another of its flow.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use dev::{Capabilities, Device, QueuePair, TxQueue, mem};
use pktbuf::PktBuf;
use stack::{Addressing, Architecture, InterfaceConfig, Stack, StackConfig};
use sync::Real;
use testbed::frames::{PEER, STACK, arp_reply, is_arp};
use wire::{ethernet, ipv4};

const QUEUES: usize = 4;
const L3: usize = ethernet::HEADER_LEN;

/// Every frame sent, with the queue it was given to.
type Log = Arc<Mutex<Vec<(usize, Vec<u8>)>>>;

struct Logged(mem::MemDevice, Log);

impl Device for Logged {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn name(&self) -> &str {
        self.0.name()
    }
    fn take_queues(&mut self) -> Vec<QueuePair> {
        let log = &self.1;
        let logged = |(index, pair): (usize, QueuePair)| QueuePair {
            rx: pair.rx,
            tx: Box::new(LoggedTx { inner: pair.tx, index, log: log.clone() }),
        };
        self.0.take_queues().into_iter().enumerate().map(logged).collect()
    }
}

struct LoggedTx {
    inner: Box<dyn TxQueue>,
    index: usize,
    log: Log,
}

impl TxQueue for LoggedTx {
    fn credit(&self) -> usize {
        self.inner.credit()
    }
    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        let copy = frame.to_vec();
        self.inner.transmit(frame)?;
        self.log.lock().expect("nobody panicked").push((self.index, copy));
        Ok(())
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
}

#[test]
fn datagrams_and_their_fragments_leave_by_their_flows_queue() {
    let (near, mut far) = mem::pair::<Real>(mem::MemConfig { queues: QUEUES, ..Default::default() });
    let log = Log::default();
    let device = Box::new(Logged(near, log.clone()));
    let addresses = vec![(STACK.into(), 24)];
    let interface = InterfaceConfig { device, addresses, gateways: vec![], addressing: Addressing::default() };
    let mut config = StackConfig::<Real>::new(Architecture::named("giant"));
    config.seed = Some(3);
    let (stack, mut drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
    let mut far = far.take_queues();

    let sockets: Vec<_> = (0..32u16)
        .map(|n| stack.bind_udp(SocketAddr::new(IpAddr::V4(STACK), 4000 + n)).expect("a free port"))
        .collect();
    // The first packet of each waits for the peer's link address; one is large.
    for (n, socket) in sockets.iter().enumerate() {
        for len in [8, 8, 4000] {
            let payload = PktBuf::from_slice(&vec![n as u8; len]).expect("a buffer");
            stack.send_udp(socket, payload, Some(SocketAddr::new(PEER.into(), 99))).expect("sent");
        }
    }
    let question = log.lock().expect("nobody panicked").iter().find_map(|(_, frame)| arp_reply(frame)).expect("asked");
    far[0].tx.transmit(PktBuf::from_slice(&question).expect("a buffer")).expect("room");
    far[0].tx.flush();
    for driver in &mut drivers {
        driver.poll();
    }

    let sent = log.lock().expect("nobody panicked").clone();
    let mut used = [false; QUEUES];
    for (n, socket) in sockets.iter().enumerate() {
        let flow = stack.flow(socket.local(), SocketAddr::new(PEER.into(), 99));
        let own = flow.index(QUEUES);
        used[own] = true;
        let of_flow: Vec<_> =
            sent.iter().filter(|(_, frame)| !is_arp(frame) && frame.last() == Some(&(n as u8))).collect();
        // The queue of a neighbour is bounded: the remaining packets of a flow are in order and on one device queue.
        assert!(of_flow.iter().all(|(queue, _)| *queue == own), "flow {n}");
        let offsets = of_flow.iter().map(|(_, frame)| ipv4::parse(&frame[L3..]).expect("IPv4").fragment_offset);
        let fragments: Vec<u16> = offsets.filter(|offset| *offset > 0).collect();
        assert!(fragments.is_sorted(), "flow {n}: {fragments:?}");
    }
    assert_eq!(used, [true; QUEUES], "32 flows reach every queue");
    assert!(sent.iter().filter(|(_, frame)| !is_arp(frame)).count() >= 60, "{} frames", sent.len());
}
