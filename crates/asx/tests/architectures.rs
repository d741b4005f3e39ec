//! The defining property of each process architecture, with the same modules under each: which thread runs which queue, that one
//! thread at a time uses the state of a queue, that order is kept, and that queues between threads are bounded.
//!
//! Schmidt & Suda (1995), section 2: "Connectional Parallelism demultiplexes all messages bound for the same connection onto the
//! same process, whereas Message Parallelism demultiplexes messages onto any available process."

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use asx::{
    Bottom, Catalogue, Message, Module, Passed, ProcessArchitecture, Queue, Side, Stream, StreamError, TryWriteError,
    WaterMarks, memory,
};
use testbed::limit::within;

const ALL: [&str; 4] = ["caller", "connection", "message:3", "layer"];

/// A step: module, side, number of the message, thread.
type Log = Arc<Mutex<Vec<(usize, Side, u32, ThreadId)>>>;

/// Records the thread that runs it, and reports if two threads use its state at once.
struct Watched {
    module: usize,
    side: Side,
    log: Log,
    in_use: Arc<AtomicBool>,
    next: u32,
}

impl Queue for Watched {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        if self.in_use.swap(true, Ordering::SeqCst) {
            return Err("two threads use one queue".to_owned());
        }
        let number = number(&message);
        if number != self.next {
            return Err(format!("{number} comes instead of {}", self.next));
        }
        self.next += 1;
        self.log.lock().unwrap().push((self.module, self.side, number, thread::current().id()));
        // Gives other threads a chance to interfere.
        thread::yield_now();
        self.in_use.store(false, Ordering::SeqCst);
        to.on(message);
        Ok(())
    }
}

fn number(message: &Message) -> u32 {
    u32::from_be_bytes(message.as_bytes().expect("bytes")[..4].try_into().expect("a number"))
}

fn numbered(number: u32) -> Message {
    Message::bytes(number.to_be_bytes())
}

fn watched(module: usize, log: &Log) -> Module {
    let queue = |side| Watched { module, side, log: log.clone(), in_use: Arc::default(), next: 0 };
    Module::new(format!("watched-{module}"), queue(Side::Read), queue(Side::Write))
}

const COUNT: u32 = 300;
const MODULES: usize = 3;

/// Sends `COUNT` messages up and down through three modules; returns the log of the modules.
fn carried(architecture: &str) -> Vec<(usize, Side, u32, ThreadId)> {
    let log = Log::default();
    let (here, there) = memory::pair(4);
    let modules = (0..MODULES).map(|module| watched(module, &log)).collect();
    let stream: Stream =
        Stream::over(here, architecture.parse().unwrap(), modules, WaterMarks::new(8, 16)).expect("names are unique");
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..COUNT {
                assert_eq!(number(&there.receive().unwrap().expect("a message")), n);
                there.send(numbered(n)).unwrap();
            }
            assert!(there.receive().unwrap().is_none(), "the end");
            there.end().unwrap();
        });
        scope.spawn(|| {
            (0..COUNT).for_each(|n| stream.write(numbered(n)).expect("it is written"));
            stream.end().expect("it ends");
        });
        for n in 0..COUNT {
            assert_eq!(number(&stream.read().expect("it is read").expect("a message")), n, "order, {architecture}");
        }
        assert!(stream.read().expect("it is read").is_none(), "the end");
    });
    drop(stream);
    let log = log.lock().unwrap().clone();
    assert_eq!(log.len(), 2 * MODULES * COUNT as usize, "each message passes each queue once");
    log
}

fn threads<'a>(log: impl Iterator<Item = &'a (usize, Side, u32, ThreadId)>) -> BTreeSet<String> {
    log.map(|(.., thread)| format!("{thread:?}")).collect()
}

/// The sets of threads by a key of the log's lines.
fn by<K: Ord>(
    log: &[(usize, Side, u32, ThreadId)],
    key: impl Fn(&(usize, Side, u32, ThreadId)) -> K,
) -> BTreeMap<K, BTreeSet<String>> {
    let mut sets = BTreeMap::<K, BTreeSet<String>>::new();
    for line in log {
        sets.entry(key(line)).or_default().insert(format!("{:?}", line.3));
    }
    sets
}

#[test]
fn under_connection_one_thread_runs_all_that_the_connection_receives() {
    within(|| {
        let log = carried("connection");
        assert_eq!(threads(log.iter().filter(|line| line.1 == Side::Read)).len(), 1);
        assert_eq!(threads(log.iter().filter(|line| line.1 == Side::Write)).len(), 1, "the thread that writes");
    });
}

#[test]
fn under_message_one_thread_escorts_each_message_and_others_escort_others() {
    within(|| {
        let log = carried("message:3");
        for ((side, number), set) in by(&log, |line| (line.1 as u8, line.2)) {
            assert_eq!(set.len(), 1, "message {number} of side {side}: {set:?}");
        }
        let read = threads(log.iter().filter(|line| line.1 == Side::Read));
        assert!(read.len() <= 3, "{read:?}");
    });
}

