//! A second consumer of this crate, without `ip` and `tcp`: a repeater that forwards frames between its two ports, with
//! captures and a rule before it. The frames are of both families, in memory of different homes.

use dev::{Device, QueuePair, mem};
use frames::{Datagram, Ends, Segment};
use observe::{Counters, DropReason};
use path::{Consume, Dirty, Emitter, Frame, Framing, Inspection, Port, Ports, Vector, Verdict, capture};
use pktbuf::{PktBuf, Region, RegionLayout, Released};
use sync::{LockKind, Real};

/// Carries frames between two ports.
struct Other;

impl Consume<Real, ()> for Other {
    fn consume(&mut self, port: usize, frames: &mut Vector, out: &mut Emitter<'_, Real, ()>) {
        out.forward(1 - port, frames);
    }
}

struct Repeater {
    ports: Ports<Real, ()>,
    near: Vec<Box<dyn dev::RxQueue>>,
    inspections: Vec<Inspection<Real>>,
    /// The stations at the far ends of the two links.
    far: Vec<QueuePair>,
    counters: Counters,
}

const RING: usize = 64;

impl Repeater {
    fn new(inspection: impl Fn() -> Inspection<Real>) -> Repeater {
        let (mut ports, mut near, mut far) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..2 {
            let config = mem::MemConfig { ring_frames: RING, ..Default::default() };
            let (mut here, mut there) = mem::pair::<Real>(config);
            let (port, receivers) = Port::open(&mut here, LockKind::Blocking, number).expect("a port with a queue");
            ports.push(port);
            near.extend(receivers);
            far.extend(there.take_queues());
        }
        let inspections = vec![inspection(), inspection()];
        Repeater { ports: Ports::new(ports), near, inspections, far, counters: Counters::new() }
    }

    /// Takes one vector from each port. Returns the frames left for a stack over each.
    fn poll(&mut self) -> [Vec<Frame>; 2] {
        let (mut vector, mut bridged, mut dirty) = (Vector::new(), Vector::new(), Dirty::new());
        let left = [0, 1].map(|port| {
            vector.receive(self.near[port].as_mut(), Framing::Ethernet, true);
            self.inspections[port].inspect(port, &mut vector, &mut bridged, &self.counters);
            Other.consume(port, &mut bridged, &mut Emitter::new(&self.ports, &self.counters, &mut dirty));
            vector.drain().collect()
        });
        self.ports.notify(&mut dirty, |_, _| {});
        assert!(dirty.is_empty() && bridged.is_empty());
        left
    }

    /// A station sends.
    fn send(&mut self, from: usize, frames: Vec<PktBuf>) {
        for frame in frames {
            self.far[from].tx.transmit(frame).expect("room");
        }
        self.far[from].tx.flush();
    }

    /// The frames that a station has received.
    fn received(&mut self, at: usize) -> Vec<PktBuf> {
        let mut batch = Vec::new();
        while self.far[at].rx.receive(&mut batch, RING) > 0 {}
        batch
    }
}

/// Segments and datagrams of both families, `n` of each.
fn traffic(n: u32) -> Vec<Vec<u8>> {
    let of = |ends: Ends| {
        (0..n).flat_map(move |at| {
            let segment = Segment::data((40_000, 80), 1 + 4 * at, 1, b"data");
            [ends.bytes(segment), ends.bytes(Datagram::new(4711, 53, &at.to_be_bytes()))]
        })
    };
    Ends::BOTH_FAMILIES.into_iter().flat_map(of).collect()
}

fn buffer(bytes: &[u8]) -> PktBuf {
    PktBuf::from_slice(bytes).expect("a buffer")
}

/// These bytes in memory of a region.
fn in_region(region: &Region, bytes: &[u8]) -> PktBuf {
    let mut buffer = PktBuf::alloc_in(region.id(), bytes.len()).expect("a buffer of the region");
    assert!(buffer.extend_from_slice(bytes));
    buffer
}

fn bytes(frames: &[PktBuf]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame.to_vec()).collect()
}

#[test]
fn frames_of_any_home_pass_unchanged_in_order_both_ways_and_go_home() {
    const LAYOUT: RegionLayout = RegionLayout { first: 0, stride: 2048, chunk: 2048, count: 64 };
    let regions = [(); 2].map(|()| Region::zeroed(LAYOUT, Released::Free).expect("a region"));
    let mut repeater = Repeater::new(|| Inspection::new(|_: &Frame| Verdict::Bridge));
    let all = traffic(4);
    // Station 0 sends from the heap and from one region in turn, station 1 from the other region.
    let mixed =
        |at: usize, bytes: &Vec<u8>| if at.is_multiple_of(2) { buffer(bytes) } else { in_region(&regions[0], bytes) };
    repeater.send(0, all.iter().enumerate().map(|(at, bytes)| mixed(at, bytes)).collect());
    repeater.send(1, all.iter().map(|bytes| in_region(&regions[1], bytes)).collect());
    assert!(repeater.poll().iter().all(Vec::is_empty), "nothing is for a stack");
    let (at_0, at_1) = (repeater.received(0), repeater.received(1));
    assert_eq!(bytes(&at_0), all);
    assert_eq!(bytes(&at_1), all);
    let homes = |frames: &[PktBuf]| frames.iter().map(PktBuf::region).collect::<Vec<_>>();
    assert_eq!(homes(&at_0), vec![Some(regions[1].id()); all.len()], "no frame was copied");
    let in_turn = [None, Some(regions[0].id())];
    assert_eq!(homes(&at_1), in_turn.iter().cycle().take(all.len()).copied().collect::<Vec<_>>());
    drop((at_0, at_1));
    for region in &regions {
        let counts = region.counts();
        assert_eq!(counts.home, LAYOUT.count as usize, "all buffers of the region are home: {counts:?}");
    }
    assert_eq!(repeater.counters.snapshot().dropped_total(), 0);
}

