//! The list of architectures: every process architecture with the parameters that change its behaviour.
//!
//! Architectures are declared in `stack`, which a macro crate cannot import. `architectures.txt` is the list of their
//! variants, written by the test `architectures` of `stack`, which fails if the list is out of date.

const LIST: &str = include_str!("architectures.txt");
/// Those that are in no list; the file says in which test programs they are covered.
const ALSO: &str = include_str!("also.txt");

/// The architectures, as `stack::Architecture` parses them.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    lines(LIST)
}

/// The architectures in no list that this test program (`heddle-stack/properties`) covers.
pub fn also_in(program: &str) -> impl Iterator<Item = &'static str> {
    let entries = lines(ALSO).filter_map(|line| line.split_once(" = "));
    entries.filter(move |(_, programs)| programs.split(' ').any(|other| other == program)).map(|(arch, _)| arch)
}

/// The program that is being compiled, as cargo tells the compiler.
pub fn program() -> String {
    let named = |name| std::env::var(name).unwrap_or_default();
    format!("{}/{}", named("CARGO_PKG_NAME"), named("CARGO_CRATE_NAME"))
}

fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.starts_with('#'))
}

/// The name of an architecture's test: `msgp:2+coupled` is tested as `msgp_2_coupled`, so that the architecture can be
/// read off the test's name.
pub fn identifier(arch: &str) -> String {
    arch.replace([':', '+', '-'], "_")
}

#[cfg(test)]
mod tests {
    use super::{also_in, architectures, identifier};

    #[test]
    fn one_in_no_list_is_covered_by_the_programs_that_say_so() {
        let of = |program| also_in(program).collect::<Vec<_>>();
        assert!(of("heddle-stack/properties").contains(&"cpu-groups"));
        assert_eq!(of("heddle-stack/propert"), [""; 0]);
    }

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
