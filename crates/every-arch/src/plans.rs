//! The plans: every process architecture under the parameters that change its behaviour.

/// Identifier of the test and text of the plan, as `stack::Plan` parses it.
pub const PLANS: &[(&str, &str)] = &[
    ("up", "up"),
    ("giant", "giant"),
    ("msgp_1", "msgp:1"),
    ("msgp_2", "msgp:2"),
    ("msgp_6", "msgp:6"),
    ("msgp_1_coupled", "msgp:1+coupled"),
    ("msgp_2_coupled", "msgp:2+coupled"),
    ("msgp_6_coupled", "msgp:6+coupled"),
    ("connp_t", "connp-t"),
    ("connp_t_spsc", "connp-t:spsc"),
    ("connp_l_4", "connp-l:4"),
    ("connp_l_128", "connp-l:128"),
    ("connp_l_1024", "connp-l:1024"),
    ("squeue_fill", "squeue:fill"),
    ("squeue_nodrain", "squeue:nodrain"),
    ("squeue_process", "squeue:process"),
];

#[cfg(test)]
mod tests {
    use super::PLANS;

    /// `msgp:2+coupled` is tested as `msgp_2_coupled`: whoever reads a test's name can type the plan.
    #[test]
    fn an_identifier_is_its_plan_with_underscores() {
        for (identifier, plan) in PLANS {
            assert_eq!(*identifier, plan.replace([':', '+', '-'], "_"));
        }
    }

    #[test]
    fn identifiers_are_unique() {
        let distinct: std::collections::HashSet<_> = PLANS.iter().map(|(identifier, _)| identifier).collect();
        assert_eq!(distinct.len(), PLANS.len());
    }
}
