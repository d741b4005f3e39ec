//! The scheduler: one run queue by priority for all CPUs, time slices, sleepers, and the costs of scheduling.
//!
//! A thread that becomes ready goes to an idle CPU (the one it had last, else the first), or takes the CPU of a less
//! important thread, or queues. Threads that are pinned stay. A thread loses its CPU at its next step that others can
//! see, not in the middle of plain work.
//!
//! What may never happen: a thread that is ready and on no queue, and a CPU that is idle while a thread that may use it
//! is queued.

use std::rc::Rc;

use sync::lock_order::HeldLocks;
use sync::{LockClass, ThreadClass};

use crate::costs::PRIORITIES;
use crate::ledger::{Part, SwitchKind};
use crate::machine::message;
use crate::state::{Event, Life, State, Thread, Wait};

impl State {
    /// A new thread, ready to run once it has its fiber.
    pub(crate) fn add_thread(&mut self, name: &str, pinned: Option<usize>, class: ThreadClass) -> usize {
        let priority = self.costs.priorities[class as usize].min(PRIORITIES as u8 - 1);
        self.threads.push(Thread {
            name: name.to_owned(),
            fiber: None,
            life: Life::Ready,
            priority,
            own_priority: priority,
            pinned: pinned.map(|cpu| cpu % self.cpus.len()),
            last_cpu: 0,
            reached: 0,
            sleeps: 0,
            held: Rc::new(HeldLocks::new()),
            in_callback: false,
            panic: None,
        });
        self.threads.len() - 1
    }

    /// A system call of the running thread.
    pub(crate) fn enter_kernel(&mut self) {
        self.spend(Part::SystemCall, self.costs.system_call);
    }

    /// The running thread goes to sleep.
    pub(crate) fn fall_asleep(&mut self, thread: usize, wait: Wait, timeout: Option<u64>) {
        let entry = &mut self.threads[thread];
        entry.life = Life::Asleep(wait);
        entry.sleeps += 1;
        let sleep = entry.sleeps;
        self.sleepers.entry(wait).or_default().push_back(thread);
        if let Some(timeout) = timeout {
            self.schedule(self.clock.saturating_add(timeout), Event::Timeout { thread, sleep });
        }
    }

    /// Wakes up to `n` sleepers, in the order in which they went to sleep. The cost is the running thread's, if there
    /// is one.
    pub(crate) fn wake_sleepers(&mut self, wait: Wait, n: u32) {
        for _ in 0..n {
            let Some(queue) = self.sleepers.get_mut(&wait) else { return };
            let Some(thread) = queue.pop_front() else { return };
            if queue.is_empty() {
                self.sleepers.remove(&wait);
            }
            if self.current.is_some() {
                self.account.wakes += 1;
                let (cycles, lines) = (self.costs.wake, self.costs.wake_lines);
                self.schedule_work(thread, Part::Wake, cycles, lines);
                if self.idle_cpu(thread).is_some() {
                    self.spend(Part::Wake, self.costs.wake_idle);
                }
            }
            self.make_ready(thread, self.clock);
        }
    }

    /// The running thread begins to keep its CPU. False: another, sleeping thread keeps it; the running one sleeps
    /// until that has ended.
    pub(crate) fn mask(&mut self, thread: usize) -> bool {
        match &mut self.masked {
            Some((holder, depth)) if *holder == thread => *depth += 1,
            Some(_) => {
                self.fall_asleep(thread, Wait::Unmasked, None);
                return false;
            }
            None => self.masked = Some((thread, 1)),
        }
        true
    }

    /// Whether a thread keeps its CPU.
    fn is_masking(&self, thread: usize) -> bool {
        self.masked.is_some_and(|(holder, _)| holder == thread)
    }

    /// The running thread may lose its CPU again, at its next step at the earliest.
    pub(crate) fn unmask(&mut self) {
        match &mut self.masked {
            Some((_, depth)) if *depth > 1 => *depth -= 1,
            _ => {
                self.masked = None;
                self.wake_sleepers(Wait::Unmasked, u32::MAX);
                if std::mem::take(&mut self.preemption_due) {
                    self.horizon = 0;
                }
            }
        }
    }

    /// A sleep has lasted long enough, unless it has ended already.
    pub(crate) fn time_out(&mut self, thread: usize, sleep: u64) {
        let Thread { life: Life::Asleep(wait), sleeps, .. } = self.threads[thread] else { return };
        if sleeps == sleep {
            if let Some(queue) = self.sleepers.get_mut(&wait) {
                queue.retain(|sleeper| *sleeper != thread);
                if queue.is_empty() {
                    self.sleepers.remove(&wait);
                }
            }
            self.make_ready(thread, self.clock);
        }
    }

