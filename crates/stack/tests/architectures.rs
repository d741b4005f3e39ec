//! Files generated from the architectures' declarations are up to date: the list that `#[every_arch]` reads, and the
//! lists in the documents. `HEDDLE_BLESS=1 cargo test -p heddle-stack --test architectures` rewrites them.

use std::fs;
use std::path::{Path, PathBuf};

use stack::Architecture;

/// The first line of the list for `#[every_arch]`.
const HEAD: &str = "# Written from the declarations of the architectures: HEDDLE_BLESS=1 cargo test -p heddle-stack --test architectures\n";
const BEGIN: &str = "<!-- architectures: written from their declarations (crates/stack/tests/architectures.rs) -->\n";
const END: &str = "<!-- end of architectures -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Fails unless the file has `expected` as its text; with HEDDLE_BLESS, writes it.
fn compare(path: &str, expected: impl FnOnce(&str) -> String) {
    let file = root().join(path);
    let found = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
    let expected = expected(&found);
    if std::env::var_os("HEDDLE_BLESS").is_some() {
        fs::write(&file, expected).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    let remedy = "HEDDLE_BLESS=1 cargo test -p heddle-stack --test architectures";
    assert!(found == expected, "{path} differs from the declarations; it should read:\n{expected}\nRun: {remedy}");
}

/// `text` with `list` between the markers.
fn between_markers(text: &str, list: &str) -> String {
    let (before, rest) = text.split_once(BEGIN).expect("the document has the first marker");
    let (_, deferred) = rest.split_once(END).expect("the document has the second marker");
    format!("{before}{BEGIN}\n{list}\n{END}{deferred}")
}

#[test]
fn every_architecture_is_tested() {
    compare("crates/every-arch/src/architectures.txt", |_| format!("{HEAD}{}\n", stack::ALL_ARCHITECTURES.join("\n")));
    let tested: Vec<&str> = every_arch::architectures!().iter().map(|(_, arch)| *arch).collect();
    if std::env::var_os("HEDDLE_BLESS").is_none() {
        assert_eq!(tested, stack::ALL_ARCHITECTURES, "the macro was compiled from another list");
    }
}

#[test]
fn the_readme_lists_every_variant() {
    let list = format!("```text\n{}```\n", Architecture::catalogue());
    compare("README.md", |text| between_markers(text, &list));
}

#[test]
fn the_table_of_architectures_is_what_they_declare() {
    compare("ARCHITECTURE.md", |text| between_markers(text, &Architecture::table()));
}

/// A builder takes a name as text, borrowed or owned: the architecture of that name, or the error that lists all.
#[test]
fn a_name_becomes_its_architecture_and_an_unknown_name_an_error() {
    for name in stack::ALL_ARCHITECTURES {
        let arch = Architecture::named(name);
        assert_eq!((Architecture::try_from(name), Architecture::try_from(&name.to_owned())), (Ok(arch), Ok(arch)));
        assert_eq!(arch.to_string(), name);
    }
    let errors = [Architecture::try_from("none"), Architecture::try_from(&"none".to_owned())].map(Result::unwrap_err);
    for error in errors {
        assert!(error.to_string().starts_with("unknown architecture \"none\": use up, giant, msgp["), "{error}");
    }
}
