//! Flooded frames under each exclusion: which ports share the buffer of a frame, which get a copy, and which get nothing.
//! A test refuses the allocations that must not happen.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bridge::{FdbConfig, PortConfig, PortNumber, Vid};
use dev::{Capabilities, Device, NotTransmitted, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use observe::{DropReason, Time};
use pktbuf::{Checksum, PktBuf, SharedBuf};
use switch::{
    BridgeWorker, Configure, Generic, GenericConfig, InterruptKind, SharedBridge, SharedConfig, Sharing, Work,
};
use sync::Real;
use testbed::frames::Frame;
use wire::ethernet::{self, MacAddr};

/// What a device does with the frames that it transmits.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// Reads them, as a TAP does.
    Reads,
    /// Passes them on, as a link in memory does.
    Owns,
}

/// A frame as a device has got it.
struct Sent {
    /// Of its first byte.
    address: usize,
    bytes: Vec<u8>,
    checksum: Checksum,
    /// The frame itself, of a device that owns it.
    kept: Option<PktBuf>,
}

#[derive(Default)]
struct Lines {
    arriving: VecDeque<PktBuf>,
    sent: Vec<Sent>,
    room: usize,
}

/// A device for which the test makes the frames; it sees those that are sent.
struct Station {
    capabilities: Capabilities,
    queue: StationQueue,
}

#[derive(Clone)]
struct StationQueue {
    lines: Arc<Mutex<Lines>>,
    uses: Use,
}

impl StationQueue {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().expect("no panic")
    }

    fn ids(&self) -> Vec<u8> {
        self.lines().sent.iter().map(|sent| sent.bytes[14]).collect()
    }
}

impl Device for Station {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let half = || self.queue.clone();
        vec![QueuePair { rx: Box::new(half()), tx: Box::new(half()) }]
    }
}

impl RxQueue for StationQueue {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let mut lines = self.lines();
        let count = max.min(lines.arriving.len());
        batch.extend(lines.arriving.drain(..count));
        count
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> WaitOutcome {
        WaitOutcome::TimedOut
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Nobody)
    }
}

impl TxQueue for StationQueue {
    fn credit(&self) -> usize {
        self.lines().room
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        let mut lines = self.lines();
        if lines.room == 0 {
            return Err(frame);
        }
        lines.room -= 1;
        let (address, bytes, checksum) = (frame.as_ptr().addr(), frame.to_vec(), frame.meta().checksum);
        lines.sent.push(Sent { address, bytes, checksum, kept: (self.uses == Use::Owns).then_some(frame) });
        Ok(())
    }

    fn transmit_shared(&mut self, frame: SharedBuf) -> Result<(), NotTransmitted> {
        if self.uses == Use::Owns {
            return dev::transmit_own(self, frame);
        }
        let mut lines = self.lines();
        if lines.room == 0 {
            return Err(NotTransmitted::NoRoom(frame));
        }
        lines.room -= 1;
        let (address, bytes, checksum) = (frame.as_ptr().addr(), frame.to_vec(), frame.meta().checksum);
        lines.sent.push(Sent { address, bytes, checksum, kept: None });
        Ok(())
    }

    fn flush(&mut self) {}
}

struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

/// A bridge with one of the exclusions, polled by the test.
enum Bridge {
    Generic(Box<Generic<Real>>),
    Shared(Arc<SharedBridge<Real>>, Box<BridgeWorker<Real>>),
}

impl Bridge {
    fn new(sharing: Option<Sharing>) -> Bridge {
        let Some(sharing) = sharing else {
            return Bridge::Generic(Box::new(Generic::new(GenericConfig::default())));
        };
        let (fdb, work, interrupts) = (FdbConfig::default(), Work::Drain, InterruptKind::Msix);
        let config = SharedConfig { sharing, fdb, work, workers: 1, interrupts };
        let shared = SharedBridge::new(config).expect("a doorbell");
        let worker = BridgeWorker::begin(&shared, 0).expect("it has not begun");
        Bridge::Shared(shared, Box::new(worker))
    }

    fn configure(&mut self, change: impl FnOnce(&mut dyn Configure)) {
        match self {
            Bridge::Generic(generic) => change(generic.bridge_mut()),
            Bridge::Shared(shared, _) => shared.configure(change),
        }
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        match self {
            Bridge::Generic(generic) => generic.counters().snapshot().dropped(reason),
            Bridge::Shared(shared, _) => shared.counters().dropped(reason),
        }
    }
}

/// A bridge with its ports, of which port 0 receives.
struct Bench {
    bridge: Bridge,
    ports: Vec<StationQueue>,
}

const NOW: Time = Time::from_secs(1);
const ALL: [Option<Sharing>; 3] = [None, Some(Sharing::Mpsafe), Some(Sharing::Rcu)];

