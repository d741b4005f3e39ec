//! Presets: each value has an origin, nothing is missing or unknown, and the footprint is a total.

use sync::{Object, Platform};
use vsmp::preset::{Kernel, Measured, Origin, Preset};
use vsmp::{Arena, Costs, Footprint, Machine, Vsmp};

#[global_allocator]
static ARENA: Arena = Arena::new();

#[test]
fn every_preset_can_be_read_and_says_where_its_values_come_from() {
    for name in Preset::names() {
        let preset = Preset::named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(preset.name, name);
        assert!(preset.values().count() > 60, "{name}");
        // Fitted and derived values state how.
        for (value, entry) in preset.values() {
            let explained = !matches!(entry.origin, Origin::Fitted) || !entry.why.is_empty();
            assert!(explained, "{name}: {value} is {} and does not say how", entry.origin);
        }
    }
    assert!(Preset::named("cray-1").expect_err("not built in").to_string().contains("opteron-275"));
}

/// A machine that was measured is a file: it reads back as the same machine, with its origins.
#[test]
fn a_measured_machine_can_be_written_and_read() {
    let base = Preset::named("server-64").expect("it is built in");
    let value = |name: &str, number: u64, why: &str| Measured {
        name: name.to_owned(),
        number,
        origin: Origin::Measured,
        why: why.to_owned(),
    };
    let values =
        [value("machine.near", 123, "a \"chain\" \\ of lines\nin a row"), value("machine.together", 91, "93 ± 2")];
    let measured = base.measured("mine", "a machine: mine", &values).expect("both are values");
    let read = Preset::parse(&measured.to_toml()).unwrap_or_else(|error| panic!("{error}\n{}", measured.to_toml()));
    assert_eq!((read.name.as_str(), read.describes.as_str()), ("mine", "a machine: mine"));
    let (near, together) = (read.costs(Kernel::Heddle).near, read.costs(Kernel::Heddle).together);
    assert_eq!((near, together, read.count(Origin::Measured)), (123, 91, 2));
    let all = |preset: &Preset| {
        preset.values().map(|(name, value)| (name.to_owned(), value.text(), value.origin)).collect::<Vec<_>>()
    };
    assert_eq!(all(&read), all(&measured));
    let unknown = base.measured("mine", "a machine", &[value("machine.lunch", 1, "")]).expect_err("no such value");
    assert_eq!(unknown.to_string(), "`lunch` in [machine] is not a known name");
}

/// A value without origin, a missing value, and an unknown one are refused by name.
#[test]
fn a_value_that_is_missing_or_unknown_is_named() {
    let text = include_str!("../presets/opteron-275.toml");
    let refused = |text: &str| Preset::parse(text).expect_err("it is wrong").to_string();
    let without = |name: &str| text.lines().filter(|line| !line.starts_with(name)).collect::<Vec<_>>().join("\n");
    assert_eq!(refused(&without("megahertz")), "`megahertz` is missing in [machine]");
    assert_eq!(refused(&without("send_memory")), "`send_memory` is missing in [machine]");
    assert_eq!(refused(&without("emit ")), "`emit` is missing in [work]");
    let more = text.replace("[habits]", "[habits]\nlunch = { value = 1, origin = \"assumed\" }");
    assert_eq!(refused(&more), "`lunch` in [habits] is not a known name");
    let bare = text.replace("wake = { value = 2038, origin = \"fitted\"", "wake = { value = 2038");
    assert!(refused(&bare).contains("missing field `origin`"), "{}", refused(&bare));
}

/// The footprint is a total: an object of which Heddle touches more lines gets fewer beside them, so that the sum stays.
#[test]
fn what_heddle_touches_counts_towards_the_footprint() {
    let lines = |total: usize, touched: usize| {
        let mut footprint = Footprint::default();
        footprint.objects[Object::Connection as usize] = total;
        let costs = Costs { footprint, ..Costs::opteron_275() };
        let program = move || {
            let memory = vec![0_u8; 64 * touched].into_boxed_slice();
            (0..3).for_each(|_| Vsmp::touch(Object::Connection, memory.as_ptr(), memory.len(), true));
        };
        let account = Machine::new(1, costs).run(program).1.account;
        (account.object_misses[Object::Connection as usize], account.footprint_misses)
    };
    assert_eq!(lines(0, 8), (8, 0));
    assert_eq!(lines(22, 8), (8, 14), "each once, and then it is in the cache");
    assert_eq!(lines(22, 4), (4, 18), "half the object, the same total");
    assert_eq!(lines(6, 8), (8, 0), "a fatter object has its own lines");
}

