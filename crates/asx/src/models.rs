//! Changes of a stream in use under model checkers. The application, the bottom and the stream's threads run in many schedules
//! (shuttle) or in every one with few preemptions (loom). For each step of a change there is a mistake that breaks it, and that
//! must be found.
//!
//! | property | the mistake |
//! |---|---|
//! | messages that arrive at a module while it is removed are not lost | `ForgottenArrivals` |
//! | the messages that a module held precede those that arrived later | `LeftoversLast` |
//! | a queue passes messages to the module that is next at that time | `StaleSuccessor` |
//! | no thread sleeps for ever | no thread wakes another |

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use sync::{PlantedMistake, Platform, ThreadClass};

use crate::architecture::ProcessArchitecture;
use crate::bottom::Bottom;
use crate::message::Message;
use crate::queue::{Module, Passed, Queue, WaterMarks};
use crate::stream::Stream;

/// Delivers the messages of a script, and keeps the messages that are sent.
struct ScriptedBottom {
    script: Mutex<VecDeque<u8>>,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Bottom for ScriptedBottom {
    fn send(&self, message: Message) -> io::Result<()> {
        let mut sent = self.sent.lock().expect("no panic");
        sent.extend(message.as_bytes().expect("bytes"));
        Ok(())
    }

    fn receive(&self) -> io::Result<Option<Message>> {
        Ok(self.script.lock().expect("no panic").pop_front().map(|byte| Message::bytes([byte])))
    }
}

/// Keeps one message back, and passes the one before it on.
#[derive(Default)]
struct Delay(Option<Message>);

impl Queue for Delay {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        self.0.replace(message).into_iter().for_each(|before| to.on(before));
        Ok(())
    }

    fn end(&mut self, to: &mut Passed) -> Result<(), String> {
        self.close(to);
        Ok(())
    }

    fn close(&mut self, to: &mut Passed) {
        self.0.take().into_iter().for_each(|held| to.on(held));
    }
}

struct Relay;

impl Queue for Relay {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        to.on(message);
        Ok(())
    }
}

fn delay(name: &str) -> Module {
    Module::new(name, Delay::default(), Delay::default()).marks(WaterMarks::new(0, 1))
}

fn relay(name: &str) -> Module {
    Module::new(name, Relay, Relay).marks(WaterMarks::new(0, 1))
}

/// The module in the middle leaves.
fn remove<P: Platform>(stream: &Arc<Stream<P>>) {
    stream.remove("delay").expect("it is there");
}

fn replace<P: Platform>(stream: &Arc<Stream<P>>) {
    stream.replace("delay", delay("another")).expect("it is there");
}

/// A module on top comes and goes.
fn push_and_pop<P: Platform>(stream: &Arc<Stream<P>>) {
    stream.push(delay("pushed")).expect("no other is called so");
    stream.pop().expect("it is there");
}

/// Two threads make changes at once.
fn replace_and_push<P: Platform>(stream: &Arc<Stream<P>>) {
    let other = stream.clone();
    let thread = P::spawn("changer", None, ThreadClass::Application, move || {
        other.push(relay("pushed")).expect("no other is called so");
    });
    replace(stream);
    join::<P>(thread);
    assert_eq!(stream.modules().len(), 3);
}

/// Two threads replace the same module: the second one the module of the first.
fn replace_twice<P: Platform>(stream: &Arc<Stream<P>>) {
    let other = stream.clone();
    let thread = P::spawn("changer", None, ThreadClass::Application, move || {
        other.replace("delay", delay("delay")).expect("it is there");
    });
    stream.replace("delay", delay("delay")).expect("it is there");
    join::<P>(thread);
}

/// The thread that reads while a stream is changed.
#[derive(Clone, Copy, PartialEq)]
enum ReadBy {
    /// The thread that makes the change reads afterwards: a change must not wait for it.
    Changer,
    /// Another thread.
    Another,
}

