//! One frame through a bridge, to be counted: a station behind port 0 sends to one behind port 1, both known. One thread, a
//! fixed time, devices in memory, so that every run executes the same instructions.
//!
//! `frame EXCLUSION ROUNDS STATIONS` forwards ROUNDS times a burst of 64-byte frames in each direction and prints how many frames
//! that were. STATIONS are behind each port; they send in turn, each to its counterpart.
//! Exactly the polls of the bridge run inside [`counted`]: under `cargo xtask instructions --bridge`, callgrind
//! collects in that function only, and the instructions of a frame by function are written into `docs/bridge.md`.

use std::process::ExitCode;
use std::sync::Arc;

use bridge::{FdbConfig, PortConfig};
use dev::mem::{self, MemConfig};
use dev::{Device, QueuePair};
use observe::Time;
use pktbuf::PktBuf;
use switch::{
    BridgeExclusion, BridgeWorker, Generic, GenericConfig, InterruptKind, SharedBridge, SharedConfig, Sharing,
};
use sync::Real;

/// Frames in the ring when the bridge polls: a vector.
const BURST: usize = 32;
/// Rounds that are not counted, besides those in which each station sends once: pools and tables grow.
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
    Worker(Arc<SharedBridge<Real>>, Box<BridgeWorker<Real>>),
}

impl Polled {
    fn poll(&mut self) -> usize {
        match self {
            Polled::Generic(generic) => generic.poll(NOW),
            Polled::Worker(_, worker) => worker.poll(NOW),
        }
    }

    /// The addresses that are in the table, after the housekeeper has learned those that were posted.
    fn learned(&self) -> usize {
        match self {
            Polled::Generic(generic) => generic.bridge().table().len(),
            Polled::Worker(shared, _) => {
                shared.keep_house(NOW);
                shared.look(|bridge, _| bridge.entries().len())
            }
        }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let exclusion = words.next().and_then(|name| name.parse::<BridgeExclusion>().ok());
    let [rounds, stations] = [(); 2].map(|()| words.next().and_then(|number| number.parse::<usize>().ok()));
    let (Some(exclusion), Some(rounds), Some(stations @ 1..=4096)) = (exclusion, rounds, stations) else {
        eprintln!("usage: frame generic|mpsafe|rcu ROUNDS STATIONS, of which there are at most 4096");
        return ExitCode::FAILURE;
    };
    let (near, mut far): (Vec<_>, Vec<_>) = (0..2).map(|_| mem::pair::<Real>(MemConfig::default())).unzip();
    let mut polled = start(exclusion, near);
    let mut wires: Vec<QueuePair> = far.iter_mut().flat_map(Device::take_queues).collect();
    let warm_up = WARM_UP + stations.div_ceil(BURST);
    let (mut frames, mut next) = (0, [0; 2]);
    for round in 0..warm_up + rounds {
        // The stations answer each other, so that both stay known.
        for from in [1, 0] {
            for _ in 0..BURST {
                let frame = PktBuf::from_slice(&frame(from, next[from] % stations));
                next[from] += 1;
                let sent = frame.map(|frame| wires[from].tx.transmit(frame).is_ok());
                assert_eq!(sent, Some(true), "the ring has room");
            }
            if round < warm_up {
                while polled.poll() > 0 {}
            } else {
                frames += counted(|| until_idle(&mut polled));
            }
            let mut came = Vec::new();
            while wires[1 - from].rx.receive(&mut came, BURST) > 0 {}
            assert!(round < warm_up || came.len() == BURST, "every frame is forwarded");
        }
        if round < warm_up {
            assert!(polled.learned() == 2 * stations || round + 1 < warm_up, "all addresses are learned");
        }
    }
    println!("{frames} operations");
    ExitCode::SUCCESS
}

/// A frame from this station behind port `from` to its counterpart.
fn frame(from: usize, number: usize) -> [u8; 60] {
    let station = |port: usize| {
        let [high, low] = (number as u16).to_be_bytes();
        [2, 0, 0, port as u8, high, low]
    };
    let mut bytes = [0; 60];
    bytes[..6].copy_from_slice(&station(1 - from));
    bytes[6..12].copy_from_slice(&station(from));
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes
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
    let fdb = FdbConfig { capacity: 16384, ..FdbConfig::default() };
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
    let worker = BridgeWorker::begin(&shared, 0).expect("the first worker");
    Polled::Worker(shared, Box::new(worker))
}
