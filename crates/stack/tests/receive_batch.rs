//! `StackConfig::receive_batch`: how many frames a driver takes at once.

use std::net::IpAddr;

use dev::mem::{self, MemConfig};
use dev::{Device, TxQueue};
use every_arch::every_arch;
use observe::{Counter, Time};
use pktbuf::PktBuf;
use stack::{Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::Real;
// It has the stack compiled for the real machine, which would be compiled for this test once more otherwise.
use testbed as _;

const FRAMES: usize = 10;

/// A driver whose queue has frames, and the source of the frames.
fn loaded(arch: Architecture, receive_batch: usize) -> (Stack<Real>, Driver<Real>, Box<dyn TxQueue>) {
    let (near, mut far) = mem::pair::<Real>(MemConfig::default());
    let clock = Clock::Virtual(VirtualClock::new(Time::from_secs(1)));
    let config =
        StackConfig { own_threads: false, seed: Some(1), clock, receive_batch, ..StackConfig::<Real>::new(arch) };
    let addresses = vec![(IpAddr::from([10, 0, 0, 1]), 24), (IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]), 64)];
    let addressing = Default::default();
    let interface = InterfaceConfig { device: Box::new(near), addresses, gateways: vec![], addressing };
    let (stack, mut drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
    let mut driver = drivers.pop().expect("a driver");
    // Its thread owns its cells from now on. Deadlines of a cell that has no owner are not known, and it would catch up.
    assert_eq!(driver.poll(), 0);
    let mut tx = far.take_queues().pop().expect("a queue pair").tx;
    for _ in 0..FRAMES {
        // To no address: the stack takes it and drops it.
        let frame = PktBuf::from_slice(&[0; 60]).expect("a buffer");
        assert!(tx.transmit(frame).is_ok(), "there is room");
    }
    tx.flush();
    (stack, driver, tx)
}

#[every_arch]
fn a_driver_takes_so_many_frames_at_once(arch: Architecture) {
    for (receive_batch, expected) in [(1, vec![1; FRAMES]), (3, vec![3, 3, 3, 1]), (64, vec![10]), (0, vec![1; FRAMES])]
    {
        let (_stack, mut driver, _tx) = loaded(arch, receive_batch);
        let taken: Vec<usize> = std::iter::from_fn(|| Some(driver.poll()).filter(|count| *count > 0)).collect();
        assert_eq!(taken, expected, "batches of {receive_batch}");
        let counters = driver.counters().snapshot();
        assert_eq!(counters.get(Counter::RxBatches), expected.len() as u64);
        assert_eq!(counters.get(Counter::FramesIn), FRAMES as u64);
    }
}
