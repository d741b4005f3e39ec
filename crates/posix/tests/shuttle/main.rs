//! Descriptors that one thread closes while others wait for them, under the randomised checker: every lock, permit and
//! sleep of the socket layer is a scheduling point. A lost wake-up shows as a deadlock, because on [`Patient`] no sleep
//! ends by itself. The watched files are pipes, which need no stack, so that the search covers only this layer.

use std::sync::Arc;
use std::time::Duration;

use planted::{NoWake, Planted, outcome};
use posix::{EpollInterest, Errno, LowestFree, Sockets};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use sync::{Platform, ThreadClass};
use testbed::node::{Node, NodeConfig};
use testbed::over;

type Patient = over::Patient<sync::shuttle::Shuttle>;

const RANDOM: usize = 1000;
const PCT: usize = 300;
/// Schedules in which an injected fault must show.
const HUNT: usize = 20_000;
const HUNT_FROM: u64 = 1;

/// Each model builds a stack on the stack of its first thread; shuttle's default for a thread (60 KiB) is too small for
/// that.
const STACK_SIZE: usize = 256 << 10;

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_SIZE;
    Runner::new(scheduler, config).run(model);
}

fn holds(model: impl Fn() + Clone + Send + Sync + 'static) {
    run(RandomScheduler::new(RANDOM), model.clone());
    run(PctScheduler::new(3, PCT), model);
}

const DATA: u64 = 1;
const STOP: u64 = 2;
const IN: u32 = libc::EPOLLIN as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

/// Descriptors of a process, an `epoll` instance, and two pipes: data, and the end of the test.
struct Process<P: Platform> {
    sockets: Sockets<P>,
    reader: i32,
    writer: i32,
    stop: i32,
    epoll: i32,
}

impl<P: Platform> Process<P> {
    /// The read end of the first pipe is watched for `events`.
    fn start(events: u32) -> Arc<Self> {
        let arch = "giant".parse().expect("a plan");
        let sockets = Sockets::new(Node::<P>::new(NodeConfig::new(arch)).stack, LowestFree::<P>::new(3, 16));
        let (reader, writer) = sockets.pipe(0).expect("pipe");
        let (stop_reader, stop) = sockets.pipe(0).expect("pipe");
        let epoll = sockets.epoll_create(0).expect("epoll_create");
        for (fd, events, data) in [(reader, events, DATA), (stop_reader, IN, STOP)] {
            let interest = EpollInterest { events, data };
            sockets.epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, interest).expect("EPOLL_CTL_ADD");
        }
        Arc::new(Process { sockets, reader, writer, stop, epoll })
    }

    fn spawn(self: &Arc<Self>, body: impl FnOnce(&Process<P>) + Send + 'static) -> P::JoinHandle {
        let process = self.clone();
        P::spawn("thread", None, ThreadClass::Application, move || body(&process))
    }

    /// Waits until the end of the test; counts the reports of data.
    fn watch(&self, reported: &P::AtomicUsize) {
        use sync::{Atomic, Ordering};
        loop {
            let events = self.sockets.epoll_wait(self.epoll, 4, None).expect("epoll_wait");
            let data = events.iter().filter(|event| event.data == DATA).count();
            reported.fetch_add(data, Ordering::Relaxed);
            if events.iter().any(|event| event.data == STOP) {
                return;
            }
        }
    }

    /// The current reports.
    fn look(&self) -> Vec<u64> {
        let events = self.sockets.epoll_wait(self.epoll, 4, Some(Duration::ZERO)).expect("epoll_wait");
        events.iter().map(|event| event.data).collect()
    }
}

fn join<P: Platform>(threads: impl IntoIterator<Item = P::JoinHandle>) {
    threads.into_iter().for_each(|thread| P::join(thread).expect("the thread ends well"));
}

/// One thread waits in `epoll_wait`, one closes the descriptor that it watches, one writes. No thread waits for ever,
/// and after `close` has returned and the writer has ended there are no more reports of the descriptor.
fn close_against_epoll_wait<P: Platform>() {
    let process = Process::<P>::start(IN);
    let reported = Arc::new(<P::AtomicUsize as sync::Atomic<usize>>::new(0));
    let waits = process.spawn(move |process| process.watch(&reported));
    let closes = process.spawn(|process| process.sockets.close(process.reader).expect("close"));
    match process.sockets.write(process.writer, b"x") {
        Ok(1) | Err(Errno::EPIPE) => {}
        other => panic!("write returned {other:?}"),
    }
    process.sockets.write(process.stop, b"x").expect("write");
    join::<P>([waits, closes]);
    assert_eq!(process.look(), [STOP]);
    assert_eq!(process.sockets.write(process.writer, b"x"), Err(Errno::EPIPE));
}

