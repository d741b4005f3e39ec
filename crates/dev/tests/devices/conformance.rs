//! The devices of this crate keep the contract, and the conformance test finds every mistake, each injected into a
//! device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dev::conformance::{Conformance, ContractRule};
use dev::fault::{Fault, FaultPlan, PlatformClock};
use dev::mem::{MemConfig, MemDevice, pair};
use dev::pcap::CaptureDevice;
use dev::{
    BitSet, Capabilities, Device, Framing, LateSums, NotTransmitted, Notify, QueuePair, RxQueue, TxQueue, WaitOutcome,
    Wake, transmit_own,
};
use observe::Counters;
use pktbuf::{Checksum, PktBuf, SharedBuf};
use sync::Real;
use wire::ethernet::MacAddr;

/// Every kind of linked pair.
fn kinds() -> Vec<MemConfig> {
    let plain = MemConfig::default();
    let offloads = MemConfig { checksum_offload: true, segmentation: Some(65_535), ..plain.clone() };
    let kinds = [
        plain.clone(),
        MemConfig { queues: 4, ..plain.clone() },
        MemConfig { mtu: 68, ring_frames: 8, ..plain.clone() },
        MemConfig { mtu: 9000, ..offloads.clone() },
        MemConfig { coalescing: true, ..offloads },
    ];
    let bare = kinds.clone().map(|kind| MemConfig { framing: Framing::Packet, ..kind });
    let fddi = kinds.clone().map(|kind| MemConfig { framing: Framing::Fddi, ..kind });
    kinds.into_iter().chain(bare).chain(fddi).chain([MemConfig::fddi()]).collect()
}

#[test]
fn linked_pairs_keep_the_contract() {
    for kind in kinds() {
        Conformance::new(|| pair::<Real>(kind.clone())).check().unwrap_or_else(|said| panic!("{kind:?}: {said}"));
    }
}

#[test]
fn a_device_with_no_faults_keeps_the_contract() {
    for kind in kinds() {
        let faulty =
            |device: MemDevice| Fault::new(Box::new(device), FaultPlan::default(), PlatformClock::<Real>::default());
        let make = || {
            let (a, b) = pair::<Real>(kind.clone());
            (faulty(a), faulty(b))
        };
        Conformance::new(make).check().unwrap_or_else(|said| panic!("{kind:?}: {said}"));
    }
}

#[test]
fn a_device_that_is_recorded_keeps_the_contract() {
    for kind in kinds() {
        let make = || {
            let (a, b) = pair::<Real>(kind.clone());
            (CaptureDevice::new(Box::new(a), std::io::sink()), b)
        };
        Conformance::new(make).check().unwrap_or_else(|said| panic!("{kind:?}: {said}"));
    }
}

#[test]
fn a_device_whose_frames_are_summed_late_keeps_the_contract() {
    for kind in kinds() {
        let make = || {
            let (a, b) = pair::<Real>(kind.clone());
            (LateSums::<Real>::around(Box::new(a)), b)
        };
        assert!(make().0.capabilities().tx_checksum, "it computes checksums");
        Conformance::new(make).check().unwrap_or_else(|said| panic!("{kind:?}: {said}"));
    }
}

/// A mistake of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    OneQueueTooFew,
    QueuesTwice,
    NoAddress,
    FlipsAByte,
    CutsTheEnd,
    SendsTwice,
    Loses,
    Swaps,
    TakesMore,
    SaysMore,
    EmptiesTheBatch,
    PromisesMore,
    ChangesWhatItRefuses,
    SwallowsWhatItRefuses,
    TurnsWhatItRefuses,
    LosesWhatOthersHold,
    TakesWhatOthersHold,
    CarriesLong,
    LosesLongUncounted,
    GivesLongBack,
    Vouches,
    ForgetsTheChecksum,
    LosesAPiece,
    NeverReady,
    AlwaysReady,
    ReadyOnce,
    ForgetsWakes,
    AddsWakes,
    SleepsThroughFlush,
    SleepsThroughTheNotifier,
    GoneAtOnce,
    GoneTooEarly,
    SleepsWhenGone,
}

