//! Entries into the account, and when the total shows them.

use super::*;
use sync::Real;

const LIMIT: u64 = 100;

fn config() -> tcp::Config {
    tcp::Config { max_time_wait: LIMIT as u32, ..tcp::Config::default() }
}

fn enter(account: &Account<Real>, entry: &AccountEntry<Real>, count: i64, config: &tcp::Config) {
    let (before, after) = match count {
        0.. => (LimitClass::Free, LimitClass::TimeWait),
        _ => (LimitClass::TimeWait, LimitClass::Free),
    };
    for _ in 0..count.abs() {
        account.count(entry, &mut Charge { memory: 0, standing: before }, after, config);
    }
}

/// An amount allocated under one architecture and released under the next is counted once, wherever it is kept, and
/// the limit stays exact.
#[test]
fn amounts_follow_their_connections_from_architecture_to_architecture() {
    let config = config();
    let account = Account::<Real>::new(&config);
    let old = account.open();
    enter(&account, &old, LIMIT as i64 - 1, &config);
    account.close(&old);
    assert_eq!((account.sum(Resource::TimeWaits), account.entries()), (LIMIT - 1, 0));
    // Behind locks: the calling thread has an entry.
    enter(&account, account.here(), -(LIMIT as i64 - 3), &config);
    assert_eq!(account.sum(Resource::TimeWaits), 2);
    account.close_threads();
    let only = account.open();
    assert!(account.is_single());
    enter(&account, &only, LIMIT as i64 - 3, &config);
    account.limits_changed(&config);
    assert!(!account.scarcity().no_more_time_waits(), "{} of {LIMIT}", account.sum(Resource::TimeWaits));
    enter(&account, &only, 1, &config);
    assert!(account.scarcity().no_more_time_waits(), "{} of {LIMIT}", account.sum(Resource::TimeWaits));
    enter(&account, &only, -(LIMIT as i64), &config);
    assert_eq!(account.sum(Resource::TimeWaits), 0);
    assert!(!account.scarcity().no_more_time_waits());
}

/// A cell among several takes over the amounts of all.
#[test]
fn entries_of_closed_cells_are_gone() {
    let config = config();
    let account = Account::<Real>::new(&config);
    for round in 0..20 {
        let cells: Vec<_> = (0..4).map(|_| account.open()).collect();
        assert_eq!(account.entries(), 4, "round {round}");
        cells.iter().for_each(|cell| enter(&account, cell, 1, &config));
        assert_eq!(account.sum(Resource::TimeWaits), 4 * (round + 1));
        cells.iter().for_each(|cell| account.close(cell));
    }
    assert_eq!((account.entries(), account.sum(Resource::TimeWaits)), (0, 80));
}

/// Limits so small that an entry's quantum is `pressure / 16`.
fn limits(low: u64, pressure: u64, high: u64) -> tcp::Config {
    let memory = Some(tcp::config::MemoryLimits { low, pressure, high });
    tcp::Config { memory, max_orphans: 2, max_time_wait: 10, ..tcp::Config::default() }
}

fn memory(account: &Account<Real>) -> (u64, Pressure) {
    (account.sum(Resource::Memory), account.scarcity().memory())
}

/// The allocations of a connection are charged to it, and subtracted when it is gone.
#[test]
fn memory_is_charged_and_subtracted() {
    let config = limits(800, 1600, 3200);
    let account = Account::<Real>::new(&config);
    let (cell, mut charge) = (account.open(), Charge::default());
    let mut take = |bytes| {
        account.take_memory(&cell, &mut charge, bytes, &config);
        (charge.memory, memory(&account), account.waiting().is_memory_short())
    };
    assert_eq!(take(1000), (1000, (1000, Pressure::None), false));
    assert_eq!(take(601), (1601, (1601, Pressure::Moderate), false));
    assert_eq!(take(1600), (3201, (3201, Pressure::Severe), true));
    assert_eq!(take(-1601), (1600, (1600, Pressure::Moderate), false));
    account.take_datagrams(&cell, 400, &config);
    assert_eq!(memory(&account).0, 2000);
    account.discharge(&cell, charge, &config);
    assert_eq!(memory(&account), (400, Pressure::None));
    account.take_datagrams(&cell, 0, &config);
    account.take_datagrams(&cell, -400, &config);
    account.discharge(&cell, Charge::default(), &config);
    assert_eq!(memory(&account), (0, Pressure::None));
}

/// A connection counts once against its limit, and no longer when it is gone.
#[test]
fn each_standing_counts_against_its_own_limit() {
    let config = limits(800, 1600, 3200);
    let account = Account::<Real>::new(&config);
    let cell = account.open();
    let mut charges = [Charge::default(); 3];
    let sums = || [Resource::Orphans, Resource::TimeWaits].map(|resource| account.sum(resource));
    for charge in &mut charges {
        (0..2).for_each(|_| account.count(&cell, charge, LimitClass::Orphan, &config));
    }
    assert_eq!((sums(), account.scarcity().no_more_orphans()), ([3, 0], true));
    account.count(&cell, &mut charges[0], LimitClass::TimeWait, &config);
    assert_eq!((sums(), account.scarcity().no_more_orphans()), ([2, 1], true), "2 of 2");
    account.discharge(&cell, charges[1], &config);
    assert_eq!((sums(), account.scarcity().no_more_orphans()), ([1, 1], false));
    account.count(&cell, &mut charges[2], LimitClass::Free, &config);
    account.discharge(&cell, charges[0], &config);
    assert_eq!((sums(), account.scarcity().no_more_time_waits()), ([0, 0], false));
}

