//! The list of architectures: every process architecture with the parameters that change its behaviour.
//!
//! Architectures are declared in `stack`, which a macro crate cannot import. `architectures.txt` is the list of their
//! variants, written by the test `architectures` of `stack`, which fails if the list is out of date.

const LIST: &str = include_str!("architectures.txt");

/// The architectures, as `stack::Architecture` parses them.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    LIST.lines().filter(|line| !line.starts_with('#'))
}

/// The name of an architecture's test: `msgp:2+coupled` is tested as `msgp_2_coupled`, so that the architecture can be
/// read off the test's name.
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