/// Each mistake with the rule that it breaks.
const MISTAKES: &[(Mistake, ContractRule)] = &[
    (Mistake::OneQueueTooFew, ContractRule::Capabilities),
    (Mistake::QueuesTwice, ContractRule::Capabilities),
    (Mistake::NoAddress, ContractRule::Capabilities),
    (Mistake::FlipsAByte, ContractRule::Intact),
    (Mistake::CutsTheEnd, ContractRule::Intact),
    (Mistake::SendsTwice, ContractRule::Intact),
    (Mistake::Loses, ContractRule::Intact),
    (Mistake::Swaps, ContractRule::Order),
    (Mistake::TakesMore, ContractRule::Batch),
    (Mistake::SaysMore, ContractRule::Batch),
    (Mistake::EmptiesTheBatch, ContractRule::Batch),
    (Mistake::PromisesMore, ContractRule::Room),
    (Mistake::ChangesWhatItRefuses, ContractRule::Room),
    (Mistake::SwallowsWhatItRefuses, ContractRule::Room),
    (Mistake::TurnsWhatItRefuses, ContractRule::Room),
    (Mistake::LosesWhatOthersHold, ContractRule::Shared),
    (Mistake::TakesWhatOthersHold, ContractRule::Shared),
    (Mistake::CarriesLong, ContractRule::Size),
    (Mistake::LosesLongUncounted, ContractRule::Size),
    (Mistake::GivesLongBack, ContractRule::Size),
    (Mistake::Vouches, ContractRule::Checksum),
    (Mistake::ForgetsTheChecksum, ContractRule::Checksum),
    (Mistake::LosesAPiece, ContractRule::Segmentation),
    (Mistake::NeverReady, ContractRule::Wait),
    (Mistake::AlwaysReady, ContractRule::Wait),
    (Mistake::ReadyOnce, ContractRule::Wait),
    (Mistake::ForgetsWakes, ContractRule::Wake),
    (Mistake::AddsWakes, ContractRule::Wake),
    (Mistake::SleepsThroughFlush, ContractRule::Notify),
    (Mistake::SleepsThroughTheNotifier, ContractRule::Notify),
    (Mistake::GoneAtOnce, ContractRule::Gone),
    (Mistake::GoneTooEarly, ContractRule::Gone),
    (Mistake::SleepsWhenGone, ContractRule::Gone),
    (Mistake::Loses, ContractRule::Threads),
    (Mistake::Swaps, ContractRule::Threads),
];

/// A linked pair with one mistake. Its frames are 1500 bytes; with [`Mistake::CarriesLong`] it accepts longer ones.
struct Flawed {
    inner: MemDevice,
    capabilities: Capabilities,
    mistake: Mistake,
}

fn flawed(mistake: Mistake) -> (Flawed, Flawed) {
    let long = [Mistake::CarriesLong, Mistake::LosesLongUncounted, Mistake::GivesLongBack].contains(&mistake);
    let config = MemConfig {
        mtu: if long { 9000 } else { 1500 },
        ring_frames: 64,
        checksum_offload: true,
        segmentation: Some(65_535),
        ..MemConfig::default()
    };
    let (a, b) = pair::<Real>(config);
    let flaw = |inner: MemDevice| {
        let mut capabilities = Capabilities { mtu: 1500, ..inner.capabilities().clone() };
        match mistake {
            Mistake::OneQueueTooFew => capabilities.queue_pairs = 2,
            Mistake::NoAddress => capabilities.mac = MacAddr::UNSPECIFIED,
            _ => {}
        }
        Flawed { inner, capabilities, mistake }
    };
    (flaw(a), flaw(b))
}

impl Device for Flawed {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        "flawed"
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let mistake = self.mistake;
        let mut queues = self.inner.take_queues();
        if queues.is_empty() && mistake == Mistake::QueuesTwice {
            queues = pair::<Real>(MemConfig::default()).0.take_queues();
        }
        let flaw = |pair: QueuePair| QueuePair {
            tx: Box::new(FlawedTx { tx: pair.tx, mistake, sent: 0, held: None }),
            rx: Box::new(FlawedRx { rx: pair.rx, mistake, received: 0, waits: 0, woken: false }),
        };
        queues.into_iter().map(flaw).collect()
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        self.inner.counters()
    }
}

struct FlawedTx {
    tx: Box<dyn TxQueue>,
    mistake: Mistake,
    sent: usize,
    held: Option<PktBuf>,
}

impl FlawedTx {
    /// The mistakes that concern frames longer than the MTU; `None`: it is not one.
    fn long(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        match self.mistake {
            Mistake::LosesLongUncounted => Ok(()),
            Mistake::GivesLongBack => Err(frame),
            _ => self.tx.transmit(frame),
        }
    }
}

impl TxQueue for FlawedTx {
    fn credit(&self) -> usize {
        self.tx.credit() + usize::from(self.mistake == Mistake::PromisesMore)
    }

    fn transmit(&mut self, mut frame: PktBuf) -> Result<(), PktBuf> {
        if frame.len() > 1514 && frame.meta().segment_size == 0 {
            return self.long(frame);
        }
        self.sent += 1;
        let now = self.sent.is_multiple_of(5);
        let last = frame.len() - 1;
        match self.mistake {
            Mistake::FlipsAByte if now => frame[last] ^= 1,
            Mistake::CutsTheEnd if now => frame.truncate(last),
            Mistake::SendsTwice if now => drop(frame.duplicate().map(|twin| self.tx.transmit(twin))),
            Mistake::Loses if now => return Ok(()),
            Mistake::Swaps if now && self.tx.credit() > 1 => {
                self.held = Some(frame);
                return Ok(());
            }
            Mistake::ForgetsTheChecksum => frame.meta_mut().checksum = Checksum::None,
            Mistake::LosesAPiece if frame.meta().segment_size != 0 => frame.truncate(3000),
            _ => {}
        }
        let mut sent = self.tx.transmit(frame);
        if let Some(held) = self.held.take() {
            sent = sent.and(self.tx.transmit(held));
        }
        if let (Mistake::ChangesWhatItRefuses, Err(frame)) = (self.mistake, &mut sent) {
            frame[last] ^= 1;
        }
        sent
    }

