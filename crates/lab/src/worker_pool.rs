//! Threads that work for a slice and sleep until the next one.
//!
//! Each thread owns its share of the connections permanently. A slice is one message to every thread (a deadline) and
//! one reply from each (work done, and its cost), so an idle pool blocks in a channel and uses no CPU. Cost is read
//! inside the thread, around the work only: the sleep between slices is not counted.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::sched_setaffinity;

use vsmp::workload::measured::jain_fairness;

use crate::confined::{allowed_cpus, set_of};
use crate::cpu::Usage;
use crate::sampling::Slice;

/// The result of a thread in a slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Bytes delivered to receivers.
    pub bytes: u64,
    /// Messages, transactions or connections completed.
    pub operations: u64,
    /// Of `bytes`, those of each connection; empty where the workload does not count them.
    pub by_connection: Vec<u64>,
}

/// One thread's share of a workload.
pub(crate) trait Work: Send {
    /// Works until `deadline`, to within a batch of events, and adds to `sample`.
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()>;
}

type Answer = io::Result<(Sample, Usage)>;

#[derive(Debug)]
pub(crate) struct WorkerPool {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    /// `None` once the thread is to end.
    deadlines: Option<Sender<Instant>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerPool {
    /// One pinned thread for each piece of work.
    pub(crate) fn start(name: &str, work: Vec<Box<dyn Work>>) -> io::Result<WorkerPool> {
        let cpus = allowed_cpus();
        let mut worker_pool = WorkerPool { workers: Vec::with_capacity(work.len()) };
        for (index, work) in work.into_iter().enumerate() {
            let (deadlines, orders) = channel();
            let (reply, answers) = channel();
            let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let thread = thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || serve(work, cpu, &orders, &reply))?;
            worker_pool.workers.push(Worker { deadlines: Some(deadlines), answers, thread: Some(thread) });
        }
        Ok(worker_pool)
    }

    /// Runs every thread until `duration` from now and adds up their results. Waits for all, even when one failed.
    pub(crate) fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
        let started = Instant::now();
        for worker in &self.workers {
            // A thread that has ended does not reply, which is detected below.
            let _ = worker.deadlines.as_ref().map(|deadlines| deadlines.send(started + duration));
        }
        let gone = || io::Error::other("a benchmark thread has ended: open the benchmark again");
        let answers: Vec<Answer> =
            self.workers.iter().map(|worker| worker.answers.recv().unwrap_or_else(|_| Err(gone()))).collect();
        let mut slice = Slice { wall: started.elapsed(), ..Slice::default() };
        let mut by_connection = Vec::new();
        for answer in answers {
            let (sample, usage) = answer?;
            by_connection.extend(sample.by_connection);
            slice.bytes += sample.bytes;
            slice.operations += sample.operations;
            slice.cpu += usage.cpu;
            slice.switches += usage.switches;
        }
        slice.fairness = jain_fairness(&by_connection);
        Ok(slice)
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.deadlines = None;
        }
        for worker in &mut self.workers {
            // A thread that panicked has reported it on standard error; there is nothing left to close.
            let _ = worker.thread.take().map(JoinHandle::join);
        }
    }
}

fn serve(mut work: Box<dyn Work>, cpu: Option<usize>, orders: &Receiver<Instant>, reply: &Sender<Answer>) {
    if let Some(cpu) = cpu {
        // Fails only if a cpuset shrank since it was read; the thread then stays unpinned.
        let _ = sched_setaffinity(None, &set_of(&[cpu]));
    }
    for deadline in orders {
        if reply.send(slice(work.as_mut(), deadline)).is_err() {
            return;
        }
    }
}

fn slice(work: &mut dyn Work, deadline: Instant) -> Answer {
    let before = Usage::of_thread()?;
    let mut sample = Sample::default();
    work.run(deadline, &mut sample)?;
    Ok((sample, Usage::of_thread()? - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u64);
    impl Work for Counting {
        fn run(&mut self, _: Instant, sample: &mut Sample) -> io::Result<()> {
            self.0 -= 1;
            sample.bytes += 10;
            sample.operations += 1;
            sample.by_connection.push(self.0);
            if self.0 == 0 { Err(io::Error::other("spent")) } else { Ok(()) }
        }
    }

    #[test]
    fn a_slice_adds_up_all_threads_and_reports_a_failure() {
        let mut worker_pool = WorkerPool::start("test", vec![Box::new(Counting(3)), Box::new(Counting(2))]).unwrap();
        let slice = worker_pool.run_slice(Duration::ZERO).unwrap();
        assert_eq!((slice.bytes, slice.operations), (20, 2));
        // Shares of 2 and 1: 9 / (2 * 5).
        assert_eq!(slice.fairness, Some(0.9));
        assert_eq!(worker_pool.run_slice(Duration::ZERO).unwrap_err().to_string(), "spent");
    }

    struct Panicking;
    impl Work for Panicking {
        fn run(&mut self, _: Instant, _: &mut Sample) -> io::Result<()> {
            std::panic::resume_unwind(Box::new("quietly"))
        }
    }

    #[test]
    fn a_thread_that_panics_is_an_error_and_not_a_hang() {
        let mut worker_pool = WorkerPool::start("test", vec![Box::new(Panicking)]).unwrap();
        assert!(worker_pool.run_slice(Duration::ZERO).unwrap_err().to_string().contains("has ended"));
        assert!(worker_pool.run_slice(Duration::ZERO).is_err());
    }
}
