//! Changing a stream in use, on threads: no message is lost, repeated or overtaken, and each passes the old module or the new.

use std::thread;

use asx::{Bottom, Catalogue, ChangeError, Message, Module, Passed, Queue, Stream, WaterMarks, memory};
use testbed::limit::within;

const ALL: [&str; 4] = ["caller", "connection", "message:3", "layer"];

/// Puts its mark behind each message.
struct Mark(u8);

impl Queue for Mark {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        let mut bytes = message.into_bytes().map_err(|_| "no bytes")?;
        bytes.push(self.0);
        to.on(Message::bytes(bytes));
        Ok(())
    }
}

fn mark(name: &str, mark: u8) -> Module {
    Module::new(name, Mark(mark), Mark(mark)).marks(WaterMarks::new(4, 12))
}

fn numbered(number: u16) -> Message {
    Message::bytes(number.to_be_bytes())
}

const COUNT: u16 = 400;

/// The messages that have come, in order, each with the marks of one module between those of the lower and the upper one.
fn check(came: &[Vec<u8>], lower: u8, upper: u8) {
    assert_eq!(came.len(), usize::from(COUNT));
    let mut generation = 0;
    for (n, bytes) in came.iter().enumerate() {
        assert_eq!(bytes[..2], (n as u16).to_be_bytes(), "order");
        let [first, middle @ .., last] = &bytes[2..] else { panic!("no marks: {bytes:?}") };
        assert_eq!((*first, *last), (lower, upper));
        let [middle] = middle else { panic!("not one module in the middle: {bytes:?}") };
        assert!(*middle >= generation, "module {middle} after {generation}");
        generation = *middle;
    }
}

#[test]
fn a_module_in_the_middle_is_replaced_under_load_in_both_directions() {
    within(|| {
        for architecture in ALL {
            let (here, there) = memory::pair(4);
            let modules = vec![mark("upper", b'u'), mark("middle", 0), mark("lower", b'l')];
            let stream: Stream =
                Stream::over(here, architecture.parse().unwrap(), modules, WaterMarks::new(4, 12)).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| (0..COUNT).for_each(|n| stream.write(numbered(n)).unwrap()));
                scope.spawn(|| (0..COUNT).for_each(|n| there.send(numbered(n)).unwrap()));
                let down = scope.spawn(|| {
                    (0..COUNT).map(|_| there.receive().unwrap().unwrap().into_bytes().unwrap()).collect::<Vec<_>>()
                });
                let up = scope.spawn(|| {
                    (0..COUNT).map(|_| stream.read().unwrap().unwrap().into_bytes().unwrap()).collect::<Vec<_>>()
                });
                for generation in 1..=20 {
                    let old = stream.replace("middle", mark("middle", generation)).expect("it is replaced");
                    assert_eq!(old.name(), "middle");
                    thread::yield_now();
                }
                check(&down.join().unwrap(), b'u', b'l');
                check(&up.join().unwrap(), b'l', b'u');
            });
        }
    });
}

#[test]
fn modules_are_pushed_and_popped_under_load_and_nothing_is_lost() {
    within(|| {
        for architecture in ALL {
            let (here, there) = memory::pair(4);
            let stream: Stream =
                Stream::over(here, architecture.parse().unwrap(), vec![mark("lower", b'l')], WaterMarks::new(4, 12))
                    .unwrap();
            thread::scope(|scope| {
                scope.spawn(|| (0..COUNT).for_each(|n| stream.write(numbered(n)).unwrap()));
                scope.spawn(|| (0..COUNT).for_each(|n| there.send(numbered(n)).unwrap()));
                let down = scope.spawn(|| {
                    (0..COUNT).map(|_| there.receive().unwrap().unwrap().into_bytes().unwrap()).collect::<Vec<_>>()
                });
                let up = scope.spawn(|| {
                    (0..COUNT).map(|_| stream.read().unwrap().unwrap().into_bytes().unwrap()).collect::<Vec<_>>()
                });
                for _ in 0..20 {
                    stream.push(mark("pushed", b'p')).expect("it is pushed");
                    thread::yield_now();
                    assert_eq!(stream.pop().expect("it is popped").name(), "pushed");
                }
                for (came, with) in [(down.join().unwrap(), *b"pl"), (up.join().unwrap(), *b"lp")] {
                    for (n, bytes) in came.iter().enumerate() {
                        assert_eq!(bytes[..2], (n as u16).to_be_bytes(), "order");
                        assert!(bytes[2..] == *b"l" || bytes[2..] == with, "{bytes:?}");
                    }
                }
            });
            assert_eq!(stream.modules(), ["lower"]);
        }
    });
}