    fn transmit_shared(&mut self, frame: SharedBuf) -> Result<(), NotTransmitted> {
        match self.mistake {
            Mistake::LosesWhatOthersHold if !frame.is_unique() => Ok(()),
            Mistake::TakesWhatOthersHold if self.tx.credit() == 0 => Ok(()),
            _ => transmit_own(self, frame),
        }
    }

    fn transmit_batch(&mut self, frames: &mut VecDeque<PktBuf>) {
        while let Some(frame) = frames.pop_front() {
            if let Err(back) = self.transmit(frame) {
                match self.mistake {
                    Mistake::SwallowsWhatItRefuses => {}
                    Mistake::TurnsWhatItRefuses => frames.push_back(back),
                    _ => frames.push_front(back),
                }
                return;
            }
        }
    }

    fn flush(&mut self) {
        if let Some(held) = self.held.take() {
            assert!(self.tx.transmit(held).is_ok(), "there was room");
        }
        if self.mistake == Mistake::SleepsThroughFlush {
            self.tx.take_dirty(&mut BitSet::new());
        } else {
            self.tx.flush();
        }
    }

    fn notifier(&self) -> Option<Arc<dyn Notify>> {
        if self.mistake == Mistake::SleepsThroughTheNotifier { Some(Arc::new(Deaf)) } else { self.tx.notifier() }
    }

    fn take_dirty(&mut self, dirty: &mut BitSet) {
        self.tx.take_dirty(dirty);
    }
}

struct Deaf;

impl Notify for Deaf {
    fn notify(&self, _dirty: &BitSet) {}
}

impl Wake for Deaf {
    fn wake(&self) {}
}

struct FlawedRx {
    rx: Box<dyn RxQueue>,
    mistake: Mistake,
    received: usize,
    waits: usize,
    woken: bool,
}

impl RxQueue for FlawedRx {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        if self.mistake == Mistake::EmptiesTheBatch && max == 2 {
            batch.clear();
        }
        let more = usize::from(self.mistake == Mistake::TakesMore && max == 2);
        let received = self.rx.receive(batch, max + more);
        self.received += received;
        if self.mistake == Mistake::Vouches {
            batch.iter_mut().for_each(|frame| frame.meta_mut().checksum = Checksum::Verified);
        }
        if self.mistake == Mistake::GoneTooEarly && received > 0 {
            self.waits += 1;
        }
        received + usize::from(self.mistake == Mistake::SaysMore && max == 2)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        if self.mistake == Mistake::AddsWakes && std::mem::take(&mut self.woken) {
            return WaitOutcome::Woken;
        }
        let outcome = self.rx.wait(timeout);
        self.woken = outcome == WaitOutcome::Woken;
        self.waits += 1;
        match (self.mistake, outcome) {
            (Mistake::NeverReady, WaitOutcome::Ready) => WaitOutcome::TimedOut,
            (Mistake::AlwaysReady, WaitOutcome::TimedOut) => WaitOutcome::Ready,
            (Mistake::ReadyOnce, WaitOutcome::Ready) if self.waits.is_multiple_of(2) => WaitOutcome::TimedOut,
            (Mistake::SleepsWhenGone, WaitOutcome::Gone) => WaitOutcome::TimedOut,
            _ => outcome,
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        if self.mistake == Mistake::ForgetsWakes { Arc::new(Deaf) } else { self.rx.waker() }
    }

    fn gone(&self) -> bool {
        match self.mistake {
            Mistake::GoneAtOnce => true,
            // As soon as the first of the last frames is taken.
            Mistake::GoneTooEarly => self.rx.gone() || self.received > 1,
            _ => self.rx.gone(),
        }
    }
}

#[test]
fn the_device_that_mistakes_are_planted_into_has_none() {
    Conformance::new(|| flawed(Mistake::None)).check().unwrap();
}

#[test]
fn each_planted_mistake_is_found_by_its_rule() {
    // A short limit, because the awaited event is known not to occur.
    let patience = Duration::from_millis(50);
    for (mistake, rule) in MISTAKES {
        let said = Conformance::new(|| flawed(*mistake)).patience(patience).check_one(*rule);
        let violations = said.expect_err(&format!("{mistake:?} is not found by {rule:?}")).0;
        assert!(violations.iter().all(|violation| violation.rule == *rule), "{violations:?}");
    }
    let unused = ContractRule::ALL.iter().find(|rule| MISTAKES.iter().all(|(_, found)| found != *rule));
    assert_eq!(unused, None, "a rule that no mistake breaks");
}