/// Holds message 0 until the test releases it.
struct Holds(Mutex<Receiver<()>>);

impl Queue for Holds {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        if number(&message) == 0 {
            self.0.lock().unwrap().recv().map_err(|error| error.to_string())?;
        }
        to.on(message);
        Ok(())
    }
}

/// Reports which message has arrived.
struct Says(Sender<u32>);

impl Queue for Says {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        self.0.send(number(&message)).map_err(|error| error.to_string())?;
        to.on(message);
        Ok(())
    }
}

/// While a thread is in a module with one message, others take the next ones through the modules behind it, as many as there are
/// threads. Connectional Parallelism takes none.
#[test]
fn messages_behind_one_that_is_held_go_as_far_as_there_are_threads() {
    within(|| {
        for (architecture, come) in [("connection", 1), ("message:2", 2), ("message:3", 3)] {
            let (says, said) = channel();
            let (lets, let_go) = channel();
            let holds = Module::new("holds", Holds(Mutex::new(let_go)), Relays);
            let (here, there) = memory::pair(8);
            let modules = vec![holds, Module::new("says", Says(says), Relays)];
            let stream: Stream =
                Stream::over(here, architecture.parse().unwrap(), modules, WaterMarks::default()).unwrap();
            (0..6).for_each(|n| there.send(numbered(n)).unwrap());
            (0..come).for_each(|n| assert_eq!(said.recv().unwrap(), n, "{architecture}"));
            for _ in 0..1000 {
                assert!(said.try_recv().is_err(), "{architecture} has more threads than it says");
                thread::yield_now();
            }
            lets.send(()).unwrap();
            (0..6).for_each(|n| assert_eq!(number(&stream.read().unwrap().unwrap()), n, "{architecture}"));
        }
    });
}

#[test]
fn under_layer_each_module_has_its_thread() {
    within(|| {
        let log = carried("layer");
        let sets = by(&log, |line| line.0);
        assert!(sets.values().all(|set| set.len() == 1), "{sets:?}");
        assert_eq!(threads(log.iter()).len(), MODULES);
    });
}

#[test]
fn under_caller_only_the_callers_run_anything() {
    within(|| {
        let before = thread::current().id();
        let log = Log::default();
        let (here, there) = memory::pair(4);
        let stream: Stream =
            Stream::over(here, ProcessArchitecture::Caller, vec![watched(0, &log)], WaterMarks::default()).unwrap();
        stream.write(numbered(0)).unwrap();
        there.send(numbered(0)).unwrap();
        assert_eq!(number(&stream.read().unwrap().unwrap()), 0);
        assert!(log.lock().unwrap().iter().all(|line| line.3 == before));
    });
}

/// A bottom whose `send` waits until the test releases it.
struct Gate(Mutex<Receiver<()>>);

impl Bottom for Gate {
    fn send(&self, _: Message) -> io::Result<()> {
        self.0.lock().unwrap().recv().map_err(io::Error::other)
    }

    fn receive(&self) -> io::Result<Option<Message>> {
        Ok(None)
    }
}

/// Bounded queues between layers: with the bottom stopped, as many messages are taken as the water marks allow, and no
/// more.
#[test]
fn under_layer_the_queues_between_the_modules_are_bounded() {
    within(|| {
        let (opens, open) = channel();
        let gate = Gate(Mutex::new(open));
        let log = Log::default();
        // A full queue takes again as soon as one message has left it, so the sum does not depend on which thread was first.
        let marks = WaterMarks::new(15, 16);
        let modules = (0..2).map(|module| watched(module, &log).marks(marks)).collect();
        let stream: Stream = Stream::over(gate, ProcessArchitecture::Layer, modules, marks).unwrap();
        let mut taken = 0;
        // The bottom has one message in hand and four in its queue; four are in the queue of each module.
        while taken < 1 + 3 * 4 {
            match stream.try_write(numbered(taken)) {
                Ok(()) => taken += 1,
                Err(TryWriteError::Full(_)) => thread::yield_now(),
                Err(TryWriteError::Failed(reason)) => panic!("{reason}"),
            }
        }
        for _ in 0..1000 {
            assert!(
                matches!(stream.try_write(numbered(taken)), Err(TryWriteError::Full(_))),
                "it takes more than the marks"
            );
            thread::yield_now();
        }
        drop(opens);
    });
}