/// Lines that a paper's kernel has among those of each step are not charged again where Heddle touches its own.
#[test]
fn what_is_shared_at_each_step_is_not_charged_besides() {
    let text = include_str!("../presets/opteron-275.toml");
    let run = |text: &str, touched: usize| {
        let costs = Preset::parse(text).expect("it is a preset").costs(Kernel::OfThePaper);
        let program = move || {
            let memory = vec![0_u8; 640].into_boxed_slice();
            Vsmp::touch(Object::Counters, memory.as_ptr(), 64 * touched, true);
            Vsmp::touch(Object::Connection, memory.as_ptr(), 64, true);
        };
        let account = Machine::new(1, costs).run(program).1.account;
        (account.object_misses[Object::Counters as usize], account.trace)
    };
    let ((lines, trace), none) = (run(text, 9), run(text, 0));
    assert_eq!((lines, trace), none, "within shared");
    let of_their_own = text.replace("counters = { value = \"shared\"", "counters = { value = 0");
    assert_eq!(run(&of_their_own, 9).0, 9);
    let wrong = text.replace("counters = { value = \"shared\"", "counters = { value = \"lunch\"");
    let refused = Preset::parse(&wrong).expect_err("no such word").to_string();
    assert!(refused.contains("`counters` in [footprint] is not a number"), "{refused}");
}

#[test]
fn heddle_as_it_is_has_no_footprint_of_the_year() {
    let preset = Preset::named("opteron-275").expect("it is built in");
    let [heddle, paper] = [Kernel::Heddle, Kernel::OfThePaper].map(|kernel| preset.costs(kernel).footprint);
    assert_eq!(heddle.objects, [0; Object::ALL.len()]);
    assert_eq!(heddle.within_shared, [false; Object::ALL.len()], "its own lines are charged");
    assert!(!heddle.zero_copy && paper.zero_copy);
    assert_eq!(heddle.descriptors, paper.descriptors, "those are the card's");
}

/// A point is shown with its error, and with whether the machine was fitted to it; at most five points were.
#[test]
fn the_papers_points_are_fitted_or_held_out() {
    let preset = Preset::named("opteron-275").expect("it is built in");
    let fitted = preset.points.iter().filter(|point| point.fitted).count();
    assert!((1..=5).contains(&fitted), "{fitted} points");
    let held_out = preset.points.iter().filter(|point| !point.fitted && point.megabits.is_some()).count();
    assert!(held_out >= fitted, "{held_out} points are held out");
    let point = preset.point("uniprocessor", 16_384).expect("figure 2 has it");
    assert_eq!((point.megabits, point.misses), (Some(2100.0), Some(18.49)));
    assert_eq!(preset.point("uniprocessor", 17), None);
}

#[test]
fn one_value_of_a_machine_is_changed() {
    let preset = Preset::named("opteron-275").expect("it is built in");
    let other = preset.with("machine.memory", 300).expect("it is a number");
    let of = |preset: &Preset| {
        let costs = preset.costs(Kernel::Heddle);
        (costs.memory, costs.near, preset.count(Origin::Derived))
    };
    assert_eq!((of(&other).0, of(&other).1, of(&other).2), (300, of(&preset).1, of(&preset).2));
    for (name, says) in [
        ("machine.memories", "no value is called `machine.memories`: --values lists them"),
        ("memory", "no value is called `memory`: --values lists them"),
        ("habits.lock_kind", "`habits.lock_kind` is not a number"),
    ] {
        assert_eq!(preset.with(name, 1).expect_err(name).to_string(), says);
    }
    assert_eq!(preset.with("card.mtu", 9000).expect("jumbo frames").card.mtu, 9000);
    assert_eq!(
        preset.with("card.mtu", 100).expect_err("no room for a packet").to_string(),
        "`card.mtu` is 100, and not 1280 to 65535 bytes"
    );
    assert_eq!(preset.with("machine.send_memory", 1 << 30).expect("larger buffers").send_memory, 1 << 30);
    assert_eq!(
        preset.with("machine.send_memory", 8191).expect_err("no room for two pages").to_string(),
        "`machine.send_memory` is 8191, and not 8192 bytes or more"
    );
    assert!(preset.with("machine.cache_ways", 0).expect_err("a cache without ways").to_string().contains("ways"));
}
