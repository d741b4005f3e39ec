//! Network cards: wire rate, rings, interrupts and their moderation, transmit completions.

mod bridges;

use std::net::IpAddr;
use std::time::Duration;

use dev::peer::PeerConfig;
use dev::{Device, QueuePair, WaitOutcome};
use pktbuf::PktBuf;
use sync::{Platform, ThreadClass};
use vsmp::card::{Card, CardConfig, CardTotals};
use vsmp::{Arena, Costs, Machine, Outcome, Vsmp};
use wire::arp::Operation;

#[global_allocator]
static ARENA: Arena = Arena::new();

const GAP: u64 = 125_000;
const CLIENT: u64 = 60_000;

fn config() -> CardConfig {
    CardConfig {
        queues: 1,
        ring: 64,
        megabits: 1000,
        dma: 2_000,
        latency: 10_000,
        interrupt_gap: GAP,
        client_delay: CLIENT,
        mtu: 1500,
        segmentation: None,
    }
}

fn client() -> PeerConfig {
    PeerConfig::new(IpAddr::from(frames::STACK))
}

/// A question that the client answers: its address, by ARP.
fn question() -> PktBuf {
    PktBuf::from_slice(&frames::arp(Operation::Request, frames::PEER_MAC, frames::PEER)).expect("a buffer")
}

/// Frames that the client drops, of this length.
fn noise(len: usize) -> PktBuf {
    PktBuf::from_slice(&vec![0; len]).expect("a buffer")
}

fn with_card<R: 'static>(
    config: CardConfig,
    body: impl FnOnce(QueuePair, &dyn Fn() -> CardTotals) -> R + Send + 'static,
) -> (R, Outcome) {
    Machine::new(2, Costs::opteron_275()).run(move || {
        let mut card = Card::new("card", config, client());
        let totals = card.totals();
        body(card.take_queues().pop().expect("a pair"), &totals)
    })
}

fn sleep(nanos: u64) {
    Vsmp::futex_wait(&Default::default(), 0, Some(Duration::from_nanos(nanos)));
}

/// A frame of 1514 bytes takes 1538 on the wire with preamble, checksum and gap: 12.304 microseconds at a gigabit.
#[test]
fn frames_leave_at_the_rate_of_the_wire() {
    let (waited, _) = with_card(config(), |QueuePair { mut tx, .. }, _| {
        let start = Vsmp::now();
        for _ in 0..64 {
            assert!(tx.transmit(noise(1514)).is_ok(), "there is room");
        }
        assert_eq!(tx.credit(), 0, "the ring is full");
        assert!(tx.transmit(noise(1514)).is_err());
        while tx.credit() < 64 {
            sleep(1_000);
        }
        Vsmp::now() - start
    });
    let expected = 64 * 12_304 + 2_000;
    assert!((expected..expected + 20_000).contains(&waited), "{waited} ns for {expected}");
}

/// The client's answer arrives after wire, delay and wire, with an interrupt that ends the driver's sleep.
#[test]
fn an_answer_interrupts_its_driver() {
    let ((outcome, waited, frames), machine) = with_card(config(), |QueuePair { mut tx, mut rx }, totals| {
        let start = Vsmp::now();
        assert!(tx.transmit(question()).is_ok());
        let outcome = rx.wait(Some(Duration::from_millis(5)));
        let waited = Vsmp::now() - start;
        let mut batch = Vec::new();
        rx.receive(&mut batch, 64);
        assert_eq!((totals().interrupts, totals().received), (1, 1));
        (outcome, waited, batch.len())
    });
    assert_eq!((outcome, frames), (WaitOutcome::Ready, 1));
    // The client's delay varies by an eighth; the first interrupt need not keep a distance from an earlier one.
    let least = 2 * 10_000 + CLIENT * 7 / 8;
    assert!((least..least + CLIENT / 4 + 15_000).contains(&waited), "{waited} ns");
    assert_eq!(machine.account.interrupts, 1);
}

/// However many frames come, interrupts keep their distance; none comes while the driver polls.
#[test]
fn interrupts_are_moderated() {
    let (interrupts, _) = with_card(config(), |QueuePair { mut tx, mut rx }, totals| {
        let (start, mut batch) = (Vsmp::now(), Vec::new());
        while Vsmp::now() - start < 10_000_000 {
            let _ = tx.transmit(question());
            rx.wait(Some(Duration::from_micros(50)));
            rx.receive(&mut batch, 64);
        }
        assert!(batch.len() > 100, "{} frames", batch.len());
        totals().interrupts
    });
    assert!((60..=10_000_000 / GAP + 1).contains(&interrupts), "{interrupts} in 10 ms");
}

/// Frames that a driver leaves when it waits are a reason for the next interrupt.
#[test]
fn frames_that_are_left_interrupt_again() {
    let (totals, _) = with_card(config(), |QueuePair { mut tx, mut rx }, totals| {
        (0..3).for_each(|_| assert!(tx.transmit(question()).is_ok()));
        let mut batch = Vec::new();
        for taken in 1..=3 {
            assert_eq!(rx.wait(Some(Duration::from_millis(1))), WaitOutcome::Ready);
            rx.receive(&mut batch, 1);
            assert_eq!(batch.len(), taken);
        }
        assert_eq!(rx.wait(Some(Duration::from_millis(1))), WaitOutcome::TimedOut, "nothing is left");
        totals()
    });
    assert_eq!((totals.received, totals.interrupts), (3, 3));
}

/// Frames that arrive at a fixed rate do so whether or not earlier ones are taken.
#[test]
fn arrivals_do_not_wait_for_room() {
    let (totals, _) = Machine::new(2, Costs::opteron_275()).run(|| {
        let card = Card::new("card", config(), client());
        card.arrivals()(&noise(60), 100_000);
        sleep(10_000_000);
        (card.totals())()
    });
    assert_eq!(totals.received, 64, "what the ring holds");
    assert!((850..1150).contains(&(totals.received + totals.lost)), "{totals:?} in 10 ms, of 100 000 a second");
}

/// A ring that no thread empties loses further frames, and counts them.
#[test]
fn a_full_receive_ring_loses_frames() {
    let (totals, _) = with_card(config(), |QueuePair { mut tx, rx: _rx }, totals| {
        for _ in 0..100 {
            while tx.transmit(question()).is_err() {
                sleep(10_000);
            }
        }
        sleep(5_000_000);
        totals()
    });
    assert_eq!((totals.sent, totals.received, totals.lost), (100, 64, 36));
}

/// The thread that polls a queue frees what was sent by it: that thread's CPU has the buffers then.
#[test]
fn the_driver_takes_back_what_was_sent() {
    let (travelled, _) = with_card(config(), |QueuePair { mut tx, mut rx }, _| {
        let frames: Vec<PktBuf> = (0..32).map(|_| noise(1000)).collect();
        let addresses: Vec<usize> = frames.iter().map(|frame| frame.as_ptr().addr()).collect();
        frames.into_iter().for_each(|frame| assert!(tx.transmit(frame).is_ok()));
        sleep(1_000_000);
        let driver = Vsmp::spawn("driver", Some(1), ThreadClass::Receive, move || {
            rx.receive(&mut Vec::new(), 64);
            // From its own magazine: the latest that it freed.
            let again: Vec<PktBuf> = (0..32).map(|_| noise(1000)).collect();
            let known = again.iter().filter(|frame| addresses.contains(&frame.as_ptr().addr())).count();
            assert_eq!(known, 32, "buffers that it has taken back");
        });
        Vsmp::join(driver).is_ok()
    });
    assert!(travelled);
}
