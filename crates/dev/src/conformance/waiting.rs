//! Rules about waiting, waking, vanishing and threads.
//!
//! A wait without a timeout runs on a thread of its own, which reports over a channel: a device that never returns is
//! then a finding instead of a hang. The thread is leaked in that case.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use pktbuf::PktBuf;

use super::link::{Arrived, End, Findings, TestFlow, frame, number};
use crate::{BitSet, QueuePair, RxQueue, WaitOutcome};

/// Any flow.
const FLOW: TestFlow = TestFlow { v6: false, port: 44_000 };
/// Frames sent one at a time, each of which must wake a sleeping receiver: enough to find a wake-up that is sometimes
/// lost.
const ROUNDS: u32 = 500;
/// Frames that cross between threads.
const CROSSING: u32 = 20_000;
/// Buffers of a region that are counted.
const COUNTED: usize = 4096;

/// Sends a frame and returns the queue on which it arrived.
fn arrival_queue(from: &mut End, to: &mut End, found: &mut Findings) -> Option<usize> {
    let sent = frame(from, &to.capabilities, FLOW, u32::MAX);
    if !from.send(0, sent, found) {
        return None;
    }
    let queue = to.collect(1, found.patience).first().map(|arrived| arrived.queue);
    found.expect(&to.name, queue.is_some(), "a frame did not arrive");
    queue
}

/// Waits until no frame arrives for a moment.
fn wait_quiet(rx: &mut dyn RxQueue, timeout: Duration, patience: Duration) -> WaitOutcome {
    let end = Instant::now() + patience;
    loop {
        let outcome = rx.wait(Some(timeout));
        let mut others = Vec::new();
        // Other frames may arrive at any time: they are taken, and the wait begins again.
        if outcome != WaitOutcome::Ready || Instant::now() >= end || rx.receive(&mut others, 64) == 0 {
            return outcome;
        }
    }
}

pub(super) fn wait(mut from: End, mut to: End, found: &mut Findings) {
    let Some(queue) = arrival_queue(&mut from, &mut to, found) else { return };
    let name = to.name.clone();
    let quiet = wait_quiet(&mut *to.queues[queue].rx, Duration::ZERO, found.patience);
    let what = format_args!("nothing is there, and a wait of no time returned {quiet:?}");
    found.expect(&name, quiet == WaitOutcome::TimedOut, what);
    for number in 0..3 {
        let sent = frame(&from, &to.capabilities, FLOW, number);
        if !from.send(0, sent, found) {
            return;
        }
        for _ in 0..2 {
            let outcome = to.queues[queue].rx.wait(Some(found.patience));
            let what = format_args!("a frame is there, and the wait returned {outcome:?}");
            if !found.expect(&name, outcome == WaitOutcome::Ready, what) {
                return;
            }
        }
        let came = to.collect(1, found.patience).len();
        found.expect(&name, came == 1, format_args!("a wait said Ready, and {came} frames were received"));
    }
}

pub(super) fn wake(_from: End, mut to: End, found: &mut Findings) {
    let name = to.name.clone();
    for pair in &mut to.queues {
        let waker = pair.rx.waker();
        for wakes in [1, 2] {
            (0..wakes).for_each(|_| waker.wake());
            let outcome = wait_quiet(&mut *pair.rx, found.patience, found.patience);
            let what = format_args!("{wakes} wakes came before the wait, which returned {outcome:?}");
            found.expect(&name, outcome == WaitOutcome::Woken, what);
            let outcome = wait_quiet(&mut *pair.rx, Duration::ZERO, found.patience);
            let what = format_args!("{wakes} wakes ended one wait, and the next one returned {outcome:?}");
            found.expect(&name, outcome == WaitOutcome::TimedOut, what);
        }
    }
    if !found.violations.is_empty() {
        return;
    }
    for pair in to.queues {
        let QueuePair { mut rx, tx: _tx } = pair;
        let waker = rx.waker();
        let (report, reports) = channel();
        thread::spawn(move || {
            for _ in 0..ROUNDS {
                let outcome = wait_quiet(&mut *rx, Duration::MAX, Duration::MAX / 4);
                if report.send(outcome).is_err() {
                    return;
                }
            }
        });
        for _ in 0..ROUNDS {
            waker.wake();
            let outcome = reports.recv_timeout(found.patience);
            let what = format_args!("a wait that another thread woke ended with {outcome:?}");
            if !found.expect(&name, outcome == Ok(WaitOutcome::Woken), what) {
                return;
            }
        }
    }
}

