//! The declarations are consistent, and names keep their meaning.

use std::collections::HashSet;

use super::*;
use crate::arch::declaration::MOST_FAULTS;

#[test]
fn every_name_is_read_back_as_itself() {
    for name in ALL {
        assert_eq!(name.parse::<Architecture>().map(|arch| arch.to_string()).as_deref(), Ok(name));
    }
}

#[test]
fn names_and_families_are_unique() {
    let families: HashSet<_> = FAMILIES.iter().map(|family| family.declared().name()).collect();
    assert_eq!(families.len(), FAMILIES.len());
    let architectures: HashSet<Architecture> = Architecture::all().collect();
    assert_eq!((architectures.len(), Architecture::all().count()), (ALL.len(), ALL.len()));
}

#[test]
fn every_family_has_variants_of_its_name_and_rows() {
    for family in FAMILIES {
        let declared = family.declared();
        let own = Architecture::all().filter(|arch| arch.family == *family);
        assert!(own.clone().count() > 0, "{}", declared.name());
        for arch in own {
            assert!(arch.to_string().starts_with(arch.family()) && !arch.describe().is_empty(), "{arch}");
        }
        assert!(!declared.rows().is_empty(), "{}", declared.name());
        assert!(declared.name().parse::<Architecture>().is_ok(), "the name alone means the default variant");
    }
}

/// Every spelling that `usage` allows: `a[:1|2][+b]` is `a`, `a:1`, `a:2`, `a+b`, `a:1+b`, `a:2+b`. For a range, its
/// ends.
fn spellings(usage: &str) -> Vec<String> {
    let Some((head, rest)) = usage.split_once('[') else { return vec![usage.to_owned()] };
    let (choices, tail) = rest.split_once(']').expect("an option ends with ]");
    let (mark, choices) = choices.split_at(1);
    let choices: Vec<&str> = choices.split('|').flat_map(|choice| choice.split("..")).collect();
    let options = std::iter::once(String::new()).chain(choices.iter().map(|choice| format!("{mark}{choice}")));
    options.flat_map(|option| spellings(tail).into_iter().map(move |rest| format!("{head}{option}{rest}"))).collect()
}

#[test]
fn the_options_in_the_error_data_are_those_that_are_read() {
    for family in FAMILIES {
        let declared = family.declared();
        let spellings = spellings(&declared.usage());
        for spelling in &spellings {
            assert!(declared.parse(spelling).is_some(), "{spelling} is promised and refused");
        }
        for arch in Architecture::all().filter(|arch| arch.family == *family && arch.parameter().is_none()) {
            assert!(spellings.contains(&arch.to_string()), "{arch} is read and not promised");
        }
    }
}

#[test]
fn short_names_mean_the_papers_choice() {
    for (short, full) in [
        ("connp-l", "connp-l:128"),
        ("msgp", "msgp:1"),
        ("msgp+coupled", "msgp:1+coupled"),
        ("msgp-pool:1+mcs+unordered", "msgp-pool+mcs+unordered"),
        ("squeue", "squeue:process"),
        ("squeue+poll", "squeue:process+poll"),
        ("squeue+bind", "squeue:process+bind"),
        ("squeue+poll+bind", "squeue:process+poll+bind"),
        ("connp-t:mutex", "connp-t"),
        ("netisr", "netisr:hybrid"),
        ("netisr:deferred+flow", "netisr:deferred"),
        ("softint:16", "softint"),
        ("softint:16+polling", "softint+polling"),
        ("msgp+routes", "msgp:1+routes"),
        ("msgp+coupled+routes", "msgp:1+coupled+routes"),
        ("msgp:6+coupled+racy-stats+routes", "msgp:6+coupled+routes+racy-stats"),
        ("connp-l+lazy-broadcast", "connp-l:128+lazy-broadcast"),
        ("connp-t:mutex+async-wildcard", "connp-t+async-wildcard"),
    ] {
        assert_eq!(short.parse::<Architecture>().map(|arch| arch.to_string()).as_deref(), Ok(full));
    }
    assert_eq!(Architecture::default(), Architecture::named("adaptive"));
}