/// The same with a duplicate: the description stays open, and written data is reported under the old registration.
fn close_of_a_duplicate<P: Platform>() {
    let process = Process::<P>::start(IN);
    let copy = process.sockets.dup(process.reader).expect("dup");
    let closes = process.spawn(|process| process.sockets.close(process.reader).expect("close"));
    let writes = process.spawn(|process| assert_eq!(process.sockets.write(process.writer, b"x"), Ok(1)));
    let events = process.sockets.epoll_wait(process.epoll, 4, None).expect("epoll_wait");
    assert_eq!(events.iter().map(|event| event.data).collect::<Vec<_>>(), [DATA]);
    join::<P>([closes, writes]);
    process.sockets.close(copy).expect("close");
    assert_eq!(process.look(), []);
}

/// A thread that blocks in `read` on a descriptor that another closes: it has begun before the close and gets the
/// written data, or it finds no descriptor.
fn close_against_read<P: Platform>() {
    let process = Process::<P>::start(IN);
    let reads = process.spawn(|process| {
        let mut buffer = [0; 4];
        match process.sockets.read(process.reader, &mut buffer) {
            Ok(1) | Err(Errno::EBADF) => {}
            other => panic!("read returned {other:?}"),
        }
    });
    let closes = process.spawn(|process| process.sockets.close(process.reader).expect("close"));
    let _ = process.sockets.write(process.writer, b"x");
    join::<P>([reads, closes]);
    assert_eq!(process.sockets.write(process.writer, b"x"), Err(Errno::EPIPE), "the description has ended");
}

/// Two threads wait for a one-shot registration: one of them gets its one event.
fn one_shot_is_for_one<P: Platform>() {
    use sync::{Atomic, Ordering};
    let process = Process::<P>::start(IN | ONESHOT);
    let reported = Arc::new(<P::AtomicUsize as Atomic<usize>>::new(0));
    let waits = [reported.clone(), reported.clone()]
        .map(|reported| process.spawn(move |process: &Process<P>| process.watch(&reported)));
    process.sockets.write(process.writer, b"x").expect("write");
    process.sockets.write(process.stop, b"x").expect("write");
    join::<P>(waits);
    let left = process.look().iter().filter(|data| **data == DATA).count();
    assert_eq!(reported.load(Ordering::Relaxed) + left, 1);
}

/// A registration that is deleted and modified while its description becomes ready.
fn modify_against_arrival<P: Platform>() {
    let process = Process::<P>::start(IN | ONESHOT);
    let writes = process.spawn(|process| assert_eq!(process.sockets.write(process.writer, b"x"), Ok(1)));
    let again = EpollInterest { events: IN, data: DATA };
    process.sockets.epoll_ctl(process.epoll, libc::EPOLL_CTL_MOD, process.reader, again).expect("EPOLL_CTL_MOD");
    let events = process.sockets.epoll_wait(process.epoll, 4, None).expect("epoll_wait");
    assert_eq!(events, [EpollInterest { events: IN, data: DATA }]);
    process.sockets.epoll_ctl(process.epoll, libc::EPOLL_CTL_DEL, process.reader, again).expect("EPOLL_CTL_DEL");
    join::<P>([writes]);
    assert_eq!(process.look(), []);
}

#[test]
fn a_close_and_a_wait_for_events() {
    holds(close_against_epoll_wait::<Patient>);
}

#[test]
fn a_close_of_one_of_two_descriptors() {
    holds(close_of_a_duplicate::<Patient>);
}

#[test]
fn a_close_and_a_read_that_blocks() {
    holds(close_against_read::<Patient>);
}

#[test]
fn two_waits_for_a_one_shot_registration() {
    holds(one_shot_is_for_one::<Patient>);
}

#[test]
fn a_registration_that_changes_while_data_arrives() {
    holds(modify_against_arrival::<Patient>);
}

/// The models can fail: they do on a platform that loses wake-ups.
#[test]
fn a_lost_wake_up_is_found() {
    type Lossy = Planted<Patient, NoWake>;
    for model in [close_against_epoll_wait::<Lossy>, close_of_a_duplicate::<Lossy>, close_against_read::<Lossy>] {
        let hunt = move || run(RandomScheduler::new_from_seed(HUNT_FROM, HUNT), model);
        outcome(hunt).expect_err("shuttle must find the planted fault");
    }
}