/// Receives on a thread of its own, which sleeps without an end where nothing is there, until `stop` is set and it is
/// woken.
fn receive_asleep(rx: Box<dyn RxQueue>, to: &End, stop: Arc<AtomicBool>) -> Receiver<u32> {
    let (report, reports) = channel();
    let framing = to.capabilities.framing;
    thread::spawn(move || listen(rx, framing, &report, &stop));
    reports
}

fn listen(mut rx: Box<dyn RxQueue>, framing: wire::Framing, report: &Sender<u32>, stop: &AtomicBool) {
    let mut batch = Vec::new();
    while !stop.load(Ordering::Acquire) {
        while rx.receive(&mut batch, 8) > 0 {
            let numbers = batch.drain(..).filter_map(|frame| number(framing, &frame));
            if numbers.map(|number| report.send(number)).any(|sent| sent.is_err()) {
                return;
            }
        }
        if rx.wait(None) == WaitOutcome::Gone {
            return;
        }
    }
}

pub(super) fn notify(mut from: End, mut to: End, found: &mut Findings) {
    let Some(queue) = arrival_queue(&mut from, &mut to, found) else { return };
    let QueuePair { rx, tx: _tx } = to.queues.swap_remove(queue);
    let waker = rx.waker();
    let stop = Arc::new(AtomicBool::new(false));
    let reports = receive_asleep(rx, &to, stop.clone());
    let notifier = from.queues[0].tx.notifier();
    // Receivers that do not exist or were given no frames do no harm; nor does an empty set.
    if let Some(notifier) = &notifier {
        let mut many = BitSet::new();
        [0, 63, 64, 300].into_iter().for_each(|receiver| many.insert(receiver));
        notifier.notify(&many);
        notifier.notify(&BitSet::new());
    }
    for round in 0..ROUNDS {
        let sent = frame(&from, &to.capabilities, FLOW, round);
        let (tx, mut dirty) = (&mut from.queues[0].tx, BitSet::new());
        let (taken, by) = match &notifier {
            Some(notifier) if round % 3 == 1 => {
                let taken = tx.transmit(sent).is_ok();
                tx.take_dirty(&mut dirty);
                notifier.notify(&dirty);
                (taken, "the notifier")
            }
            Some(notifier) if round % 3 == 2 => {
                let taken = tx.transmit_one(sent, &mut dirty).is_ok();
                notifier.notify(&dirty);
                (taken, "the notifier, if it slept,")
            }
            _ => {
                let taken = tx.transmit(sent).is_ok();
                tx.flush();
                (taken, "flush")
            }
        };
        let heard = reports.recv_timeout(found.patience);
        let what = format_args!("after {by} of frame {round} the sleeping receiver had {heard:?}");
        if !found.expect(&to.name, taken && heard == Ok(round), what) {
            break;
        }
    }
    stop.store(true, Ordering::Release);
    waker.wake();
    // The thread lets go of its end of the channel, and of the queue.
    while reports.recv_timeout(found.patience).is_ok() {}
}