/// The bottom delivers `count` messages while the stream is changed.
fn receiving<P: Platform>(architecture: ProcessArchitecture, count: u8, reader: ReadBy, change: fn(&Arc<Stream<P>>)) {
    let bottom = ScriptedBottom { script: Mutex::new((0..count).collect()), sent: Arc::default() };
    let modules = vec![delay("delay"), relay("lower")];
    let stream = Stream::<P>::over(bottom, architecture, modules, WaterMarks::default()).expect("names are unique");
    let stream = Arc::new(stream);
    let read = {
        let stream = stream.clone();
        move || {
            let mut read = Vec::new();
            while let Some(message) = stream.read().expect("no failure") {
                read.extend(message.into_bytes().expect("bytes"));
            }
            assert_eq!(read, (0..count).collect::<Vec<u8>>(), "messages received");
        }
    };
    match reader {
        ReadBy::Changer => {
            change(&stream);
            read();
        }
        ReadBy::Another => {
            let thread = P::spawn("reader", None, ThreadClass::Application, read);
            change(&stream);
            join::<P>(thread);
        }
    }
}

fn join<P: Platform>(thread: P::JoinHandle) {
    if let Err(panic) = P::join(thread) {
        std::panic::resume_unwind(panic);
    }
}

/// Another thread writes `count` messages while the stream is changed.
fn writing<P: Platform>(architecture: ProcessArchitecture, count: u8, change: fn(&Arc<Stream<P>>)) {
    let sent = Arc::<Mutex<Vec<u8>>>::default();
    let bottom = ScriptedBottom { script: Mutex::default(), sent: sent.clone() };
    let modules = vec![relay("upper"), delay("delay")];
    let stream = Stream::<P>::over(bottom, architecture, modules, WaterMarks::default()).expect("names are unique");
    let stream = Arc::new(stream);
    let writer = stream.clone();
    let thread = P::spawn("writer", None, ThreadClass::Application, move || {
        (0..count).for_each(|n| writer.write(vec![n]).expect("no failure"));
        writer.end().expect("no failure");
    });
    change(&stream);
    join::<P>(thread);
    // Under `layer` the threads of the modules may still carry it.
    stream.flush().expect("no failure");
    assert_eq!(*sent.lock().expect("no panic"), (0..count).collect::<Vec<u8>>(), "messages sent");
}

/// The platform on which the planted mistake is active.
macro_rules! mistakes {
    ($($name:ident),*) => {$(
        #[derive(Clone, Copy, Debug, Default)]
        struct $name;
        impl planted::InjectedFault for $name {
            fn makes(mistake: PlantedMistake) -> bool {
                mistake == PlantedMistake::$name
            }
        }
    )*};
}
mistakes!(ForgottenArrivals, LeftoversLast);

#[cfg(feature = "loom")]
mod loom_models {
    use planted::Planted;
    use sync::loom::Loom;

    use super::*;

    fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
        planted::outcome(move || {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(preemptions);
            builder.check(model);
        })
    }

    #[test]
    fn a_module_leaves_while_another_thread_receives() {
        let architecture = ProcessArchitecture::Connection;
        explore(3, move || receiving::<Loom>(architecture, 2, ReadBy::Changer, remove)).expect("the model holds");
        type Mistaken = Planted<Loom, LeftoversLast>;
        let found = explore(3, move || receiving::<Mistaken>(architecture, 2, ReadBy::Changer, remove));
        let found = found.expect_err("loom must find the planted mistake");
        assert!(found.contains("messages received"), "found, but as: {found}");
    }

    #[test]
    fn arrivals_that_are_forgotten_are_found() {
        type LosesArrivals = Planted<Loom, ForgottenArrivals>;
        let architecture = ProcessArchitecture::Connection;
        let found = explore(3, move || receiving::<LosesArrivals>(architecture, 2, ReadBy::Changer, remove));
        let found = found.expect_err("loom must find the planted mistake");
        // The end is forgotten with the last message: the reader waits for ever.
        assert!(found.contains("deadlock"), "found, but as: {found}");
    }

    #[test]
    fn a_module_is_replaced_while_another_thread_receives() {
        let architecture = ProcessArchitecture::Connection;
        explore(2, move || receiving::<Loom>(architecture, 2, ReadBy::Changer, replace)).expect("the model holds");
    }

    #[test]
    fn modules_change_while_another_thread_reads_or_writes() {
        const CALLER: ProcessArchitecture = ProcessArchitecture::Caller;
        for change in [remove, replace, push_and_pop] {
            explore(3, move || writing::<Loom>(CALLER, 2, change)).expect("the model holds");
            explore(3, move || receiving::<Loom>(CALLER, 2, ReadBy::Another, change)).expect("the model holds");
        }
    }

    #[test]
    fn two_threads_change_while_a_third_writes() {
        for change in [replace_and_push, replace_twice] {
            explore(2, move || writing::<Loom>(ProcessArchitecture::Caller, 1, change)).expect("the model holds");
        }
    }
}