#[test]
fn a_connection_that_is_not_read_stops_its_bottom() {
    within(|| {
        for architecture in ["connection", "message:3", "layer"] {
            let (here, there) = memory::pair(1);
            let marks = WaterMarks::new(4, 8);
            let log = Log::default();
            let modules = vec![watched(0, &log).marks(marks)];
            let stream: Stream = Stream::over(here, architecture.parse().unwrap(), modules, marks).unwrap();
            let sent = AtomicUsize::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..50 {
                        there.send(numbered(n)).unwrap();
                        sent.fetch_add(1, Ordering::SeqCst);
                    }
                    there.end().unwrap();
                });
                for n in 0..50 {
                    assert_eq!(number(&stream.read().unwrap().unwrap()), n);
                    // Read, at the head, at the module, and in hand of a thread that receives or runs it, and in the pair.
                    let ahead = sent.load(Ordering::SeqCst) as i64 - i64::from(n + 1);
                    assert!(ahead <= 2 + 2 + 3 + 1, "{ahead} messages ahead of the reader under {architecture}");
                }
                assert!(stream.read().unwrap().is_none());
            });
        }
    });
}

/// The modules that ship, under each architecture, against each.
#[test]
fn the_same_modules_carry_the_same_bytes_under_every_architecture() {
    within(|| {
        let catalogue = Catalogue::default();
        let modules = || catalogue.modules("xdr | checksum | frame max=4096 fragment=33").unwrap();
        for one in ALL {
            for other in ALL {
                let (here, there) = memory::pair(4);
                let here: Stream = Stream::over(here, one.parse().unwrap(), modules(), WaterMarks::default()).unwrap();
                let there: Stream =
                    Stream::over(there, other.parse().unwrap(), modules(), WaterMarks::default()).unwrap();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        for length in 0..60_usize {
                            let message = there.read().unwrap().expect("a message");
                            assert_eq!(message.as_bytes(), Some(&vec![length as u8; length][..]));
                            there.write(message).unwrap();
                        }
                        there.end().unwrap();
                    });
                    for length in 0..60_usize {
                        here.write(vec![length as u8; length]).unwrap();
                        let message = here.read().unwrap().expect("an answer");
                        assert_eq!(message.as_bytes(), Some(&vec![length as u8; length][..]), "{one} to {other}");
                    }
                    assert!(here.read().unwrap().is_none());
                });
            }
        }
    });
}

struct Relays;

impl Queue for Relays {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        to.on(message);
        Ok(())
    }
}

struct Panics;

impl Queue for Panics {
    fn svc(&mut self, _: Message, _: &mut Passed) -> Result<(), String> {
        panic!("a planted panic");
    }

    fn close(&mut self, _: &mut Passed) {
        panic!("a planted panic");
    }
}

impl Bottom for Panics {
    fn send(&self, _: Message) -> io::Result<()> {
        Ok(())
    }

    fn receive(&self) -> io::Result<Option<Message>> {
        panic!("a planted panic");
    }
}

/// The thread that changes a stream gets the panic of the module; other calls get the stream's error.
#[test]
fn a_panic_of_a_module_that_leaves_or_of_the_bottom_ends_the_stream() {
    within(|| {
        for architecture in ALL {
            let (here, _there) = memory::pair(4);
            let modules = vec![Module::new("panics", Panics, Panics)];
            let stream: Stream =
                Stream::over(here, architecture.parse().unwrap(), modules, WaterMarks::default()).unwrap();
            let popped = catch_unwind(AssertUnwindSafe(|| stream.pop().map(|_| ())));
            assert!(popped.is_err(), "{popped:?}");
            assert_eq!(stream.write(vec![1]).unwrap_err(), StreamError::Panicked("panics".to_owned()));
            assert_eq!(stream.read().unwrap_err(), StreamError::Panicked("panics".to_owned()));

            let stream = Stream::new(Panics, architecture.parse().unwrap());
            let first = catch_unwind(AssertUnwindSafe(|| stream.read()));
            assert_eq!(first.is_err(), architecture == "caller", "the thread that receives");
            assert_eq!(stream.read().unwrap_err(), StreamError::Panicked("bottom".to_owned()), "{architecture}");
        }
    });
}

#[test]
fn an_error_or_a_panic_of_a_module_ends_the_stream_and_no_call_waits_for_ever() {
    within(|| {
        for architecture in ["connection", "message:3", "layer"] {
            for (module, said) in [
                (
                    Catalogue::default().module("checksum").unwrap(),
                    "module `checksum`: a message of 1 bytes has no checksum",
                ),
                (Module::new("panics", Panics, Panics), "`panics` panicked"),
            ] {
                let (here, there) = memory::pair(4);
                let stream: Stream =
                    Stream::over(here, architecture.parse().unwrap(), vec![module], WaterMarks::default()).unwrap();
                there.send(vec![1].into()).unwrap();
                assert_eq!(stream.read().unwrap_err().to_string(), said);
                assert_eq!(stream.write(vec![1]).unwrap_err().to_string(), said);
                assert_eq!(stream.pop().unwrap_err().to_string(), format!("the stream failed: {said}"));
            }
        }
    });
}

#[test]
fn names_of_architectures_are_read_and_written() {
    for name in ALL {
        assert_eq!(name.parse::<ProcessArchitecture>().unwrap().to_string(), name);
    }
    for wrong in ["message", "message:0", "message:x", "up"] {
        assert!(wrong.parse::<ProcessArchitecture>().is_err(), "{wrong}");
    }
}
