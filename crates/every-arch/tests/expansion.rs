//! The attribute as its users see it.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Mutex;

use every_arch::{every_arch, plans};

/// Stands in for `stack::Plan`.
struct Plan(String);

impl FromStr for Plan {
    type Err = String;
    fn from_str(name: &str) -> Result<Plan, String> {
        let known = plans!().iter().any(|(_, plan)| *plan == name);
        known.then(|| Plan(name.to_owned())).ok_or_else(|| format!("no plan {name}"))
    }
}

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Documentation and other attributes stay on the function.
#[every_arch]
#[allow(clippy::needless_pass_by_value)]
fn each_plan_arrives(plan: Plan) {
    assert!(SEEN.lock().unwrap().insert(plan.0), "each plan comes once");
}

#[every_arch]
fn tests_may_return_results(plan: Plan) -> Result<(), String> {
    plan.0.starts_with(char::is_alphabetic).then_some(()).ok_or(plan.0)
}

#[every_arch(except(up, giant,))]
#[should_panic(expected = "neither up nor giant")]
fn exceptions_are_left_out(plan: Plan) {
    assert!(plan.0 == "up" || plan.0 == "giant", "neither up nor giant");
}

#[every_arch(only(msgp_6_coupled))]
fn only_the_named_run(plan: Plan) {
    assert_eq!(plan.0, "msgp:6+coupled");
}

/// The tests are there under the names of the plans: these paths would not compile otherwise.
#[test]
fn tests_are_called_after_their_plans() {
    tests_may_return_results::connp_l_1024().unwrap();
    tests_may_return_results::squeue_nodrain().unwrap();
    only_the_named_run::msgp_6_coupled();
}
