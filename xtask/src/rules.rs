//! `cargo xtask rules`: rules that can be checked by a search of the source.
//!
//! * No protocol word under `crates/stack/src/arch`, nor in `arch.rs`: an RFC, a flag, a state, a sequence number.
//!   Architecture files contain exclusion and hand-off (ARCHITECTURE.md).
//! * No wire offset under `crates/stack/src`: no slice of bytes by literal bounds, and no number read from or written
//!   to bytes in network order. Fields are read by `wire`, and by the protocol crates.
//! * Under `crates/stack/src` and `crates/switch/src`, only `charge.rs` reports plain work and plain memory to the
//!   platform, and each of its functions first tests whether the platform charges: the needs of a simulator cost
//!   nothing on a real machine.
//! * Where a function of a crate that waits for locks keeps a guard, it takes the next lock with `lock_after`, not with
//!   `lock` (`rules/nested_locks.rs`).
//! * A counter or a drop reason that is declared is counted somewhere in a `src` directory.
//! * The file of an architecture is short (`rules/sizes.rs`).
//! * A protocol crate names nothing that threads share, and no clock; rules of `stack` over access traits name no lock
//!   (`rules/protocol_crates.rs`).
//! * The root of a crate forbids `unsafe`, but for those that ARCHITECTURE.md names (`rules/unsafety.rs`).
//! * Source, pages and messages have no word of `xtask/words.txt` (`rules/wording.rs`).
//!
//! Comments and the tests at the end of a file are left out of the searches for offsets and for counters. The search
//! for protocol words includes comments, since a cited rule is a protocol rule.

mod nested_locks;
mod protocol_crates;
mod sizes;
mod unsafety;
mod wording;

use std::fs;
use std::path::{Path, PathBuf};

use crate::metadata;

/// Words of protocols, as whole words. Names of architectures' papers and of counters are not included.
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

/// Where counters are declared, and the path by which they are counted.
const DECLARATIONS: &[(&str, &str)] =
    &[("crates/observe/src/counter.rs", "Counter"), ("crates/observe/src/drop_reason.rs", "DropReason")];