impl Bench {
    /// With ports of these uses, behind port 0.
    fn new(sharing: Option<Sharing>, uses: &[Use]) -> Bench {
        let mut bench = Bench { bridge: Bridge::new(sharing), ports: Vec::new() };
        bench.add(Use::Reads, true);
        uses.iter().for_each(|uses| bench.add(*uses, true));
        bench
    }

    fn add(&mut self, uses: Use, tx_checksum: bool) {
        let queue = StationQueue { lines: Arc::new(Mutex::new(Lines { room: 64, ..Lines::default() })), uses };
        let n = self.ports.len();
        let capabilities = Capabilities { tx_checksum, ..Capabilities::ethernet(station(n as u8), 1500) };
        let (mut device, name) = (Station { capabilities, queue: queue.clone() }, format!("port{n}"));
        let added = match &mut self.bridge {
            Bridge::Generic(generic) => generic.add_port(&name, &mut device, PortConfig::default(), NOW),
            Bridge::Shared(shared, _) => shared.add_port(&name, &mut device, PortConfig::default(), NOW),
        };
        added.expect("a port");
        self.ports.push(queue);
        self.rest();
    }

    /// Polls until nothing moves.
    fn rest(&mut self) {
        match &mut self.bridge {
            Bridge::Generic(generic) => while generic.poll(NOW) > 0 {},
            Bridge::Shared(shared, worker) => {
                while worker.poll(NOW) > 0 {
                    shared.keep_house(NOW);
                }
            }
        }
    }

    /// These frames arrive together by port 0, while `buffers` allocations succeed and no more. Returns how many allocations
    /// were refused.
    fn receive(&mut self, frames: impl IntoIterator<Item = PktBuf>, buffers: u64) -> u64 {
        self.ports[0].lines().arriving.extend(frames);
        pktbuf::refuse(buffers, u64::MAX);
        self.rest();
        let refused = u64::MAX - pktbuf::refusals_left();
        pktbuf::refuse(0, 0);
        refused
    }

    /// The only frame that a port has sent.
    fn only(&self, port: usize) -> Sent {
        let mut lines = self.ports[port].lines();
        assert_eq!(lines.sent.len(), 1, "frames by port {port}");
        lines.sent.remove(0)
    }

    /// Teaches the bridge that a station is behind a port.
    fn learn(&mut self, port: usize) {
        self.ports[port].lines().arriving.push_back(frame(MacAddr::BROADCAST, station(port as u8), 0));
        self.rest();
        if let Bridge::Shared(shared, _) = &self.bridge {
            shared.keep_house(NOW);
        }
        self.ports.iter().for_each(|port| port.lines().sent.clear());
    }
}

