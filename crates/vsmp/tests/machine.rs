//! The machine itself: time, order, sleeping and waking, priorities, deadlocks, panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use sync::{Atomic, Lock, LockClass, LockKind, Object, Ordering, Parker, Platform, Step, ThreadClass};
use vsmp::order::{Random, Recorded, Replay, Schedule};
use vsmp::{Arena, Costs, Machine, Part, Vsmp};

#[global_allocator]
static ARENA: Arena = Arena::new();

type Word = <Vsmp as Platform>::AtomicU32;

fn costs() -> Costs {
    Costs::opteron_275()
}

fn spawn(name: &str, cpu: Option<usize>, body: impl FnOnce() + Send + 'static) -> usize {
    Vsmp::spawn(name, cpu, ThreadClass::Application, body)
}

fn nap(nanos: u64) {
    Vsmp::futex_wait(&Word::new(0), 0, Some(Duration::from_nanos(nanos)));
}

#[test]
fn work_takes_its_time_and_cpus_work_side_by_side() {
    let time = |cpus: usize| {
        let work = move || {
            let threads: Vec<_> = (0..4).map(|_| spawn("works", None, || Vsmp::work(Step::Frame, 10_000))).collect();
            threads.into_iter().for_each(|thread| Vsmp::join(thread).expect("it works"));
        };
        Machine::new(cpus, costs()).run(work).1.nanos
    };
    // 1700 cycles a frame at 2200 MHz.
    let each = 10_000 * 1700 * 1000 / 2200;
    let [one, four, two] = [time(1), time(4), time(2)];
    assert!((4 * each..4 * each + each / 100).contains(&one), "{one}");
    assert!((2 * each..2 * each + each / 100).contains(&two), "{two}");
    assert!((each..each + each / 100).contains(&four), "{four}");
}

/// All virtual threads are one thread of the kernel, and callbacks of the application run on some of them.
#[test]
fn a_callback_is_seen_by_its_thread_only() {
    let program = || {
        let callback = || {
            assert!(!Vsmp::set_in_callback(true), "another thread's callback is not seen");
            nap(1000);
            assert!(Vsmp::set_in_callback(false));
        };
        let threads = ["first", "second"].map(|name| spawn(name, None, callback));
        nap(500);
        assert!(!Vsmp::in_callback());
        threads.into_iter().for_each(|thread| Vsmp::join(thread).expect("it sees its own callback"));
    };
    Machine::new(2, costs()).run(program);
}

#[test]
fn every_lock_kind_excludes() {
    for kind in LockKind::ALL.iter().copied().filter(|kind| *kind != LockKind::Null) {
        for cpus in [1, 3] {
            let program = move || {
                let lock = Arc::new(Lock::<(u32, u32), Vsmp>::new(kind, LockClass::Group, (0, 0)));
                let add = |lock: Arc<Lock<(u32, u32), Vsmp>>| {
                    move || {
                        for _ in 0..100 {
                            let mut pair = lock.lock();
                            pair.0 += 1;
                            // Longer than the others' time limit.
                            Vsmp::work(Step::Message, 1);
                            Vsmp::yield_now();
                            pair.1 += 1;
                            assert_eq!(pair.0, pair.1, "{kind} let two in");
                        }
                    }
                };
                let threads: Vec<_> = (0..4).map(|_| spawn("adds", None, add(lock.clone()))).collect();
                threads.into_iter().for_each(|thread| Vsmp::join(thread).expect("it adds"));
                *lock.lock()
            };
            assert_eq!(Machine::new(cpus, costs()).run(program).0, (400, 400), "{kind} on {cpus} CPUs");
        }
    }
}

/// The kernel for one processor: the holder of a null lock keeps the CPU, when its slice ends, when a more important
/// thread wakes up, and even when it sleeps the others stay out.
#[test]
fn on_one_cpu_a_null_lock_excludes() {
    let mut costs = costs();
    costs.priorities = [0, 1, 2, 3];
    let program = || {
        let lock = Arc::new(Lock::<(u32, u32), Vsmp>::new(LockKind::Null, LockClass::Group, (0, 0)));
        let add = |lock: Arc<Lock<(u32, u32), Vsmp>>, sleeps: bool| {
            move || {
                for _ in 0..20 {
                    {
                        let mut pair = lock.lock();
                        pair.0 += 1;
                        Vsmp::work(Step::Frame, 200);
                        Vsmp::yield_now();
                        if sleeps {
                            nap(1_000);
                        }
                        pair.1 += 1;
                        assert_eq!(pair.0, pair.1, "two were in");
                    }
                    nap(10_000);
                }
            }
        };
        let classes = [ThreadClass::Application, ThreadClass::Worker, ThreadClass::Receive];
        let spawn = |(n, class)| Vsmp::spawn("adds", None, class, add(lock.clone(), n == 1));
        let threads: Vec<_> = classes.into_iter().enumerate().map(spawn).collect();
        threads.into_iter().for_each(|thread| Vsmp::join(thread).expect("it adds"));
        *lock.lock()
    };
    let (total, outcome) = Machine::new(1, costs).run(program);
    assert_eq!(total, (60, 60));
    assert!(outcome.account.switches > 60, "others ran in between: {outcome:?}");
}