#[test]
fn captures_share_a_copy_of_every_frame_and_count_what_they_have_no_room_for() {
    const ROOM: usize = 4;
    let mut repeater = Repeater::new(|| Inspection::new(|_: &Frame| Verdict::Bridge));
    let ((wide, mut all), (narrow, mut few)) = (capture(RING), capture(ROOM));
    let rule =
        |frame: &Frame| if frame.headers.is_udp() { Verdict::Drop(DropReason::NotForUs) } else { Verdict::Bridge };
    repeater.inspections[0] = Inspection::new(rule).with_capture(wide).with_capture(narrow);
    let sent = traffic(2);
    repeater.send(0, sent.iter().map(|bytes| buffer(bytes)).collect());
    repeater.poll();
    let (wide, narrow): (Vec<_>, Vec<_>) =
        (std::iter::from_fn(|| all.take()).collect(), std::iter::from_fn(|| few.take()).collect());
    let seen = |captured: &[path::CapturedFrame]| captured.iter().map(|one| one.frame.to_vec()).collect::<Vec<_>>();
    assert_eq!(seen(&wide), sent, "also what the rule drops");
    assert_eq!(seen(&narrow), sent[..ROOM]);
    for (one, other) in narrow.iter().zip(&wide) {
        assert_eq!(one.frame.as_ptr(), other.frame.as_ptr(), "one copy for both");
        assert_eq!((one.headers, one.port), (path::Headers::of_frame(&one.frame), 0));
    }
    let datagrams = sent.len() / 2;
    assert_eq!(repeater.counters.dropped(DropReason::CaptureFull), (sent.len() - ROOM) as u64);
    assert_eq!(repeater.counters.dropped(DropReason::NotForUs), datagrams as u64);
    assert_eq!(repeater.received(1).len(), sent.len() - datagrams);
    // A capture that has lost its reader costs nothing, and drops nothing.
    drop((all, few));
    repeater.send(0, sent.iter().map(|bytes| buffer(bytes)).collect());
    repeater.poll();
    assert_eq!(repeater.counters.dropped(DropReason::CaptureFull), (sent.len() - ROOM) as u64);
}

#[test]
fn a_rule_parts_what_is_for_the_stack_from_what_is_for_the_bridge() {
    // Four segments in a row: the bridge gets the second, both get the fourth.
    let verdicts = [Verdict::Stack, Verdict::Bridge, Verdict::Stack, Verdict::StackAndBridge];
    for ends in Ends::BOTH_FAMILIES {
        let mut repeater = Repeater::new(Inspection::transparent);
        let mut at = 0;
        repeater.inspections[1] = Inspection::new(move |_: &Frame| {
            at += 1;
            verdicts[at - 1]
        });
        let sent: Vec<_> = (0..4).map(|n| ends.bytes(Segment::data((1, 2), 1 + n, 1, b"x"))).collect();
        repeater.send(1, sent.iter().map(|bytes| buffer(bytes)).collect());
        repeater.send(0, sent.iter().map(|bytes| buffer(bytes)).collect());
        let [all, some] = repeater.poll();
        let of =
            |frames: &[Frame]| frames.iter().map(|frame| (frame.buffer.to_vec(), frame.followed)).collect::<Vec<_>>();
        let whole = [(0, true), (1, true), (2, true), (3, false)];
        assert_eq!(of(&all), whole.map(|(n, followed)| (sent[n].clone(), followed)), "without a rule");
        // The first is not followed any more: its successor went to the bridge.
        let parted = [(0, false), (2, true), (3, false)];
        assert_eq!(of(&some), parted.map(|(n, followed)| (sent[n].clone(), followed)));
        assert_eq!(bytes(&repeater.received(0)), [sent[1].clone(), sent[3].clone()]);
    }
}

#[test]
fn what_is_forwarded_to_a_port_that_has_vanished_is_counted() {
    let mut repeater = Repeater::new(|| Inspection::new(|_: &Frame| Verdict::Bridge));
    repeater.ports[1].set_down(true);
    let sent = traffic(1);
    repeater.send(0, sent.iter().map(|bytes| buffer(bytes)).collect());
    repeater.poll();
    assert_eq!(repeater.counters.dropped(DropReason::InterfaceDown), sent.len() as u64);
    assert!(repeater.received(1).is_empty());
}
