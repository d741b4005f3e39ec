//! The source of each counted instruction: parses callgrind's output file.
//!
//! Callgrind attributes each instruction to a source line, also where the compiler has inlined the function that the
//! line belongs to. [`by_file`] adds the counts up by file; [`Origin`] is the crate of the workspace, or the other
//! origin, of a file. The format is documented in the Valgrind manual, "Callgrind Format Specification".

use std::collections::{BTreeMap, HashMap};

/// The origin of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A file of a crate of the workspace: the crate's folder, and the path under its `src`.
    Workspace {
        /// Folder under `crates`.
        room: String,
        /// Path under the crate's folder, without `src/`.
        file: String,
    },
    /// Rust's standard library, nearly all of it inlined into the workspace's code.
    Standard,
    /// Vector instructions, mostly of checksums.
    Vectors,
    /// A dependency.
    Dependency,
    /// Code without debug information: the C library, mostly `memcpy`.
    System,
}

impl Origin {
    /// The origin of a file as callgrind names it.
    pub fn of(path: &str) -> Origin {
        let inside = path.rsplit_once("crates/").and_then(|(_, rest)| rest.split_once('/'));
        match inside {
            _ if path.contains("/core_arch/") => Origin::Vectors,
            _ if path.contains("/rustc/") || path.contains("/library/") => Origin::Standard,
            _ if path.contains("/registry/") => Origin::Dependency,
            Some((room, file)) => {
                let file = file.strip_prefix("src/").unwrap_or(file);
                Origin::Workspace { room: room.to_owned(), file: file.to_owned() }
            }
            None => Origin::System,
        }
    }

    /// The row of a table of crates that it belongs to.
    pub fn row(&self) -> String {
        match self {
            Origin::Workspace { room, .. } => format!("`{room}`"),
            Origin::Standard => "the standard library, inlined".to_owned(),
            Origin::Vectors => "vector instructions (checksums)".to_owned(),
            Origin::Dependency => "dependencies".to_owned(),
            Origin::System => "the C library (`memcpy`)".to_owned(),
        }
    }
}

/// Instructions by source file, from the text of a callgrind output file.
///
/// # Errors
/// A malformed line, with its number.
pub fn by_file(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut counts = BTreeMap::new();
    let mut file = "";
    // The line after `calls=` has the cost of the callee, which is counted at the callee.
    let mut callee = false;
    for (number, line) in text.lines().enumerate() {
        if let Some((key, value)) = line.split_once('=') {
            let named = name(value, &mut names, key);
            match key {
                "fl" | "fi" | "fe" => file = named,
                "calls" => callee = true,
                _ => {}
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && !std::mem::take(&mut callee)
        {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            let cost = cost.ok_or_else(|| format!("line {}: no cost in {line:?}", number + 1))?;
            *counts.entry(file.to_owned()).or_default() += cost;
        }
    }
    Ok(counts)
}

/// Instructions by source file and line, from the text of a callgrind output file.
///
/// # Errors
/// A malformed line, with its number.
pub fn by_line(text: &str) -> Result<BTreeMap<(String, u64), u64>, String> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut counts = BTreeMap::new();
    let (mut file, mut at) = ("", 0u64);
    let mut callee = false;
    for (number, line) in text.lines().enumerate() {
        if let Some((key, value)) = line.split_once('=') {
            let named = name(value, &mut names, key);
            match key {
                "fl" | "fi" | "fe" => file = named,
                "calls" => callee = true,
                _ => {}
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let malformed = || format!("line {}: no place and cost in {line:?}", number + 1);
            let mut words = line.split_whitespace();
            let place = words.next().ok_or_else(malformed)?;
            let by = |digits: &str| digits.parse::<u64>().map_err(|_| malformed());
            // A position may be relative to the one before, also to that of a call.
            at = match place.split_at(1) {
                ("*", _) => at,
                ("+", digits) => at + by(digits)?,
                ("-", digits) => at.saturating_sub(by(digits)?),
                _ => by(place)?,
            };
            let cost = words.next().and_then(|cost| cost.parse::<u64>().ok()).ok_or_else(malformed)?;
            if !std::mem::take(&mut callee) {
                *counts.entry((file.to_owned(), at)).or_default() += cost;
            }
        }
    }
    Ok(counts)
}

/// Resolves a compressed name, `(4) crates/tcp/src/lib.rs` the first time and `(4)` later. Only files are kept: other
/// names have separate numbers.
fn name<'a>(value: &'a str, names: &mut HashMap<&'a str, &'a str>, key: &str) -> &'a str {
    if !matches!(key, "fl" | "fi" | "fe" | "cfi" | "cfl") {
        return "";
    }
    match value.split_once(' ') {
        Some((id, name)) => {
            names.insert(id, name);
            name
        }
        None => names.get(value).copied().unwrap_or(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
version: 1
events: Ir
fl=(1) crates/tcp/src/output.rs
fn=(1) send
10 5
fi=(2) /rustc/abc/library/core/src/option.rs
+3 7
fe=(1)
12 1
cfi=(3) crates/stack/src/tx.rs
cfn=(2) emit
calls=4 20
12 400
fl=(3)
fn=(2)
20 400
fl=(4) ???
fn=(3) memcpy
0 9
totals: 422
";

    #[test]
    fn an_inlined_line_counts_for_its_own_file_and_a_callee_counts_once() {
        let counts = by_file(OUTPUT).unwrap();
        assert_eq!(counts["crates/tcp/src/output.rs"], 6);
        assert_eq!(counts["/rustc/abc/library/core/src/option.rs"], 7);
        assert_eq!(counts["crates/stack/src/tx.rs"], 400);
        assert_eq!(counts.values().sum::<u64>(), 422);
    }

    #[test]
    fn lines_are_those_of_the_source() {
        let counts = by_line(OUTPUT).unwrap();
        let at = |file: &str, line| counts.get(&(file.to_owned(), line)).copied();
        assert_eq!(at("crates/tcp/src/output.rs", 10), Some(5));
        assert_eq!(at("/rustc/abc/library/core/src/option.rs", 13), Some(7));
        assert_eq!(at("crates/tcp/src/output.rs", 12), Some(1), "the callee is counted at its own line");
        assert_eq!(at("crates/stack/src/tx.rs", 20), Some(400));
    }

    #[test]
    fn a_cost_line_without_a_cost_is_an_error() {
        assert!(by_file("fl=(1) a.rs\n10\n").unwrap_err().contains("line 2"));
    }

    #[test]
    fn files_belong_to_crates_the_standard_library_dependencies_or_the_system() {
        let tcp = Origin::of("/somewhere/crates/tcp/src/output/segments.rs");
        assert_eq!(tcp, Origin::Workspace { room: "tcp".into(), file: "output/segments.rs".into() });
        assert_eq!(Origin::of("/rustc/0123/library/alloc/src/vec/mod.rs"), Origin::Standard);
        let vectors = "/rustc/0123/library/core/src/../../stdarch/crates/core_arch/src/x86/avx2.rs";
        assert_eq!(Origin::of(vectors), Origin::Vectors);
        assert_eq!(Origin::of("/root/.cargo/registry/src/x/smallvec-1/src/lib.rs"), Origin::Dependency);
        assert_eq!(Origin::of("???"), Origin::System);
    }
}
