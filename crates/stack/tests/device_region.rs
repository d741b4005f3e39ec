//! A device that requires frames in its own memory gets them there: TCP makes its segments in the device's region, and
//! in the heap while the region has no free chunk.

use dev::{Capabilities, Device, QueuePair};
use every_arch::every_arch;
use pktbuf::{PktBuf, Region, RegionId, RegionLayout, Released};
use stack::Architecture;
use stack::call::Reply;
use sync::Real;
use testbed::frames::{self, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};

const LAYOUT: RegionLayout = RegionLayout { first: 64, stride: 2111, chunk: 2048, count: 6 };

/// A device with a region.
struct WithRegion {
    inner: Box<dyn Device>,
    capabilities: Capabilities,
}

impl Device for WithRegion {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn take_queues(&mut self) -> Vec<QueuePair> {
        self.inner.take_queues()
    }
}

/// The frames with data that the stack has sent, in their memory.
fn with_data(node: &mut Node<Real>) -> Vec<PktBuf> {
    let mut sent = Vec::new();
    while node.driver.poll() > 0 {}
    while node.far.rx.receive(&mut sent, 64) > 0 {}
    sent.retain(|frame| tcp_of(frame).is_some_and(|(_, data)| !data.is_empty()));
    sent
}

fn homes(frames: &[PktBuf]) -> Vec<Option<RegionId>> {
    frames.iter().map(PktBuf::region).collect()
}

#[every_arch]
fn segments_are_made_where_the_device_wants_them(arch: Architecture) {
    let region = Region::zeroed(LAYOUT, Released::Free).expect("the layout is sound");
    let mut node = Node::<Real>::with_device(NodeConfig::new(arch), |inner| {
        let capabilities = Capabilities { region: Some(region.id()), ..inner.capabilities().clone() };
        Box::new(WithRegion { inner, capabilities })
    });
    node.put(&frames::arp_request());
    node.settle();
    let listener = node.listen(80, 8);
    let answers = node.exchange(&Segment::syn(2000, 80).frame());
    let theirs = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
    node.exchange(&Segment::ack((2000, 80), frames::ISS + 1, theirs).frame());
    let socket = listener.accept().expect("a child waits");
    assert_eq!(region.counts().home, 6, "all frames were dropped and are home");

    let say = |node: &Node<Real>, bytes: usize| {
        assert!(matches!(node.call(&socket, send(&vec![7; bytes])), Reply::Sent(Ok(_))));
    };
    say(&node, 1000);
    let first = with_data(&mut node);
    assert_eq!(homes(&first), [Some(region.id()); 2], "two segments of 536 bytes at most");
    assert!(first.iter().all(|frame| frame.offset_in_region().is_some_and(|at| at >= 64)));

    // The other side keeps its chunks; when none is free the heap is used, and the device copies.
    let kept: Vec<PktBuf> = std::iter::from_fn(|| PktBuf::alloc_in(region.id(), 1)).collect();
    say(&node, 536);
    let second = with_data(&mut node);
    assert_eq!(homes(&second), [None]);

    drop((first, kept));
    say(&node, 536);
    let third = with_data(&mut node);
    assert_eq!(homes(&third), [Some(region.id())], "chunks that came home are used again");
    drop(third);
    drop((node, second));
    assert!(region.unregister().is_ok(), "a chunk was left behind");
}
