//! Threads confined to some processors. Alone in its process, because every thread that is started meanwhile is confined.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use lab::confined::Threads;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that the calling thread may run on.
fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// A thread that reports its processors when it is asked to.
struct Reporting {
    ask: Sender<()>,
    thread: thread::JoinHandle<Vec<usize>>,
}

impl Reporting {
    /// Starts it, pinned to `cpu`, if that is said.
    fn start(cpu: Option<usize>) -> Reporting {
        let (ask, asked) = channel();
        let (ready, is_ready) = channel();
        let thread = thread::spawn(move || {
            if let Some(cpu) = cpu {
                let mut set = CpuSet::new();
                set.set(cpu);
                sched_setaffinity(None, &set).unwrap();
            }
            ready.send(()).unwrap();
            asked.recv().unwrap();
            allowed_cpus()
        });
        is_ready.recv().unwrap();
        Reporting { ask, thread }
    }

    fn answer(self) -> Vec<usize> {
        self.ask.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

#[test]
fn threads_that_are_started_later_run_on_the_first_processors_alone() {
    let all = allowed_cpus();
    let last = all[all.len() - 1];

    // More processors than the process has are all of them, and a pinned thread stays where it is.
    let before = Threads::now().unwrap();
    let later = [Reporting::start(None), Reporting::start(Some(last))];
    before.confine_later_ones(all.len() + 1).unwrap();
    assert_eq!(later.map(Reporting::answer), [all.clone(), vec![last]]);

    let earlier = Reporting::start(None);
    let before = Threads::now().unwrap();
    let later = [Reporting::start(None), Reporting::start(Some(all[0])), Reporting::start(Some(last))];
    before.confine_later_ones(1).unwrap();
    assert_eq!(earlier.answer(), all, "it was there before");
    assert_eq!(later.map(Reporting::answer), [&all[..1]; 3]);
}