/// The thread that changes a stream may be the only one that reads from it.
#[test]
fn a_change_does_not_wait_for_the_application_to_read() {
    within(|| {
        for architecture in ALL {
            let (here, there) = memory::pair(64);
            let modules = vec![mark("upper", b'u'), mark("lower", b'l')];
            let stream: Stream =
                Stream::over(here, architecture.parse().unwrap(), modules, WaterMarks::new(3, 6)).unwrap();
            (0..50).for_each(|n| there.send(numbered(n)).unwrap());
            there.end().unwrap();
            thread::yield_now();
            stream.replace("lower", mark("lower", b'L')).unwrap();
            stream.pop().unwrap();
            for n in 0..50_u16 {
                let bytes = stream.read().unwrap().expect("a message").into_bytes().unwrap();
                assert_eq!(bytes[..2], n.to_be_bytes());
            }
            assert!(stream.read().unwrap().is_none());
        }
    });
}

/// Holds written messages until it is removed.
struct Keeps(Vec<Message>);

impl Queue for Keeps {
    fn svc(&mut self, message: Message, _: &mut Passed) -> Result<(), String> {
        self.0.push(message);
        Ok(())
    }

    fn close(&mut self, to: &mut Passed) {
        self.0.drain(..).for_each(|message| to.on(message));
    }
}

/// The thread that makes the change sends it: no other call is needed.
#[test]
fn what_a_module_held_of_what_was_written_is_sent() {
    within(|| {
        for architecture in ALL {
            let (here, there) = memory::pair(4);
            let stream = Stream::new(here, architecture.parse().unwrap());
            stream.push(mark("lower", b'l')).unwrap();
            stream.push(Module::new("keeps", Keeps(Vec::new()), Keeps(Vec::new()))).unwrap();
            (0..2).for_each(|n| stream.write(numbered(n)).unwrap());
            stream.pop().unwrap();
            for n in 0..2_u8 {
                assert_eq!(there.receive().unwrap().unwrap().as_bytes(), Some(&[0, n, b'l'][..]), "{architecture}");
            }
        }
    });
}

#[test]
fn what_a_module_holds_when_it_is_popped_is_not_lost() {
    within(|| {
        for architecture in ALL {
            let (here, there) = memory::pair(4);
            let modules = Catalogue::default().modules("frame max=100").unwrap();
            let stream: Stream =
                Stream::over(here, architecture.parse().unwrap(), modules, WaterMarks::default()).unwrap();
            // A record, and the beginning of another.
            there.send(vec![0x80, 0, 0, 1, 7, 0x80, 0, 0, 3, 1].into()).unwrap();
            assert_eq!(stream.read().unwrap().unwrap().as_bytes(), Some(&[7][..]));
            stream.pop().unwrap();
            assert_eq!(stream.read().unwrap().unwrap().as_bytes(), Some(&[0x80, 0, 0, 3, 1][..]));
            there.send(vec![2, 3].into()).unwrap();
            assert_eq!(stream.read().unwrap().unwrap().as_bytes(), Some(&[2, 3][..]));
        }
    });
}

#[test]
fn a_change_that_cannot_be_made_changes_nothing() {
    let (here, _there) = memory::pair(4);
    let stream = Stream::new(here, "caller".parse().unwrap());
    assert_eq!(stream.pop().unwrap_err(), ChangeError::NoModules);
    stream.push(mark("one", 1)).unwrap();
    stream.push(mark("two", 2)).unwrap();
    assert_eq!(stream.push(mark("one", 1)).unwrap_err(), ChangeError::NameInUse("one".into()));
    assert_eq!(stream.replace("one", mark("two", 1)).unwrap_err(), ChangeError::NameInUse("two".into()));
    assert_eq!(stream.replace("three", mark("four", 1)).unwrap_err(), ChangeError::NoSuchModule("three".into()));
    assert_eq!(stream.remove("three").unwrap_err(), ChangeError::NoSuchModule("three".into()));
    assert_eq!(stream.modules(), ["two", "one"]);
    assert_eq!(stream.remove("one").unwrap().name(), "one");
    assert_eq!(stream.modules(), ["two"]);
    stream.close();
    assert!(matches!(stream.push(mark("one", 1)), Err(ChangeError::Stream(_))));
}
