//! Which CPU goes on next.
//!
//! [`TimeOrdered`] is for figures: steps happen in the order of virtual time. It finds few mistakes, because it
//! produces only few of the possible schedules. [`Random`] and [`Pct`] are for finding mistakes: they let any CPU run,
//! regardless of its clock. [`Recorded`] records the choices of another order, and [`Replay`] repeats them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A CPU that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub cpu: usize,
    /// The thread on it.
    pub thread: usize,
    /// Its clock, in cycles.
    pub clock: u64,
}

/// A choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The index of the candidate.
    pub candidate: usize,
    /// It runs while its clock is at most this; then there is another choice.
    pub until: u64,
}

/// Chooses among CPUs. Called with at least one candidate, in the order of CPUs.
pub trait Order {
    /// The next CPU to run.
    fn next(&mut self, candidates: &[Candidate]) -> Turn;

    /// Cycles by which the next turn of a spin loop takes longer.
    fn delay(&mut self) -> u64 {
        0
    }

    /// A thread spins, or yields its CPU: it must not run for ever, whatever its priority.
    fn yields(&mut self, _thread: usize) {}

    /// Whether clocks determine the order. Otherwise a CPU that runs has at least the time of the last one that ran, so
    /// that time does not go back.
    fn is_by_time(&self) -> bool {
        false
    }
}

impl Order for Box<dyn Order> {
    fn next(&mut self, candidates: &[Candidate]) -> Turn {
        (**self).next(candidates)
    }

    fn yields(&mut self, thread: usize) {
        (**self).yields(thread);
    }

    fn is_by_time(&self) -> bool {
        (**self).is_by_time()
    }
}

/// Least clock first; of equal ones, the lowest number.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeOrdered;

impl Order for TimeOrdered {
    fn next(&mut self, candidates: &[Candidate]) -> Turn {
        let (mut first, mut until) = (0, u64::MAX);
        for (index, candidate) in candidates.iter().enumerate().skip(1) {
            if candidate.clock < candidates[first].clock {
                until = candidates[first].clock;
                first = index;
            } else {
                until = until.min(candidate.clock);
            }
        }
        Turn { candidate: first, until }
    }

    fn is_by_time(&self) -> bool {
        true
    }
}

/// As [`TimeOrdered`], but the choice between CPUs with equal clocks is random: CPUs that spin for a lock see its release at
/// one time, and nothing determines which of them the bus serves first. For the same reason a turn of a spin loop takes up
/// to `jitter` cycles longer. Without both, loops of constant length keep in step: two threads take an unfair lock by turns,
/// and the others never get it.
#[derive(Clone, Copy, Debug)]
pub struct Arbitrated {
    random: Generator,
    jitter: usize,
}

impl Arbitrated {
    /// The choices of a seed; `jitter`: the most cycles by which a turn of a spin loop takes longer.
    pub fn new(seed: u64, jitter: u64) -> Arbitrated {
        Arbitrated { random: Generator::new(seed), jitter: jitter as usize + 1 }
    }
}

impl Order for Arbitrated {
    fn next(&mut self, candidates: &[Candidate]) -> Turn {
        let least = candidates.iter().map(|candidate| candidate.clock).min().unwrap_or_default();
        let first = || candidates.iter().enumerate().filter(|(_, candidate)| candidate.clock == least);
        let count = first().count();
        let chosen = if count > 1 { self.random.below(count) } else { 0 };
        let candidate = first().nth(chosen).map_or(0, |(index, _)| index);
        let others = candidates.iter().enumerate().filter(|(index, _)| *index != candidate);
        Turn { candidate, until: others.map(|(_, other)| other.clock).min().unwrap_or(u64::MAX) }
    }

    fn delay(&mut self) -> u64 {
        self.random.below(self.jitter) as u64
    }

    fn is_by_time(&self) -> bool {
        true
    }
}

/// Random numbers from a seed (SplitMix64, Steele et al. 2014).
#[derive(Clone, Copy, Debug)]
pub struct Generator(u64);