#[cfg(feature = "shuttle")]
mod shuttle_models {
    use planted::{NoWake, Planted};
    use sync::shuttle::Shuttle;

    use super::*;

    mistakes!(StaleSuccessor);

    const SCHEDULES: usize = 300;
    /// Schedules in which a mistake must show; the search ends with the first.
    const HUNT: usize = 5000;
    /// Maximum steps of one schedule. A model takes some hundreds.
    const MOST_STEPS: usize = 20_000;

    const ARCHITECTURES: [ProcessArchitecture; 4] = [
        ProcessArchitecture::Caller,
        ProcessArchitecture::Connection,
        ProcessArchitecture::Message { threads: 2 },
        ProcessArchitecture::Layer,
    ];

    fn config() -> shuttle::Config {
        let mut config = shuttle::Config::new();
        config.max_steps = shuttle::MaxSteps::FailAfter(MOST_STEPS);
        config
    }

    fn holds(model: impl Fn() + Copy + Send + Sync + 'static) {
        let random = shuttle::scheduler::RandomScheduler::new_from_seed(1, SCHEDULES);
        shuttle::Runner::new(random, config()).run(model);
        let pct = shuttle::scheduler::PctScheduler::new_from_seed(1, 3, SCHEDULES);
        shuttle::Runner::new(pct, config()).run(model);
    }

    /// The model fails, with a message that contains `symptom`.
    fn fails(symptom: &str, model: impl Fn() + Copy + Send + Sync + 'static) {
        let hunt = move || {
            let random = shuttle::scheduler::RandomScheduler::new_from_seed(1, HUNT);
            _ = shuttle::Runner::new(random, config()).run(model);
            let pct = shuttle::scheduler::PctScheduler::new_from_seed(1, 3, HUNT);
            _ = shuttle::Runner::new(pct, config()).run(model);
        };
        let found = planted::outcome(hunt).expect_err("shuttle must find the planted mistake");
        assert!(found.contains(symptom), "found, but as: {found}");
    }

    #[test]
    fn what_is_received_while_modules_change_is_read_once_and_in_order() {
        for architecture in ARCHITECTURES {
            for change in [remove, replace, push_and_pop, replace_and_push, replace_twice] {
                holds(move || receiving::<Shuttle>(architecture, 4, ReadBy::Another, change));
                // Under `caller` nothing is received before the change has been made.
                if architecture != ProcessArchitecture::Caller {
                    holds(move || receiving::<Shuttle>(architecture, 4, ReadBy::Changer, change));
                }
            }
        }
    }

    #[test]
    fn what_is_written_while_modules_change_is_sent_once_and_in_order() {
        for architecture in ARCHITECTURES {
            for change in [remove, replace, push_and_pop, replace_and_push, replace_twice] {
                holds(move || writing::<Shuttle>(architecture, 3, change));
            }
        }
    }

    const CONNECTION: ProcessArchitecture = ProcessArchitecture::Connection;

    #[test]
    fn arrivals_that_are_forgotten_are_found() {
        fails("messages received", || {
            receiving::<Planted<Shuttle, ForgottenArrivals>>(CONNECTION, 4, ReadBy::Changer, remove);
        });
    }

    #[test]
    fn what_a_module_held_behind_what_came_later_is_found() {
        fails("messages received", || {
            receiving::<Planted<Shuttle, LeftoversLast>>(CONNECTION, 4, ReadBy::Changer, remove)
        });
    }

    #[test]
    fn a_successor_that_has_left_is_found() {
        fails("messages received", || {
            receiving::<Planted<Shuttle, StaleSuccessor>>(CONNECTION, 4, ReadBy::Changer, remove)
        });
    }

    #[test]
    fn a_wake_up_that_is_left_out_is_found() {
        fails("deadlock", || receiving::<Planted<Shuttle, NoWake>>(CONNECTION, 4, ReadBy::Changer, remove));
    }
}