fn station(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn frame(dst: MacAddr, src: MacAddr, id: u8) -> PktBuf {
    let mut payload = [0x11; 50];
    payload[0] = id;
    PktBuf::from_slice(&Frame::experiment(src, dst, &payload).bytes()).expect("a buffer")
}

fn broadcast(id: u8) -> PktBuf {
    frame(MacAddr::BROADCAST, station(0), id)
}

#[test]
fn ports_that_only_read_share_the_buffer_that_arrived() {
    for sharing in ALL {
        let mut bench = Bench::new(sharing, &[Use::Reads; 5]);
        bench.learn(0);
        let before = pktbuf::balance();
        let frame = broadcast(1);
        let (address, bytes) = (frame.as_ptr().addr(), frame.to_vec());
        assert_eq!(bench.receive([frame], 0), 0, "{sharing:?}: a buffer was allocated");
        for port in 1..=5 {
            let sent = bench.only(port);
            assert_eq!((sent.address, sent.bytes), (address, bytes.clone()), "{sharing:?}, port {port}");
        }
        assert_eq!(bench.bridge.dropped(DropReason::NoBuffer), 0);
        assert_eq!(pktbuf::balance(), before, "{sharing:?}: the buffer is released once");
    }
}

#[test]
fn a_port_that_needs_another_tag_or_the_checksum_gets_a_copy() {
    for sharing in ALL {
        let mut bench = Bench::new(sharing, &[Use::Reads; 3]);
        bench.add(Use::Reads, false);
        bench.add(Use::Reads, true);
        let vid = Vid::new(10).expect("a VLAN");
        bench.bridge.configure(|bridge| {
            bridge.set_filtering(true);
            for port in 0..6 {
                let number = PortNumber::new(port).expect("a small number");
                // Port 2 is tagged.
                assert!(bridge.join(vid, number, port != 2));
                bridge.configure(number, &mut |config| config.pvid = Some(vid));
            }
        });
        bench.learn(0);
        let open = || {
            let mut frame = broadcast(1);
            frame.meta_mut().checksum = Checksum::Partial { start: 20, offset: 6 };
            frame
        };
        let frame = open();
        let (address, bytes) = (frame.as_ptr().addr(), frame.to_vec());
        assert_eq!(bench.receive([frame], 2), 0, "{sharing:?}: more than two copies");
        for port in [1, 3, 5] {
            let sent = bench.only(port);
            assert_eq!((sent.address, &sent.bytes), (address, &bytes), "{sharing:?}, port {port}");
            assert_eq!(sent.checksum, Checksum::Partial { start: 20, offset: 6 });
        }
        let tagged = bench.only(2);
        let tag = ethernet::vlan_tag(&tagged.bytes).expect("a tag");
        assert_eq!((tag.id, &tagged.bytes[16..]), (10, &bytes[12..]), "{sharing:?}");
        assert_eq!(tagged.checksum, Checksum::Partial { start: 24, offset: 6 });
        let complete = bench.only(4);
        let mut expected = bytes.clone();
        let sum = pktbuf::sum(&bytes[20..]).finish_udp();
        expected[26..28].copy_from_slice(&sum.to_be_bytes());
        assert_eq!((complete.bytes, complete.checksum), (expected, Checksum::None), "{sharing:?}");
        // Without buffers, only these two ports go without.
        bench.receive([open()], 0);
        let got: Vec<usize> = (1..6).filter(|port| !bench.ports[*port].lines().sent.is_empty()).collect();
        assert_eq!((got, bench.bridge.dropped(DropReason::NoBuffer)), (vec![1, 3, 5], 2), "{sharing:?}");
    }
}

#[test]
fn a_device_that_passes_frames_on_gets_one_of_its_own() {
    for sharing in ALL {
        let mut bench = Bench::new(sharing, &[Use::Owns, Use::Owns, Use::Reads, Use::Owns]);
        bench.learn(0);
        let frame = broadcast(1);
        let (address, bytes) = (frame.as_ptr().addr(), frame.to_vec());
        assert_eq!(bench.receive([frame], 3), 0, "{sharing:?}");
        let mut sent: Vec<Sent> = (1..5).map(|port| bench.only(port)).collect();
        // Whatever one receiver writes, the others have what was sent.
        for at in [0, 1, 3] {
            let kept = sent[at].kept.as_mut().expect("it owns the frame");
            assert_eq!(kept[..], bytes[..], "{sharing:?}, port {}", at + 1);
            kept.fill(0xee);
        }
        assert_eq!((sent[2].address, &sent[2].bytes), (address, &bytes), "{sharing:?}");
        drop(sent);
        // Without buffers: by then the last owner is the only one.
        bench.receive([broadcast(2)], 0);
        let got: Vec<usize> = (1..5).filter(|port| !bench.ports[*port].lines().sent.is_empty()).collect();
        let one = got.iter().filter(|port| **port != 3).count();
        assert!(got.contains(&3) && one == 1, "{sharing:?}: {got:?}");
        assert_eq!(bench.bridge.dropped(DropReason::NoBuffer), 2, "{sharing:?}");
    }
}

#[test]
fn a_full_device_loses_its_part_of_a_flooded_frame_only() {
    for sharing in ALL {
        let mut bench = Bench::new(sharing, &[Use::Reads, Use::Owns, Use::Reads, Use::Owns]);
        bench.learn(0);
        [1, 2].into_iter().for_each(|port| bench.ports[port].lines().room = 0);
        bench.receive([broadcast(1)], 4);
        let ids: Vec<Vec<u8>> = bench.ports[1..].iter().map(StationQueue::ids).collect();
        assert_eq!(ids, [vec![], vec![], vec![1], vec![1]], "{sharing:?}");
        let dropped = [DropReason::TxRingFull, DropReason::NoBuffer].map(|reason| bench.bridge.dropped(reason));
        assert_eq!(dropped, [2, 0], "{sharing:?}");
    }
}

#[test]
fn flooded_frames_keep_their_place_between_others() {
    for sharing in ALL {
        let mut bench = Bench::new(sharing, &[Use::Reads, Use::Owns, Use::Reads]);
        (0..3).for_each(|port| bench.learn(port));
        let to = |port: u8, id| frame(station(port), station(0), id);
        let batch = || {
            [broadcast(1), to(1, 2), to(1, 3), broadcast(4), broadcast(5), to(2, 6), to(1, 7), broadcast(8), to(1, 9)]
        };
        bench.receive(batch(), 64);
        let ids = |bench: &Bench| bench.ports[1..].iter().map(StationQueue::ids).collect::<Vec<_>>();
        let whole = [vec![1, 2, 3, 4, 5, 7, 8, 9], vec![1, 4, 5, 6, 8], vec![1, 4, 5, 8]];
        assert_eq!(ids(&bench), whole, "{sharing:?}");
        // A device with little room takes the first frames.
        bench.ports.iter().for_each(|port| *port.lines() = Lines { room: 3, ..Lines::default() });
        bench.receive(batch(), 64);
        assert_eq!(ids(&bench), whole.map(|ids| ids[..3].to_vec()), "{sharing:?}");
        assert_eq!(bench.bridge.dropped(DropReason::TxRingFull), 5 + 2 + 1, "{sharing:?}");
    }
}