    /// Finds a place for a thread that is ready.
    pub(crate) fn make_ready(&mut self, thread: usize, at: u64) {
        self.threads[thread].life = Life::Ready;
        let Thread { pinned, last_cpu, priority, .. } = self.threads[thread];
        if let Some(cpu) = self.idle_cpu(thread) {
            return self.put_on(cpu, thread, at, SwitchKind::FromIdle);
        }
        match self.victim(pinned, last_cpu, priority) {
            Some(cpu) if self.current.is_some() && cpu == self.cpu => {
                // The victim is the calling CPU: it is preempted at its next step.
                self.ready[usize::from(priority)].push_back(thread);
                self.horizon = 0;
            }
            Some(cpu) => {
                self.take_off(cpu, false, at);
                self.put_on(cpu, thread, at, SwitchKind::Preempted);
            }
            None => self.ready[usize::from(priority)].push_back(thread),
        }
    }

    /// The CPU with the least important thread, if that is less important than `priority`.
    fn victim(&mut self, pinned: Option<usize>, last: usize, priority: u8) -> Option<usize> {
        let running = |cpu: usize| self.cpus[cpu].thread.map_or(0, |thread| self.threads[thread].priority);
        let cpu = match pinned {
            Some(cpu) => cpu,
            None => (0..self.cpus.len()).max_by_key(|&cpu| (running(cpu), cpu == last))?,
        };
        let less = running(cpu) > priority;
        if less && self.cpus[cpu].thread.is_some_and(|thread| self.is_masking(thread)) {
            self.preemption_due = true;
            return None;
        }
        less.then_some(cpu)
    }

    /// The CPU that a thread goes to if it can have one at once: the one it had last, or the first idle one.
    fn idle_cpu(&self, thread: usize) -> Option<usize> {
        let Thread { pinned, last_cpu, .. } = self.threads[thread];
        let idle = |cpu: &usize| self.cpus[*cpu].thread.is_none() && self.cpus[*cpu].idle_since.is_some();
        match pinned {
            Some(cpu) => Some(cpu).filter(idle),
            None => Some(last_cpu).filter(idle).or_else(|| (0..self.cpus.len()).find(idle)),
        }
    }

    /// A CPU's thread goes to an idle one, or back into its queue: to the end if its slice is over, else to the front.
    fn take_off(&mut self, cpu: usize, expired: bool, at: u64) {
        let Some(thread) = self.cpus[cpu].thread.take() else { return };
        self.account.preemptions += 1;
        self.threads[thread].life = Life::Ready;
        self.end_all_spins(at);
        self.threads[thread].reached = self.cpus[cpu].clock;
        if let Some(idle) = self.idle_cpu(thread) {
            return self.put_on(idle, thread, at, SwitchKind::FromIdle);
        }
        let queue = &mut self.ready[usize::from(self.threads[thread].priority)];
        if expired {
            queue.push_back(thread);
        } else {
            queue.push_front(thread);
        }
    }

    /// A free CPU gets a thread, once it is as far in time as the thread. The change is on the CPU's account.
    fn put_on(&mut self, cpu: usize, thread: usize, at: u64, kind: SwitchKind) {
        let was_idle = self.cpus[cpu].idle_since.take().is_some();
        let at = at.max(self.threads[thread].reached);
        self.pass(cpu, if was_idle { Part::Idle } else { Part::HeldUp }, at);
        let clock = self.cpus[cpu].clock;
        let entry = &mut self.threads[thread];
        (entry.life, entry.last_cpu) = (Life::Running, cpu);
        self.cpus[cpu].thread = Some(thread);
        // Charges that CPU as if it ran now.
        let here = (self.clock, self.cpu);
        (self.clock, self.cpu) = (clock, cpu);
        if was_idle {
            self.spend(Part::IdleExit, self.costs.idle_exit);
        }
        let (cycles, lines) = (self.costs.switch, self.costs.switch_lines);
        self.schedule_work(thread, Part::Switch, cycles, lines);
        let done = self.clock;
        (self.clock, self.cpu) = here;
        self.count_switch(kind);
        self.cpus[cpu].clock = done;
        self.cpus[cpu].slice_end = done + self.costs.slice;
        self.horizon = self.horizon.min(done);
    }

    /// The most important thread that waits for a CPU and may use this one, if its priority is below `bound`.
    fn next_ready(&mut self, cpu: usize, bound: u8) -> Option<usize> {
        for priority in 0..usize::from(bound) {
            let fits = |thread: &usize| self.threads[*thread].pinned.is_none_or(|pinned| pinned == cpu);
            if let Some(place) = self.ready[priority].iter().position(fits) {
                return self.ready[priority].remove(place);
            }
        }
        None
    }

