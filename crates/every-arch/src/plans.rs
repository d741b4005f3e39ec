//! The plans: every process architecture under the parameters that change its behaviour.
//!
//! Architectures declare themselves in `stack`, which a macro crate cannot import. `plans.txt` is the list of their
//! variants, written by the test `plans` of `stack`, which fails when it is no longer what they declare.

const LIST: &str = include_str!("plans.txt");

/// The plans, as `stack::Plan` parses them.
pub fn plans() -> impl Iterator<Item = &'static str> {
    LIST.lines().filter(|line| !line.starts_with('#'))
}

/// The name of a plan's test: `msgp:2+coupled` is tested as `msgp_2_coupled`, so that a reader of the test's name can type
/// the plan.
pub fn identifier(plan: &str) -> String {
    plan.replace([':', '+', '-'], "_")
}

#[cfg(test)]
mod tests {
    use super::{identifier, plans};

    #[test]
    fn identifiers_are_unique_and_are_identifiers() {
        let distinct: std::collections::HashSet<_> = plans().map(identifier).collect();
        assert!(plans().count() > 0);
        assert_eq!(distinct.len(), plans().count());
        for identifier in distinct {
            assert!(identifier.starts_with(char::is_alphabetic), "{identifier}");
            assert!(identifier.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{identifier}");
        }
    }
}
