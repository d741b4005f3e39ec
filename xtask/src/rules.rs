//! `cargo xtask rules`: rules of the house that a search of the source can hold.
//!
//! * No protocol word under `crates/stack/src/arch`, nor in `arch.rs`: an RFC, a flag, a state, a sequence number. Architecture files hold
//!   exclusion and hand-off (ARCHITECTURE.md).
//! * A counter or a drop reason that is declared is counted somewhere in a `src` directory.
//!
//! Both look at what the compiler looks at: comments and the tests at the end of a file are left out of the search for
//! counters, and comments are part of the search for protocol words, since a rule cited is a rule that stands there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::metadata;

/// Words of protocols, as whole words. Names of architectures' papers and of counters are none.
const PROTOCOL_WORDS: &[&str] = &[
    "RFC",
    "SYN",
    "FIN",
    "RST",
    "SeqNumber",
    "TcpFlags",
    "State::Established",
    "TimeWait",
    "TIME-WAIT",
    "ESTABLISHED",
    "checksum",
    "SACK",
    "retransmission",
    "retransmit",
    "cookie",
    "iss",
    "irs",
];

/// Where counters are declared, and by what path they are counted.
const DECLARATIONS: &[(&str, &str)] =
    &[("crates/observe/src/counter.rs", "Counter"), ("crates/observe/src/drop_reason.rs", "DropReason")];

/// Holds the source to the rules.
pub fn check() -> Result<(), String> {
    let root = metadata::root();
    let mut architectures = sources(&root.join("crates/stack/src/arch"))?;
    architectures.push(root.join("crates/stack/src/arch.rs"));
    let mut broken = protocol_words(&architectures)?;
    let code = counting_code(&root)?;
    for (path, name) in DECLARATIONS {
        let text = read(&root.join(path))?;
        let dead = declared(&text).into_iter().filter(|variant| !mentions(&code, &format!("{name}::{variant}")));
        broken.extend(dead.map(|variant| format!("{path}: {name}::{variant} is declared and never counted")));
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

fn protocol_words(files: &[PathBuf]) -> Result<Vec<String>, String> {
    let mut broken = Vec::new();
    for file in files {
        for (number, line) in read(file)?.lines().enumerate() {
            for word in PROTOCOL_WORDS.iter().filter(|word| mentions(line, word)) {
                let line = number + 1;
                broken.push(format!("{}:{line}: the protocol word {word} in an architecture", file.display()));
            }
        }
    }
    Ok(broken)
}

/// All code that ships, but the declarations themselves.
fn counting_code(root: &Path) -> Result<String, String> {
    let mut code = String::new();
    for file in sources(&root.join("crates"))? {
        let path = file.strip_prefix(root).unwrap_or(&file);
        let shipped = path.components().any(|part| part.as_os_str() == "src");
        if shipped && !path.starts_with("crates/observe") {
            let text = read(&file)?;
            let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
            lines.for_each(|line| {
                code.push_str(line);
                code.push('\n');
            });
        }
    }
    Ok(code)
}

/// The variants of a declaration: one line each, `Variant "Sentence."`.
fn declared(text: &str) -> Vec<&str> {
    let variant = |line: &'_ str| -> Option<usize> {
        let (name, rest) = line.split_once(' ')?;
        let camel = name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(char::is_alphanumeric);
        (camel && rest.starts_with('"')).then_some(name.len())
    };
    text.lines().map(str::trim).filter_map(|line| variant(line).map(|len| &line[..len])).collect()
}

/// Whether `text` contains `word` as a whole word.
fn mentions(text: &str, word: &str) -> bool {
    let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        !part_of_word(text[..at].chars().next_back()) && !part_of_word(text[at + word.len()..].chars().next())
    })
}

/// The Rust files below a directory, in order.
fn sources(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error| format!("cannot read {}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_whole() {
        assert!(mentions("// RFC 9293, the SYN", "SYN"));
        assert!(!mentions("Asynchronous, SYNACK, syn", "SYN"));
        assert!(mentions("counters.drop(DropReason::NoRoute);", "DropReason::NoRoute"));
        assert!(!mentions("DropReason::NoRouteAtAll", "DropReason::NoRoute"));
    }

    #[test]
    fn declarations_are_lines_of_a_variant_and_a_sentence() {
        let text =
            "declare! {\n    pub enum Counter {\n        FramesIn \"Frames.\"\n        // not \"this\"\n    }\n}\n";
        assert_eq!(declared(text), ["FramesIn"]);
    }

    #[test]
    fn the_tree_keeps_the_rules() {
        assert_eq!(check(), Ok(()));
    }
}
