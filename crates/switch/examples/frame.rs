//! One frame through a bridge, to be counted: a station behind port 0 sends to one behind port 1, both known. One thread, a
//! fixed time, devices in memory, so that every run executes the same instructions.
//!
//! `frame EXCLUSION ROUNDS` forwards ROUNDS times a burst of 64-byte frames and prints how many frames that were.
//! Exactly the polls of the bridge run inside [`counted`]: under `cargo xtask instructions --bridge`, callgrind
//! collects in that function only, and the instructions of a frame by function are written into `docs/bridge.md`.

use std::process::ExitCode;

use bridge::{FdbConfig, PortConfig};
use dev::mem::{self, MemConfig};
use dev::{Device, QueuePair};
use observe::Time;
use pktbuf::PktBuf;
use switch::{
    BridgeExclusion, BridgeWorker, Generic, GenericConfig, InterruptKind, SharedBridge, SharedConfig, Sharing,
};
use sync::Real;
use wire::ethernet::MacAddr;

/// Frames in the ring when the bridge polls: a vector.
const BURST: usize = 32;
/// Rounds that are not counted: addresses are learned, and pools and tables grow.
const WARM_UP: usize = 16;
const NOW: Time = Time::from_secs(1);

/// The work that is counted.
#[inline(never)]
fn counted<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// A bridge that this thread polls.
enum Polled {
    Generic(Box<Generic<Real>>),
    Worker(Box<BridgeWorker<Real>>),
}

impl Polled {
    fn poll(&mut self) -> usize {
        match self {
            Polled::Generic(generic) => generic.poll(NOW),
            Polled::Worker(worker) => worker.poll(NOW),
        }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let exclusion = words.next().and_then(|name| name.parse::<BridgeExclusion>().ok());
    let rounds = words.next().and_then(|rounds| rounds.parse::<usize>().ok());
    let (Some(exclusion), Some(rounds)) = (exclusion, rounds) else {
        eprintln!("usage: frame generic|mpsafe|rcu ROUNDS");
        return ExitCode::FAILURE;
    };
    let (near, mut far): (Vec<_>, Vec<_>) = (0..2).map(|_| mem::pair::<Real>(MemConfig::default())).unzip();
    let mut polled = start(exclusion, near);
    let mut wires: Vec<QueuePair> = far.iter_mut().flat_map(Device::take_queues).collect();
    let stations = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let mut frames = 0;
    for round in 0..WARM_UP + rounds {
        // The stations answer each other, so that both stay known.
        for from in [1, 0] {
            for _ in 0..BURST {
                let mut bytes = [stations[1 - from].0, stations[from].0].concat();
                bytes.extend([0x88, 0xb5]);
                bytes.resize(60, 0);
                let sent = PktBuf::from_slice(&bytes).map(|frame| wires[from].tx.transmit(frame).is_ok());
                assert_eq!(sent, Some(true), "the ring has room");
            }
            if round < WARM_UP {
                while polled.poll() > 0 {}
            } else {
                frames += counted(|| until_idle(&mut polled));
            }
            let mut came = Vec::new();
            while wires[1 - from].rx.receive(&mut came, BURST) > 0 {}
            assert!(round < WARM_UP || came.len() == BURST, "every frame is forwarded");
        }
    }
    println!("{frames} operations");
    ExitCode::SUCCESS
}

/// Polls until nothing arrives; returns how many frames did.
fn until_idle(polled: &mut Polled) -> usize {
    let mut frames = 0;
    loop {
        match polled.poll() {
            0 => return frames,
            taken => frames += taken,
        }
    }
}

fn start(exclusion: BridgeExclusion, devices: Vec<mem::MemDevice>) -> Polled {
    let work = exclusion.usual_work();
    let fdb = FdbConfig::default();
    let sharing = match exclusion {
        BridgeExclusion::Generic => {
            let mut generic = Generic::new(GenericConfig { work, ..GenericConfig::default() });
            for (number, mut device) in devices.into_iter().enumerate() {
                let added = generic.add_port(&format!("port{number}"), &mut device, PortConfig::default(), NOW);
                assert!(added.is_ok(), "a port");
            }
            return Polled::Generic(Box::new(generic));
        }
        BridgeExclusion::Mpsafe => Sharing::Mpsafe,
        BridgeExclusion::Rcu => Sharing::Rcu,
    };
    let config = SharedConfig { sharing, fdb, work, workers: 1, interrupts: InterruptKind::Msix };
    let shared = SharedBridge::<Real>::new(config).expect("descriptors");
    for (number, mut device) in devices.into_iter().enumerate() {
        let added = shared.add_port(&format!("port{number}"), &mut device, PortConfig::default(), NOW);
        assert!(added.is_ok(), "a port");
    }
    // Addresses posted under `rcu` must be learned; no other thread does it here.
    for n in [1, 2] {
        let key = bridge::FdbKey::new(MacAddr([2, 0, 0, 0, 0, n]), None);
        let port = bridge::PortNumber::new(u16::from(n) - 1).expect("a small number");
        assert!(shared.configure(|bridge| bridge.set_fixed(key, port, false, NOW)), "a static entry");
    }
    Polled::Worker(Box::new(BridgeWorker::begin(&shared, 0).expect("the first worker")))
}