    /// The running thread yields its CPU to a waiting thread of the same priority. False: there is none.
    pub(crate) fn give_way(&mut self, thread: usize) -> bool {
        let cpu = self.cpu;
        let bound = self.threads[thread].priority + 1;
        if self.is_masking(thread) {
            return false;
        }
        let Some(next) = self.next_ready(cpu, bound) else { return false };
        (self.threads[thread].life, self.threads[thread].reached) = (Life::Ready, self.clock);
        self.ready[usize::from(self.threads[thread].priority)].push_back(thread);
        (self.cpus[cpu].thread, self.cpus[cpu].clock) = (None, self.clock);
        self.end_all_spins(self.clock);
        self.put_on(cpu, next, self.clock, SwitchKind::GaveWay);
        true
    }

    /// A thread runs at least at the priority of the running one.
    pub(crate) fn lend_priority(&mut self, from: usize, to: usize) {
        let lent = self.threads[from].priority;
        let Some(Thread { life, priority, .. }) = self.threads.get(to) else { return };
        if *priority <= lent {
            return;
        }
        let (queued, old) = (*life == Life::Ready, usize::from(*priority));
        self.threads[to].priority = lent;
        if queued {
            self.ready[old].retain(|thread| *thread != to);
            self.make_ready(to, self.clock);
        }
    }

    /// The running thread has its own priority again. It may therefore lose its CPU, at its next step.
    pub(crate) fn repay_priority(&mut self, thread: usize) {
        let entry = &mut self.threads[thread];
        if entry.priority != entry.own_priority {
            entry.priority = entry.own_priority;
            self.horizon = 0;
        }
    }

    /// The running thread has switched back to the run loop, or has ended: its CPU continues with it or with another.
    pub(crate) fn turn_ends(&mut self, thread: usize, cpu: usize) {
        self.cpus[cpu].clock = self.cpus[cpu].clock.max(self.clock);
        if self.cpus[cpu].thread != Some(thread) {
            return;
        }
        let clock = self.cpus[cpu].clock;
        if self.threads[thread].life != Life::Running {
            self.threads[thread].reached = clock;
            self.cpus[cpu].thread = None;
            self.end_all_spins(clock);
            match self.next_ready(cpu, PRIORITIES as u8) {
                Some(next) => self.put_on(cpu, next, clock, SwitchKind::AfterSleep),
                None => self.cpus[cpu].idle_since = Some(clock),
            }
            return;
        }
        if self.is_masking(thread) {
            self.preemption_due = true;
            return;
        }
        let expired = clock > self.cpus[cpu].slice_end;
        let bound = self.threads[thread].priority + u8::from(expired);
        if let Some(next) = self.next_ready(cpu, bound) {
            self.take_off(cpu, expired, clock);
            let kind = if expired { SwitchKind::SliceOver } else { SwitchKind::Preempted };
            self.put_on(cpu, next, clock, kind);
        } else if expired {
            self.cpus[cpu].slice_end = clock + self.costs.slice;
        }
    }

    /// Every thread and its activity, for the report of a deadlock. Words are numbered in the order of the report, so
    /// that runs of one schedule have equal reports.
    pub(crate) fn describe(&self) -> String {
        let mut words: Vec<usize> = Vec::new();
        let mut word = |address: usize| match words.iter().position(|word| *word == address) {
            Some(place) => place + 1,
            None => {
                words.push(address);
                words.len()
            }
        };
        let mut one = |(number, thread): (usize, &Thread)| {
            let wanted = thread.held.wanted().map_or("", |class| class.name());
            let doing = match thread.life {
                Life::Ready => "waits for a CPU".to_owned(),
                Life::Running if self.cpus[thread.last_cpu].spins_on.is_some() => "spins".to_owned(),
                Life::Running => format!("runs on CPU {}", thread.last_cpu),
                Life::Asleep(Wait::Word(address)) if wanted.is_empty() => {
                    format!("sleeps until a thread wakes the sleepers on word {}", word(address))
                }
                Life::Asleep(Wait::Word(address)) => {
                    format!("waits for a lock of class {wanted}, asleep on word {}", word(address))
                }
                Life::Asleep(Wait::Unmasked) => "waits until no thread masks the CPU".to_owned(),
                Life::Asleep(Wait::End(other)) => format!("waits for the end of {}", self.threads[other].name),
                Life::Over => match &thread.panic {
                    Some(panic) => format!("has panicked: {}", message(&**panic)),
                    None => "has ended".to_owned(),
                },
            };
            let held: Vec<_> = thread.held.classes().into_iter().map(LockClass::name).collect();
            let holds = if held.is_empty() { String::new() } else { format!(", and holds {}", held.join(", ")) };
            format!("thread {number} ({}) {doing}{holds}", thread.name)
        };
        self.threads.iter().enumerate().map(&mut one).collect::<Vec<_>>().join("\n")
    }
}