#[test]
fn unknown_names_are_refused_with_the_list() {
    let names = [
        "",
        "UP",
        "up:",
        "up:1",
        "msgp:3",
        "msgp:1+loose",
        "msgp:1+routes+coupled",
        "msgp+routes+routes",
        "giant+routes",
        "connp-l:",
        "connp-l:0",
        "connp-l:1025",
        "squeue:drain",
        "squeue+bind+poll",
    ];
    for name in names {
        let error = name.parse::<Architecture>().unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "unknown architecture {name:?}: use up, giant, msgp[:1|2|6][+coupled][+routes][+racy-stats], msgp-pool[:1|2|6][+tas|mcs][+unordered], \
                 connp-t[:mutex|spsc|lwkt][+async-wildcard], connp-l[:1..1024][+lazy-broadcast], squeue[:fill|nodrain|process][+poll][+bind], \
                 backlog[:processor], \
                 conn-thread[:1..1024], \
                 netisr[:direct|hybrid|hybrid+source|hybrid+cpu|deferred|deferred+source|deferred+cpu], \
                 shared-nothing, steal, softint[:1|4|16|64|all][+polling], layer, or adaptive"
            )
        );
    }
}

#[test]
fn a_number_is_a_parameter_and_a_word_is_none() {
    let arch = Architecture::named("connp-l:7");
    assert_eq!((arch.family(), arch.parameter(), arch.to_string().as_str()), ("connp-l", Some(7), "connp-l:7"));
    assert_eq!(arch.describe(), Architecture::named("connp-l").describe());
    assert_eq!((Architecture::named("msgp:6").family(), Architecture::named("msgp:6").parameter()), ("msgp", None));
}

#[test]
fn a_fault_is_an_option_of_its_architecture_and_in_no_list() {
    for (name, number) in [("connp-l:1024+lazy-broadcast", Some(1024)), ("msgp:2+coupled+routes", None)] {
        let arch = Architecture::named(name);
        assert_eq!((arch.to_string().as_str(), arch.parameter()), (name, number));
        let plain = Architecture::named(name.rsplit_once('+').unwrap().0);
        assert_eq!((arch.describe(), arch.properties()), (plain.describe(), plain.properties()));
        assert_ne!(arch, plain);
    }
    let names: Vec<String> =
        FAMILIES.iter().flat_map(|family| family.declared().faults()).map(|(name, _)| name).collect();
    assert_eq!(names, ["msgp+routes", "msgp+racy-stats", "connp-t+async-wildcard", "connp-l+lazy-broadcast"]);
    assert!(names.iter().all(|name| Architecture::catalogue().contains(&format!("\n{name} "))), "{names:?}");
    assert!(FAMILIES.iter().all(|family| family.declared().faults().len() <= MOST_FAULTS), "there are no more bits");
    assert!(ALL.iter().all(|listed| names.iter().all(|name| !listed.ends_with(name.rsplit_once('+').unwrap().1))));
}

/// A variant that differs from the others of its family has properties of its own.
#[test]
fn a_variant_has_the_properties_of_its_threads() {
    for (name, own_threads, polling_thread_owns) in [
        ("connp-t", true, false),
        ("connp-t:spsc", true, false),
        ("connp-t:lwkt", false, true),
        ("connp-t:lwkt+async-wildcard", false, true),
        ("backlog", false, false),
        ("backlog:processor", true, false),
    ] {
        let properties = Architecture::named(name).properties();
        assert_eq!(
            (properties.own_threads, properties.polling_thread_owns),
            (own_threads, polling_thread_owns),
            "{name}"
        );
    }
}

#[test]
fn properties_choose_architectures() {
    assert_eq!(Architecture::reference(), Architecture::named("up"));
    assert_eq!(Architecture::simplest(|properties| !properties.single_thread), Some(Architecture::named("giant")));
    assert_eq!(Architecture::simplest(|_| false), None);
}

#[test]
fn a_list_has_comments_and_names_what_it_does_not_know() {
    let architectures = Architecture::read_list("# figure 5\n\nup\n  connp-l:4\n").unwrap();
    assert_eq!(architectures, [Architecture::named("up"), Architecture::named("connp-l:4")]);
    assert!(Architecture::read_list("up\ncray\n").unwrap_err().to_string().contains("\"cray\""));
}
