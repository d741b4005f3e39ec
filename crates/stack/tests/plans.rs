//! The plans that `#[every_arch]` runs are the plans that the stack has.

#[test]
fn every_plan_is_tested() {
    let tested: Vec<&str> = every_arch::plans!().iter().map(|(_, plan)| *plan).collect();
    assert_eq!(tested, stack::ALL_PLANS, "crates/every-arch/src/plans.rs and crates/stack/src/arch/select.rs differ");
}