impl Generator {
    /// The random sequence of a seed.
    pub fn new(seed: u64) -> Generator {
        Generator(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }
}

/// Any CPU, with equal chances, at each step that others can see.
#[derive(Clone, Copy, Debug)]
pub struct Random(Generator);

impl Random {
    /// The schedules of a seed.
    pub fn new(seed: u64) -> Random {
        Random(Generator::new(seed))
    }
}

impl Order for Random {
    fn next(&mut self, candidates: &[Candidate]) -> Turn {
        Turn { candidate: self.0.below(candidates.len()), until: 0 }
    }
}

/// Probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010): threads have random priorities, the highest goes
/// on, and at a few random steps the one that goes on becomes the lowest. A mistake that needs `d` ordered steps among
/// `k` is found with a chance of at least `1 / (n * k^(d - 1))`.
#[derive(Clone, Debug)]
pub struct Pct {
    random: Generator,
    priorities: HashMap<usize, i64>,
    /// Steps at which a priority drops, in order, and how many steps there were.
    drops: Vec<u64>,
    steps: u64,
    /// The priority for the next thread that drops: lower than every priority given so far.
    least: i64,
}

impl Pct {
    /// The schedules of a seed, for mistakes of `depth` ordered steps among about `steps` in all.
    pub fn new(seed: u64, depth: usize, steps: u64) -> Pct {
        let mut random = Generator::new(seed);
        let mut drops: Vec<u64> = (1..depth).map(|_| random.draw() % steps.max(1)).collect();
        drops.sort_unstable();
        Pct { random, priorities: HashMap::new(), drops, steps: 0, least: 0 }
    }
}

impl Order for Pct {
    fn next(&mut self, candidates: &[Candidate]) -> Turn {
        for candidate in candidates {
            let random = &mut self.random;
            self.priorities.entry(candidate.thread).or_insert_with(|| (random.draw() >> 2) as i64);
        }
        let highest = |priorities: &HashMap<usize, i64>| {
            let priority = |index: &usize| priorities[&candidates[*index].thread];
            (0..candidates.len()).max_by_key(priority).unwrap_or(0)
        };
        let mut candidate = highest(&self.priorities);
        if self.drops.first() == Some(&self.steps) {
            self.drops.remove(0);
            self.yields(candidates[candidate].thread);
            candidate = highest(&self.priorities);
        }
        self.steps += 1;
        Turn { candidate, until: 0 }
    }

    fn yields(&mut self, thread: usize) {
        self.least -= 1;
        self.priorities.insert(thread, self.least);
    }
}

/// Another order, in which a thread is delayed now and then: it gets no turn for a number of others' turns, like a
/// thread whose CPU another program or an interrupt has taken.
#[derive(Clone, Debug)]
pub struct Delayed<O> {
    order: O,
    random: Generator,
    /// One in this many turns begins a delay.
    one_in: usize,
    longest: usize,
    turns: u64,
    /// The delayed threads, and the turn after which each may run again.
    held_up: Vec<(usize, u64)>,
}

impl<O: Order> Delayed<O> {
    /// Delays the thread that would be next, in one of `one_in` turns, for up to `longest` turns.
    pub fn new(order: O, seed: u64, one_in: usize, longest: usize) -> Delayed<O> {
        Delayed { order, random: Generator::new(seed), one_in, longest, turns: 0, held_up: Vec::new() }
    }

    fn free(&self, candidates: &[Candidate]) -> Vec<usize> {
        let is_free = |thread: usize| self.held_up.iter().all(|(other, _)| *other != thread);
        (0..candidates.len()).filter(|index| is_free(candidates[*index].thread)).collect()
    }
}

impl<O: Order> Order for Delayed<O> {
    fn next(&mut self, candidates: &[Candidate]) -> Turn {
        self.turns += 1;
        let turns = self.turns;
        self.held_up.retain(|(_, until)| *until > turns);
        let mut free = self.free(candidates);
        if free.is_empty() {
            // If all are delayed, nothing would be gained.
            self.held_up.clear();
            free = self.free(candidates);
        }
        let left: Vec<Candidate> = free.iter().map(|index| candidates[*index]).collect();
        let turn = self.order.next(&left);
        let chosen = left[turn.candidate];
        if left.len() > 1 && self.random.below(self.one_in) == 0 {
            let length = 1 + self.random.below(self.longest) as u64;
            self.held_up.push((chosen.thread, turns + length));
        }
        Turn { candidate: free[turn.candidate], until: turn.until }
    }

    fn yields(&mut self, thread: usize) {
        self.order.yields(thread);
    }

