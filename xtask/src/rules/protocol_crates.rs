//! No protocol crate names a lock, an atomic, a thread or a clock. Clippy refuses the types that each crate's `clippy.toml`
//! lists; this search refuses the words, so that none is forgotten, and none comes in by another crate.
//!
//! The rules of `stack` that are written over access traits name no lock, either.

/// The crates.
pub(super) const CRATES: &[&str] = &["wire", "xdr", "ip", "tcp", "udp", "bridge"];

/// Files and directories of `stack` with rules that are written over access traits.
pub(super) const OVER_ACCESS: &[&str] =
    &["crates/stack/src/connections", "crates/stack/src/routes.rs", "crates/stack/src/internet.rs"];

/// Whole words: locks of `sync`, and the calls that take them.
const LOCKS: &[&str] = &["Lock", "ClaimLock", "Guard", "ClaimGuard", "lock", "lock_after", "hold"];

/// Whole words.
const WORDS: &[&str] = &[
    "Mutex",
    "RwLock",
    "Condvar",
    "Barrier",
    "Once",
    "OnceLock",
    "LazyLock",
    "mpsc",
    "thread_local",
    "RefCell",
    "UnsafeCell",
    "Instant",
    "SystemTime",
];

/// Modules of the standard library: all of the first, and of the second all but `Arc`.
const THREADS: &str = "std::thread";
const SYNC: &str = "std::sync::";

/// The lines of the shipped part of a file that name one.
pub(super) fn shared_state(path: &str, text: &str) -> Vec<String> {
    let lines = super::shipped(text).lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines
        .filter_map(|(number, line)| Some(format!("{path}:{}: {} in a protocol crate", number + 1, word(line)?)))
        .collect()
}

/// The lines of the shipped part of a file over access traits that name a lock, or take one.
pub(super) fn locks(path: &str, text: &str) -> Vec<String> {
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let lines = super::shipped(text).lines().map(code).enumerate();
    let named =
        lines.filter_map(|(number, code)| Some((number, LOCKS.iter().find(|word| super::mentions(&code, word))?)));
    named.map(|(number, word)| format!("{path}:{}: {word} in rules over access traits", number + 1)).collect()
}

fn word(line: &str) -> Option<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let atomic = code.find("Atomic").map(|at| &code[at..]).filter(|rest| rest[6..].starts_with(char::is_uppercase));
    if let Some(atomic) = atomic {
        return Some(atomic.split(|c: char| !c.is_alphanumeric()).next().unwrap_or(atomic));
    }
    let beyond = |at: usize| !code[at + SYNC.len()..].starts_with("Arc");
    if code.match_indices(SYNC).any(|(at, _)| beyond(at)) {
        return Some(SYNC);
    }
    WORDS.iter().chain([&THREADS]).find(|word| super::mentions(code, word)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_in_rules_over_access_traits_is_found() {
        for line in
            ["    table: ClaimLock<RouteTable, P>,", "    let table = self.table.hold();", "place.lock().find(name)"]
        {
            assert_eq!(locks("f", line).len(), 1, "{line}");
        }
        for line in ["//! No lock is visible.", "    mtu_locked: bool,", "fn holds_lock(&self) {"] {
            assert_eq!(locks("f", line), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn what_threads_share_is_found() {
        let found = [
            "use std::sync::Mutex;",
            "use std::sync::{Arc, OnceLock};",
            "    seen: AtomicI64,",
            "    std::thread::yield_now();",
            "thread_local! {",
            "    let now = Instant::now();",
            "    state: RefCell<State>,",
        ];
        for line in found {
            assert_eq!(shared_state("f", line).len(), 1, "{line}");
        }
        let innocent = [
            "use std::sync::Arc;",
            "// A Mutex would be wrong here.",
            "let atomically = once; // Instant",
            "    /// Whether the Once of the caller",
            "#[cfg(test)]\nmod tests {\n    use std::cell::RefCell;\n}",
        ];
        for line in innocent {
            assert_eq!(shared_state("f", line), Vec::<String>::new(), "{line}");
        }
    }
}