/// Scarcity is evaluated when an entry has moved by more than its quantum: a sixteenth of the limit, divided by the
/// number of cells.
#[test]
fn an_entry_settles_when_it_has_moved_by_more_than_a_quantum() {
    let config = limits(100, 1600, 3200);
    for (cells, quantum) in [(1, 100), (2, 50)] {
        let account = Account::<Real>::new(&config);
        let cells: Vec<_> = (0..cells).map(|_| account.open()).collect();
        let take = |cell: usize, bytes| {
            account.take_memory(&cells[cell], &mut Charge::default(), bytes, &config);
            memory(&account).1
        };
        assert_eq!(take(0, 1000), Pressure::None);
        assert_eq!(take(cells.len() - 1, 590), Pressure::None);
        assert_eq!(take(cells.len() - 1, quantum), Pressure::None, "it has not moved by more than the quantum");
        assert_eq!(take(cells.len() - 1, 1), Pressure::Moderate);
        assert_eq!(account.sum(Resource::Memory), 1591 + quantum as u64);
    }
}

#[test]
fn what_belongs_to_no_cell_is_memory_too() {
    let config = limits(10_000, 20_000, 40_000);
    let account = Account::<Real>::new(&config);
    account.note_fragments(20_001, &config);
    assert_eq!(memory(&account), (20_001, Pressure::Moderate));
    account.note_fragments(5_000, &config);
    assert_eq!(memory(&account), (5_000, Pressure::None));
    let waiting = account.waiting();
    assert!(!waiting.enter(WAITING_QUANTUM - 1, true));
    assert!(waiting.enter(1, false), "so much has changed since it was weighed");
    account.weigh_waiting(&config);
    assert_eq!(memory(&account), (5_000 + WAITING_QUANTUM, Pressure::Moderate));
    assert!(!waiting.enter(1, true));
    assert!(!waiting.enter(0u64.wrapping_sub(WAITING_QUANTUM), false));
    assert!(waiting.enter(0u64.wrapping_sub(1), true));
    account.weigh_waiting(&config);
    assert_eq!((memory(&account), account.sum(Resource::Orphans)), ((5_000, Pressure::None), 0));
}

/// While memory is short, the exact sum decides, at most once a millisecond; otherwise the total suffices.
#[test]
fn short_memory_is_reviewed_by_the_exact_sum() {
    let config = limits(1551, 1600, 3200);
    let account = Account::<Real>::new(&config);
    let cell = account.open();
    let take = |bytes| account.take_memory(&cell, &mut Charge::default(), bytes, &config);
    let review = |nanos| {
        account.review(Time::from_secs(1) + std::time::Duration::from_nanos(nanos), &config);
        account.scarcity().memory()
    };
    take(1550);
    take(100);
    assert_eq!((account.sum(Resource::Memory), review(0)), (1650, Pressure::None), "it is not short");
    take(1);
    assert_eq!((account.sum(Resource::Memory), review(0)), (1651, Pressure::Moderate));
    take(-100);
    assert_eq!(memory(&account), (1551, Pressure::Moderate), "it has moved by a quantum alone");
    assert_eq!([review(REVIEW_NS - 1), review(REVIEW_NS)], [Pressure::Moderate, Pressure::None]);
}

/// A changed limit holds at once, and exactly for the next change of each entry.
#[test]
fn changed_limits_hold_at_once() {
    let account = Account::<Real>::new(&limits(800, 1600, 3200));
    let (cell, thread) = (account.open(), account.here());
    for entry in [&*cell, thread] {
        account.take_memory(entry, &mut Charge::default(), 500, &limits(800, 1600, 3200));
    }
    account.limits_changed(&limits(400, 900, 3200));
    assert_eq!(memory(&account), (1000, Pressure::Moderate));
    let config = limits(1000, 1010, 3200);
    account.limits_changed(&config);
    assert_eq!(memory(&account), (1000, Pressure::None));
    account.take_memory(thread, &mut Charge::default(), 11, &config);
    account.limits_changed(&config);
    assert_eq!(memory(&account), (1011, Pressure::Moderate));
}

/// The amounts of threads belong to the next cell, and its total is exact.
#[test]
fn amounts_of_threads_pass_to_the_next_cell() {
    let config = limits(800, 1600, 3200);
    let account = Account::<Real>::new(&config);
    enter(&account, account.here(), 3, &config);
    assert_eq!(account.entries(), 1);
    account.close_threads();
    let cell = account.open();
    assert_eq!((account.sum(Resource::TimeWaits), account.entries()), (3, 2));
    enter(&account, &cell, 6, &config);
    assert!(!account.scarcity().no_more_time_waits(), "9 of 10");
    enter(&account, &cell, 1, &config);
    assert!(account.scarcity().no_more_time_waits());
}