    fn is_by_time(&self) -> bool {
        self.order.is_by_time()
    }
}

/// The CPUs that were chosen, in order.
pub type Schedule = Rc<RefCell<Vec<u16>>>;

/// Another order, whose choices are recorded.
pub struct Recorded<O> {
    order: O,
    chosen: Schedule,
}

impl<O: Order> Recorded<O> {
    /// Records the choices of `order` in `chosen`.
    pub fn new(order: O, chosen: Schedule) -> Recorded<O> {
        Recorded { order, chosen }
    }
}

impl<O: Order> Order for Recorded<O> {
    fn next(&mut self, candidates: &[Candidate]) -> Turn {
        let turn = self.order.next(candidates);
        self.chosen.borrow_mut().push(candidates[turn.candidate].cpu as u16);
        turn
    }

    fn yields(&mut self, thread: usize) {
        self.order.yields(thread);
    }

    fn is_by_time(&self) -> bool {
        self.order.is_by_time()
    }
}

/// The choices of an earlier run. After their end, the first CPU that can run does.
pub struct Replay(std::vec::IntoIter<u16>);

impl Replay {
    /// Choices as recorded by [`Recorded`].
    pub fn new(chosen: Vec<u16>) -> Replay {
        Replay(chosen.into_iter())
    }
}

impl Order for Replay {
    fn next(&mut self, candidates: &[Candidate]) -> Turn {
        let chosen = self.0.next();
        let found = chosen.and_then(|cpu| candidates.iter().position(|candidate| candidate.cpu == usize::from(cpu)));
        Turn { candidate: found.unwrap_or(0), until: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(clocks: &[u64]) -> Vec<Candidate> {
        clocks.iter().enumerate().map(|(cpu, &clock)| Candidate { cpu, thread: cpu, clock }).collect()
    }

    #[test]
    fn time_order_takes_the_least_clock_until_the_next() {
        let turn = |clocks: &[u64]| TimeOrdered.next(&candidates(clocks));
        assert_eq!(turn(&[5, 3, 9]), Turn { candidate: 1, until: 5 });
        assert_eq!(turn(&[3, 3, 9]), Turn { candidate: 0, until: 3 });
        assert_eq!(turn(&[7]), Turn { candidate: 0, until: u64::MAX });
        assert_eq!(turn(&[9, 8, 7]), Turn { candidate: 2, until: 8 });
    }

    #[test]
    fn random_orders_reach_every_cpu_and_repeat_from_their_seed() {
        let choices = |seed| {
            let mut order = Random::new(seed);
            (0..100).map(|_| order.next(&candidates(&[0; 4])).candidate).collect::<Vec<_>>()
        };
        assert_eq!(choices(1), choices(1));
        assert_ne!(choices(1), choices(2));
        assert!((0..4).all(|cpu| choices(1).contains(&cpu)));
    }

    #[test]
    fn pct_keeps_to_one_thread_between_its_drops() {
        let mut order = Pct::new(7, 3, 1000);
        let chosen: Vec<usize> = (0..1000).map(|_| order.next(&candidates(&[0; 4])).candidate).collect();
        let changes = chosen.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((1..=2).contains(&changes), "{changes}");
    }

    /// A delayed thread has no turn for a while, and the others have theirs; a thread that is alone is not delayed.
    #[test]
    fn a_delay_holds_up_one_thread_and_not_all() {
        let mut order = Delayed::new(Random::new(1), 2, 20, 100);
        let chosen: Vec<usize> = (0..20_000).map(|_| order.next(&candidates(&[0; 3])).candidate).collect();
        let last_seen =
            |cpu: usize| chosen.iter().enumerate().filter(move |(_, other)| **other == cpu).map(|(at, _)| at);
        for cpu in 0..3 {
            let turns: Vec<usize> = last_seen(cpu).collect();
            let longest = turns.windows(2).map(|pair| pair[1] - pair[0]).max().expect("it has turns");
            assert!((50..300).contains(&longest), "CPU {cpu} has no turn for {longest} others'");
        }
        assert!((0..1000).all(|_| order.next(&candidates(&[0])).candidate == 0));
    }

    #[test]
    fn a_replay_makes_the_recorded_choices() {
        let chosen = Schedule::default();
        let mut order = Recorded::new(Random::new(3), chosen.clone());
        let first: Vec<Turn> = (0..50).map(|_| order.next(&candidates(&[0; 3]))).collect();
        let mut replay = Replay::new(chosen.take());
        assert!(first.iter().all(|turn| replay.next(&candidates(&[0; 3])) == *turn));
    }
}
