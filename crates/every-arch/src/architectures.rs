//! The architectures: every process architecture under the parameters that change its behaviour.
//!
//! Architectures declare themselves in `stack`, which a macro crate cannot import. `architectures.txt` is the list of
//! their variants, written by the test `architectures` of `stack`, which fails when it is no longer what they declare.

const LIST: &str = include_str!("architectures.txt");

/// The architectures, as `stack::Architecture` parses them.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    LIST.lines().filter(|line| !line.starts_with('#'))
}

/// The name of an architecture's test: `msgp:2+coupled` is tested as `msgp_2_coupled`, so that a reader of the test's
/// name can type the architecture.
pub fn identifier(arch: &str) -> String {
    arch.replace([':', '+', '-'], "_")
}

#[cfg(test)]
mod tests {
    use super::{architectures, identifier};

    #[test]
    fn identifiers_are_unique_and_are_identifiers() {
        let distinct: std::collections::HashSet<_> = architectures().map(identifier).collect();
        assert!(architectures().count() > 0);
        assert_eq!(distinct.len(), architectures().count());
        for identifier in distinct {
            assert!(identifier.starts_with(char::is_alphabetic), "{identifier}");
            assert!(identifier.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{identifier}");
        }
    }
}
