//! The attribute from its users' view.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Mutex;

use every_arch::{architectures, every_arch};

/// Stands in for `stack::Architecture`.
struct Architecture(String);

impl FromStr for Architecture {
    type Err = String;
    fn from_str(name: &str) -> Result<Architecture, String> {
        let known = architectures!().iter().any(|(_, arch)| *arch == name);
        known.then(|| Architecture(name.to_owned())).ok_or_else(|| format!("no plan {name}"))
    }
}

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Documentation and other attributes stay on the function.
#[every_arch]
#[allow(clippy::needless_pass_by_value)]
fn each_architecture_arrives(arch: Architecture) {
    assert!(SEEN.lock().unwrap().insert(arch.0), "each plan comes once");
}

#[every_arch]
fn tests_may_return_results(arch: Architecture) -> Result<(), String> {
    arch.0.starts_with(char::is_alphabetic).then_some(()).ok_or(arch.0)
}

#[every_arch(except(up, giant,))]
#[should_panic(expected = "neither up nor giant")]
fn exceptions_are_left_out(arch: Architecture) {
    assert!(arch.0 == "up" || arch.0 == "giant", "neither up nor giant");
}

#[every_arch(only(msgp_6_coupled))]
fn only_the_named_run(arch: Architecture) {
    assert_eq!(arch.0, "msgp:6+coupled");
}

/// The tests have the names of the architectures: otherwise these paths would not compile.
#[test]
fn tests_are_named_after_their_architectures() {
    tests_may_return_results::connp_l_1024().unwrap();
    tests_may_return_results::squeue_nodrain().unwrap();
    only_the_named_run::msgp_6_coupled();
}