#[test]
fn sleepers_are_woken_by_others_and_by_time() {
    let ((woken, timed), outcome) = Machine::new(2, costs()).run(|| {
        let parker = Arc::new(Parker::<Vsmp>::new());
        let other = parker.clone();
        let thread = spawn("wakes", None, move || {
            nap(5_000_000);
            other.unpark();
        });
        parker.park(None);
        let woken = Vsmp::now();
        nap(1_000_000);
        Vsmp::join(thread).expect("it ends");
        (woken, Vsmp::now() - woken)
    });
    assert!((1_005_000_000..1_005_100_000).contains(&woken), "{woken}");
    assert!((1_000_000..1_100_000).contains(&timed), "{timed}");
    assert!(outcome.account.idle > 0);
}

/// A planted lost wake-up: the flag is set, and the sleeper reads it, without a common order.
#[test]
fn a_deadlock_names_every_thread_and_what_it_waits_for() {
    let hang = || {
        Machine::new(2, costs()).run(|| {
            let word = Arc::new(Word::new(0));
            let other = word.clone();
            let sleeper = spawn("sleeper", None, move || Vsmp::futex_wait(&other, 0, None));
            nap(1_000_000);
            word.store(1, Ordering::Release);
            Vsmp::join(sleeper)
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(hang)).expect_err("nobody wakes it");
    let text = panic.downcast::<String>().expect("a sentence");
    assert!(text.starts_with("deadlock"), "{text}");
    assert!(text.contains("(main) waits for the end of sleeper"), "{text}");
    assert!(text.contains("(sleeper) sleeps until a thread wakes the sleepers on word 1"), "{text}");
    // The next machine runs all the same.
    assert_eq!(Machine::new(1, costs()).run(|| 7).0, 7);
}

#[test]
fn panics_stay_with_their_thread() {
    let (result, _) = Machine::new(2, costs()).run(|| {
        let thread = spawn("panics", None, || panic!("as planned"));
        Vsmp::join(thread).expect_err("it panics").downcast::<&str>().map(|text| *text).ok()
    });
    assert_eq!(result, Some("as planned"));
    let main = catch_unwind(|| Machine::new(1, costs()).run(|| panic!("the first thread")));
    assert_eq!(main.expect_err("it panics").downcast_ref(), Some(&"the first thread"));
}

/// False sharing, and its absence: two CPUs write words of one line, or of two.
#[test]
fn a_line_that_two_cpus_write_moves_to_and_fro() {
    #[repr(align(64))]
    struct Apart(Word);
    let misses = |shared: bool| {
        let program = move || {
            let together = Arc::new([Word::new(0), Word::new(0)]);
            let apart = Arc::new([Apart(Word::new(0)), Apart(Word::new(0))]);
            let write = |n: usize| {
                let (together, apart) = (together.clone(), apart.clone());
                move || {
                    for turn in 0..1000 {
                        let word = if shared { &together[n] } else { &apart[n].0 };
                        word.store(turn, Ordering::Relaxed);
                        Vsmp::work(Step::Message, 1);
                    }
                }
            };
            let threads: Vec<_> = (0..2).map(|n| spawn("writes", Some(n), write(n))).collect();
            threads.into_iter().for_each(|thread| Vsmp::join(thread).expect("it writes"));
        };
        Machine::new(2, costs()).run(program).1.account.atomic_misses
    };
    let (shared, apart) = (misses(true), misses(false));
    assert!(shared > 500, "{shared} misses");
    assert!(apart < 20, "{apart} misses");
}

#[test]
fn plain_memory_misses_once_and_then_hits() {
    let ((), outcome) = Machine::new(1, costs()).run(|| {
        let memory = vec![0_u8; 6400].into_boxed_slice();
        (0..3).for_each(|_| Vsmp::touch(Object::Payload, memory.as_ptr(), memory.len(), true));
    });
    assert_eq!(outcome.account.touches, 300);
    assert_eq!(outcome.account.object_misses[Object::Payload as usize], 100);
}

/// Of three threads on one CPU, the least important has a lock that the most important wants, and the one between them
/// does not stop working: what priority inheritance is for.
#[test]
fn a_sleeping_waiter_lends_its_priority_where_the_lock_does() {
    let time = |kind: LockKind| {
        let mut costs = costs();
        costs.priorities = [0, 1, 2, 3];
        let program = move || {
            let lock = Arc::new(Lock::<(), Vsmp>::new(kind, LockClass::Group, ()));
            let held = lock.clone();
            let low = Vsmp::spawn("low", Some(0), ThreadClass::Worker, move || {
                let _guard = held.lock();
                (0..100).for_each(|_| {
                    Vsmp::work(Step::Frame, 10);
                    Vsmp::yield_now();
                });
            });
            nap(20_000);
            let start = Vsmp::now();
            let high = Vsmp::spawn("high", Some(0), ThreadClass::Receive, move || drop(lock.lock()));
            let middle = Vsmp::spawn("middle", Some(0), ThreadClass::Protocol, || {
                (0..1000).for_each(|_| {
                    Vsmp::work(Step::Frame, 10);
                    Vsmp::yield_now();
                });
            });
            Vsmp::join(high).expect("it ends");
            let waited = Vsmp::now() - start;
            [low, middle].into_iter().for_each(|thread| Vsmp::join(thread).expect("it ends"));
            waited
        };
        Machine::new(2, costs).run(program).0
    };
    let (lending, plain) = (time(LockKind::AdaptiveLending), time(LockKind::Adaptive));
    assert!(4 * lending < plain, "{lending} and {plain} ns");
}

/// FreeBSD's turnstiles: a waiter looks for the sleepers before it spins, and the holder before it unlocks. A lock that nobody
/// waits for costs neither, and those of one chain look one after the other.
#[test]
fn a_lock_that_is_waited_for_costs_its_turnstile() {
    let cycles = |waiters: usize| {
        let program = move || {
            let lock = Arc::new(Lock::<(), Vsmp>::new(LockKind::Adaptive, LockClass::Group, ()));
            let guard = lock.lock();
            let wait = |cpu: usize| {
                let lock = lock.clone();
                spawn("waits", Some(cpu), move || drop(lock.lock()))
            };
            let threads: Vec<_> = (1..=waiters).map(wait).collect();
            Vsmp::work(Step::Frame, 100);
            drop(guard);
            threads.into_iter().for_each(|thread| Vsmp::join(thread).expect("it gets the lock"));
        };
        Machine::new(4, Costs { turnstile: 5000, ..costs() }).run(program).1.account.cycles(Part::Turnstile)
    };
    assert_eq!([cycles(0), cycles(1)], [0, 2 * 5000]);
    // Three waiters and the holder look at first, which is four; then the two waiters that are left.
    assert!(cycles(3) > 6 * 5000, "{} cycles, and none for a chain that another has locked", cycles(3));
}

#[test]
fn a_recorded_schedule_is_made_again() {
    let program = || {
        let word = Arc::new(Word::new(0));
        let write = |n: u32| {
            let word = word.clone();
            move || {
                (0..50).for_each(|_| word.store(word.load(Ordering::Relaxed).wrapping_mul(3) + n, Ordering::Relaxed))
            }
        };
        let threads: Vec<_> = (1..4).map(|n| spawn("writes", None, write(n))).collect();
        threads.into_iter().for_each(|thread| Vsmp::join(thread).expect("it writes"));
        word.load(Ordering::Relaxed)
    };
    let schedule = Schedule::default();
    let random = |seed| Recorded::new(Random::new(seed), schedule.clone());
    let first = Machine::new(3, costs()).order(random(5)).run(program).0;
    let chosen = schedule.take();
    assert_eq!(Machine::new(3, costs()).order(Replay::new(chosen)).run(program).0, first);
    let others: Vec<u32> = (6..10).map(|seed| Machine::new(3, costs()).order(random(seed)).run(program).0).collect();
    assert!(others.iter().any(|other| *other != first), "schedules differ: {others:?}");
}

/// A thread that loses its CPU has the time of that CPU; on the next CPU it does not run earlier.
#[test]
fn time_does_not_go_back_where_a_thread_moves() {
    let mut costs = costs();
    costs.priorities = [0, 1, 2, 3];
    let work = || {
        let interrupts: Vec<_> = (0..2)
            .map(|cpu| {
                let body = || (0..200).for_each(|_| nap(1500));
                Vsmp::spawn("interrupt", Some(cpu), ThreadClass::Receive, body)
            })
            .collect();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                spawn("works", None, || {
                    let mut last = 0;
                    for turn in 0..300 {
                        // One long step: the CPU is ahead of the others when an interrupt takes it. The other one is
                        // free when its thread sleeps.
                        Vsmp::work(Step::Frame, 10 * (turn % 7));
                        let now = Vsmp::now();
                        assert!(last <= now, "{last} and then {now}");
                        Vsmp::fence(Ordering::SeqCst);
                        last = Vsmp::now();
                        assert!(now <= last, "{now} and then {last}");
                        if turn % 3 == 0 {
                            nap(100);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().chain(interrupts).for_each(|thread| Vsmp::join(thread).expect("it does not panic"));
    };
    let outcome = Machine::new(2, costs).run(work).1;
    assert!(outcome.account.preemptions > 100, "{} times a thread lost its CPU", outcome.account.preemptions);
}