/// Checks the source.
pub fn check() -> Result<(), String> {
    let root = metadata::root();
    let mut architectures = sources(&root.join("crates/stack/src/arch"))?;
    architectures.push(root.join("crates/stack/src/arch.rs"));
    let mut broken = protocol_words(&architectures)?;
    for file in &architectures {
        broken.extend(sizes::too_long(&file.display().to_string(), &read(file)?));
    }
    for name in protocol_crates::CRATES {
        for file in sources(&root.join("crates").join(name).join("src"))? {
            if !file.ends_with("tests.rs") {
                broken.extend(protocol_crates::shared_state(&file.display().to_string(), &read(&file)?));
            }
        }
    }
    for path in protocol_crates::OVER_ACCESS.iter().map(|path| root.join(path)) {
        for file in if path.is_dir() { sources(&path)? } else { vec![path] } {
            broken.extend(protocol_crates::locks(&file.display().to_string(), &read(&file)?));
        }
    }
    let crates = root.join("crates");
    broken.extend(unsafety::unfenced(&crates, &sources(&crates)?, |file| read(file).unwrap_or_default()));
    broken.extend(unsafety::unlisted(&read(&root.join("ARCHITECTURE.md"))?));
    for file in sources(&root.join("crates/stack/src"))?.into_iter().filter(|file| !file.ends_with("tests.rs")) {
        let (path, text) = (file.display().to_string(), read(&file)?);
        broken.extend(wire_offsets(&path, &text));
        broken.extend(charges(&path, &text));
    }
    for file in sources(&root.join("crates/switch/src"))?.into_iter().filter(|file| !file.ends_with("tests.rs")) {
        broken.extend(charges(&file.display().to_string(), &read(&file)?));
    }
    for file in sources(&root.join("crates"))?.into_iter().filter(|file| takes_locks(&root, file)) {
        broken.extend(nested_locks::nested_locks(&file.display().to_string(), &read(&file)?));
    }
    broken.extend(private_words(&root)?);
    let code = counting_code(&root)?;
    for (path, name) in DECLARATIONS {
        let text = read(&root.join(path))?;
        let dead = declared(&text).into_iter().filter(|variant| !mentions(&code, &format!("{name}::{variant}")));
        broken.extend(dead.map(|variant| format!("{path}: {name}::{variant} is declared and never counted")));
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

/// Whether a file is shipped code above `sync`, which has locks without an order inside its own.
fn takes_locks(root: &Path, file: &Path) -> bool {
    let path = file.strip_prefix(root).unwrap_or(file);
    path.components().any(|part| part.as_os_str() == "src")
        && !path.starts_with("crates/sync")
        && !path.ends_with("tests.rs")
}

/// Searches every tracked source file and page for words that the project does not use, but for the search's own tests.
fn private_words(root: &Path) -> Result<Vec<String>, String> {
    let entries = wording::parse(&read(&root.join("xtask/words.txt"))?)?;
    let mut broken = Vec::new();
    for path in metadata::tracked()?.iter().filter(|path| path.ends_with(".rs") || path.ends_with(".md")) {
        if path != "xtask/src/rules/wording.rs" {
            broken.extend(wording::private_words(path, &read(&root.join(path))?, &entries));
        }
    }
    Ok(broken)
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

/// Calls that turn bytes of a packet into a number, or the reverse.
const NETWORK_ORDER: &[&str] = &["from_be_bytes", "to_be_bytes", "first_chunk", "first_chunk_mut", "split_first_chunk"];

/// The lines of the shipped part of a file that access bytes at fixed offsets.
fn wire_offsets(path: &str, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, line) in shipped(text).lines().enumerate() {
        let code: String = line.split("//").next().unwrap_or_default().split('"').step_by(2).collect();
        if slices_at_fixed_places(&code) || NETWORK_ORDER.iter().any(|call| mentions(&code, call)) {
            broken.push(format!("{path}:{}: a wire offset; ask `wire` or the protocol for the field", number + 1));
        }
    }
    broken
}

/// Calls that report the cost of plain code to a platform.
const CHARGES: &[&str] = &["work(Step", "::touch(", "::work(sync"];

/// The lines that charge outside `charge.rs`, and the public functions of that file without the test.
fn charges(path: &str, text: &str) -> Vec<String> {
    let text = shipped(text);
    if path.ends_with("src/charge.rs") {
        let asks = |function: &&str| function.split_once("{\n").is_some_and(|(_, body)| !body.starts_with(ASKS));
        let functions = text.split("\npub fn ").skip(1).filter(asks);
        let name = |function: &str| function.split(['<', '(']).next().unwrap_or_default().to_owned();
        return functions.map(|function| format!("{path}: {} does not ask P::CHARGED first", name(function))).collect();
    }
    let charging = |line: &str| CHARGES.iter().any(|call| line.contains(call));
    let lines = text.lines().enumerate().filter(|(_, line)| charging(line));
    lines.map(|(number, _)| format!("{path}:{}: charges; only charge.rs does", number + 1)).collect()
}

/// The beginning of the body of a function that charges.
const ASKS: &str = "    if P::CHARGED";

/// Whether a line has `[a..b]`, `.get(a..b)` or `.get(a)` where a bound is a number or a constant.
fn slices_at_fixed_places(code: &str) -> bool {
    let range = |text: &str| text.split_once("..").is_some_and(|(from, to)| fixed(from) || fixed(to));
    let inside = |open: &str, close: char, wanted: &dyn Fn(&str) -> bool| {
        code.match_indices(open).any(|(at, _)| {
            let rest = &code[at + open.len()..];
            rest.find(close).is_some_and(|end| wanted(&rest[..end]))
        })
    };
    let element = |text: &str| range(text) || text.parse::<usize>().is_ok();
    inside("[", ']', &range) || inside(".get(", ')', &element) || inside(".get_mut(", ')', &element)
}

/// Whether a bound of a range is a number, or begins with a constant.
fn fixed(bound: &str) -> bool {
    let word = bound.trim().trim_start_matches('=').split([' ', '+']).next().unwrap_or_default();
    let name = word.rsplit("::").next().unwrap_or(word);
    let constant = name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    constant || word.starts_with(|c: char| c.is_ascii_digit())
}

/// A file without the tests at its end.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
}

/// All shipped code, except the declarations themselves.
fn counting_code(root: &Path) -> Result<String, String> {
    let mut code = String::new();
    for file in sources(&root.join("crates"))? {
        let path = file.strip_prefix(root).unwrap_or(&file);
        let ships = path.components().any(|part| part.as_os_str() == "src");
        if ships && !path.starts_with("crates/observe") {
            let text = read(&file)?;
            let lines = shipped(&text).lines().filter(|line| !line.trim_start().starts_with("//"));
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
        assert!(mentions("counters.count_drop(DropReason::NoRoute);", "DropReason::NoRoute"));
        assert!(!mentions("DropReason::NoRouteAtAll", "DropReason::NoRoute"));
    }

    #[test]
    fn a_look_into_bytes_at_a_fixed_place_is_found() {
        let offsets = [
            "let flags = segment.get(13)?;",
            "let ack = u32::from_be_bytes(bytes);",
            "let ports = &packet[20..24];",
            "buf[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum);",
            "let quoted = &buf[icmpv4::HEADER_LEN..];",
            "packet.get(..len).and_then(|head| head.get(9..=9))",
        ];
        for line in offsets {
            assert_eq!(wire_offsets("f", line).len(), 1, "{line}");
        }
        let innocent = [
            "for stage in 0..STAGES {",
            "let [first, rest @ ..] = words;",
            "places[0]; &text[..len]; self.slots.get(slot); [0; 16]; &port[..]",
            "options: \"[:1..1024]\",",
            "// as `get(10..12)` once did",
        ];
        for line in innocent {
            assert_eq!(wire_offsets("f", line), Vec::<String>::new(), "{line}");
        }
        assert_eq!(wire_offsets("f", "#[cfg(test)]\nmod tests {\n    let x = a[0..4];\n}"), Vec::<String>::new());
    }

    #[test]
    fn what_charges_stands_in_one_file_and_asks_first() {
        assert_eq!(charges("src/rx.rs", "fn f() {\n    P::work(Step::Frame, 1);\n}\n").len(), 1);
        assert_eq!(charges("src/rx.rs", "fn f() {\n    charge::frame::<P>(&buffer);\n}\n"), Vec::<String>::new());
        let asks = "\npub fn batch<P>() {\n    if P::CHARGED {\n        P::work(Step::Batch, 1);\n    }\n}\n";
        assert_eq!(charges("src/charge.rs", asks), Vec::<String>::new());
        let blunt = "\npub fn batch<P>() {\n    P::work(Step::Batch, 1);\n}\n";
        assert_eq!(charges("src/charge.rs", blunt), ["src/charge.rs: batch does not ask P::CHARGED first"]);
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
