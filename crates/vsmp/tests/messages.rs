//! The workload of Schmidt and Suda on a small scale: it delivers what was sent, and has the shapes that the paper is
//! about. That it repeats itself is in `repeats.rs`.

use every_arch::every_arch;
use stack::Architecture;
use vsmp::preset::{Kernel, Preset};
use vsmp::workload::measured::Measured;
use vsmp::workload::messages::{MESSAGE, Messages};
use vsmp::{Account, Arena, Machine, PartGroup};

#[global_allocator]
static ARENA: Arena = Arena::new();

fn messages(arch: &str, cpus: usize, connections: usize) -> Messages {
    let preset = Preset::named("sparccenter-2000").expect("it is built in");
    Messages {
        arch: arch.parse().expect("an architecture"),
        cpus,
        connections,
        presentation: false,
        preset,
        kernel: Kernel::OfThePaper,
        seed: 1,
        ipv6: false,
        lock_kind: None,
        counts: (100, 400),
    }
}

fn run(messages: Messages) -> Measured {
    let costs = messages.preset.costs(messages.kernel);
    Machine::new(messages.cpus, costs).seed(messages.seed).run(move || messages.run()).0
}

/// Every byte is compared with what was sent (the workload panics), over both families, decoded or not.
#[every_arch]
fn it_delivers_what_was_sent(arch: Architecture) {
    let cpus = if arch.properties().single_thread { 1 } else { 4 };
    for (ipv6, presentation) in [(false, true), (true, false)] {
        let counts = (20, 100);
        let measured = run(Messages { arch, ipv6, presentation, counts, ..messages("up", cpus, 5) });
        // The measuring thread looks now and then, so there may be a few more.
        assert!((100..130).contains(&(measured.bytes / MESSAGE as u64)), "{} bytes", measured.bytes);
    }
}

/// CPUs that work for more than a twentieth of the time.
fn busy(account: &Account) -> usize {
    let busy = |cpu: &&vsmp::Ledger| 20 * cpu.group(PartGroup::Work) > cpu.total;
    account.cpus.iter().filter(busy).count()
}

#[test]
fn a_connection_uses_one_processor_under_connectional_parallelism_and_several_under_message_parallelism() {
    let one = run(messages("conn-thread:20", 20, 1));
    // The connection's, and the driver's.
    assert!(busy(&one.account) <= 2, "{} CPUs work", busy(&one.account));
    assert!(busy(&run(messages("msgp-pool", 20, 1)).account) > 2);
    let twenty = run(messages("conn-thread:20", 20, 20));
    assert!(busy(&twenty.account) == 20 && twenty.megabits() > 10.0 * one.megabits(), "{}", twenty.megabits());
}

#[test]
fn with_as_many_connections_as_processors_connections_are_the_better_unit() {
    let [connections, messages] = ["conn-thread:20", "msgp-pool"].map(|arch| run(messages(arch, 20, 20)).megabits());
    assert!(connections > 1.5 * messages, "{connections} and {messages} Mb/s");
}

/// The bus carries a line of 64 bytes in 54 cycles of 40 MHz, 379 Mb/s, and each message twice: 189.6
/// Mb/s. The messages are many, because a few that are counted may have crossed it just before the time that is measured.
#[test]
fn the_memory_bus_bounds_what_the_processors_could_do() {
    let of = |bus_line: u64| {
        let messages = messages("conn-thread:20", 20, 20);
        let faster = ["work.event", "work.call"].iter();
        let preset = faster.fold(messages.preset.clone(), |preset, name| preset.with(name, 1000).expect("a value"));
        let preset = preset.with("machine.bus_line", bus_line).expect("a value");
        run(Messages { preset, counts: (20, 4000), ..messages }).megabits()
    };
    let (slow, fast) = (of(54), of(0));
    assert!(slow < 190.0 && fast > 1.5 * slow, "{slow} and {fast} Mb/s");
}

#[test]
fn the_presentation_layer_costs_most_of_the_throughput() {
    for arch in ["conn-thread:20", "msgp-pool"] {
        let [without, with] =
            [false, true].map(|presentation| run(Messages { presentation, ..messages(arch, 4, 20) }).megabits());
        assert!(with < 0.7 * without, "{arch}: {with} and {without} Mb/s");
    }
}

/// Yates et al.: threads that share a processor serve their connections less often than those that have one for themselves.
#[test]
fn connections_are_served_evenly_if_threads_share_the_processors_evenly() {
    let of = |arch: &str| {
        let measured = run(Messages { presentation: true, counts: (200, 2000), ..messages(arch, 4, 24) });
        assert_eq!((measured.by_connection.len(), measured.by_connection.iter().sum()), (24, measured.bytes));
        measured.fairness().expect("bytes came")
    };
    let [as_many, twice, half_as_many_more] = ["conn-thread:4", "conn-thread:8", "conn-thread:6"].map(of);
    assert!(as_many > 0.99 && twice > 0.99, "{as_many} and {twice}");
    // Two of the processors have two threads each: 16 connections have half of what the other 8 have, so (16 + 16)^2 / (24 * (16 + 32)).
    assert!((0.85..0.95).contains(&half_as_many_more), "{half_as_many_more}");
}