pub(super) fn gone(mut from: End, mut to: End, found: &mut Findings) {
    let Some(queue) = arrival_queue(&mut from, &mut to, found) else { return };
    let name = to.name.clone();
    let early = to.queues.iter().chain(&from.queues).any(|pair| pair.rx.gone());
    found.expect(&name, !early, "a queue says that its device has gone, and both ends are there");
    for number in 0..3 {
        let sent = frame(&from, &to.capabilities, FLOW, number);
        if !from.send(0, sent, found) {
            return;
        }
    }
    drop(from);
    let end = Instant::now() + found.patience;
    let (mut came, mut batch) = (Vec::<u32>::new(), Vec::new());
    while came.len() < 3 && Instant::now() < end {
        let said = to.queues[queue].rx.gone();
        let received = to.queues[queue].rx.receive(&mut batch, 1);
        let late = said && received > 0;
        if !found.expect(&name, !late, "a queue said that its device had gone, and then handed out a frame") {
            return;
        }
        came.extend(batch.drain(..).filter_map(|frame| number(to.capabilities.framing, &frame)));
        if said {
            break;
        }
    }
    found.expect(
        &name,
        came == [0, 1, 2],
        format_args!("of frames 0 to 2, sent before the other end went, came {came:?}"),
    );
    if !to.queues[queue].rx.gone() {
        // The device does not report it, as on a cable with an invisible other end.
        return;
    }
    let outcome = to.queues[queue].rx.wait(Some(found.patience));
    let what = format_args!("the device has gone, and a wait returned {outcome:?}");
    found.expect(&name, outcome == WaitOutcome::Gone, what);
    let before = to.dropped();
    let sent = frame(&to, &to.capabilities, FLOW, 9);
    let taken = to.queues[queue].tx.transmit(sent).is_ok();
    to.queues[queue].tx.flush();
    let counted = !taken || to.dropped() > before;
    found.expect(&name, counted, "a frame to an end that has gone vanished without a counted reason");
}

pub(super) fn threads(mut from: End, mut to: End, found: &mut Findings) {
    let Some(queue) = arrival_queue(&mut from, &mut to, found) else { return };
    let (peer, framing, patience) = (to.capabilities.clone(), to.capabilities.framing, found.patience);
    let region = from.capabilities.region;
    let room = region.map(free);
    let end = Instant::now() + patience;
    let (frames, dropped) = channel::<PktBuf>();
    // The first thread sends, the second receives, the third drops the received frames.
    let sending = thread::spawn(move || {
        let mut number = 0;
        while number < CROSSING && Instant::now() < end {
            if from.queues[0].tx.credit() > 0 {
                let sent = frame(&from, &peer, FLOW, number);
                number += u32::from(from.queues[0].tx.transmit(sent).is_ok());
            }
            let is_full = from.queues[0].tx.credit() == 0;
            if is_full || number.is_multiple_of(8) {
                from.queues[0].tx.flush();
            }
            if is_full {
                thread::yield_now();
            }
        }
        from.queues[0].tx.flush();
        from
    });
    let home = thread::spawn(move || dropped.into_iter().map(drop).count());
    let name = to.name.clone();
    let receiving = thread::spawn(move || {
        let (mut numbers, mut in_order) = (0, true);
        while numbers < CROSSING && Instant::now() < end {
            let came: Vec<Arrived> = to.collect(1, end.saturating_duration_since(Instant::now()));
            for arrived in came.into_iter().filter(|arrived| arrived.queue == queue && arrived.number != u32::MAX) {
                in_order &= arrived.number == numbers && number(framing, &arrived.frame) == Some(numbers);
                numbers += 1;
                let _ = frames.send(arrived.frame);
            }
        }
        (to, numbers, in_order)
    });
    let (Ok(from), Ok((_to, numbers, in_order)), Ok(_)) = (sending.join(), receiving.join(), home.join()) else {
        return found.note(&name, "a queue panicked when another thread used it");
    };
    let what = format_args!("{CROSSING} frames were sent, {numbers} arrived on another thread, in order: {in_order}");
    found.expect(&name, numbers == CROSSING && in_order, what);
    if let (Some(region), Some(room)) = (region, room) {
        while free(region) < room && Instant::now() < end {
            thread::yield_now();
        }
        let now = free(region);
        let what = format_args!("of {room} buffers of the region {now} came home");
        found.expect(&from.name, now >= room, what);
    }
}

/// How many buffers a region provides at once, up to a limit.
fn free(region: pktbuf::RegionId) -> usize {
    let held: Vec<PktBuf> = (0..COUNTED).map_while(|_| PktBuf::alloc_in(region, 64)).collect();
    held.len()
}
