//! Which crates may contain `unsafe`. The roots of all others forbid it, so that the compiler keeps the rule.

use std::path::{Path, PathBuf};

/// The crates, in the words of ARCHITECTURE.md's invariants.
const ALLOWED: &[&str] = &["sync", "pktbuf", "dev-tap", "packetdrill", "vsmp"];

/// What a root must say.
const FORBIDS: &str = "#![forbid(unsafe_code)]";

/// The complaints about roots of crates below `directory` that do not forbid `unsafe`, or need not allow it.
pub(super) fn unfenced(directory: &Path, sources: &[PathBuf], read: impl Fn(&Path) -> String) -> Vec<String> {
    let is_root = |file: &&PathBuf| {
        file.parent().is_some_and(|source| source.ends_with("src"))
            && file.file_name().is_some_and(|name| name == "lib.rs" || name == "main.rs")
    };
    let complaint = |file: &PathBuf| {
        let within = file.strip_prefix(directory).unwrap_or(file);
        let name = within.iter().next()?.to_str()?;
        match (ALLOWED.contains(&name), read(file).contains(FORBIDS)) {
            (false, false) => Some(format!("{}: does not say {FORBIDS}", file.display())),
            (true, true) => Some(format!("{}: forbids unsafe code: take {name} off the list", file.display())),
            _ => None,
        }
    };
    sources.iter().filter(is_root).filter_map(complaint).collect()
}

/// The complaint about the sentence of ARCHITECTURE.md, if it does not name the crates.
pub(super) fn unlisted(page: &str) -> Option<String> {
    let sentence = page.split_once("* No `unsafe` outside ").map_or("", |(_, rest)| rest);
    let sentence = sentence.split("\n\n").next().unwrap_or_default();
    let missing: Vec<&str> = ALLOWED.iter().filter(|name| !sentence.contains(&format!("`{name}`"))).copied().collect();
    (!missing.is_empty()).then(|| format!("ARCHITECTURE.md: `No unsafe outside` does not name {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_forbids_unsafe_code_unless_its_crate_may_contain_it() {
        let files =
            ["crates/ip/src/lib.rs", "crates/ip/src/input.rs", "crates/sync/src/lib.rs", "crates/cli/src/main.rs"];
        let files = files.map(PathBuf::from);
        let found = |text: &str| unfenced(Path::new("crates"), &files, |_| text.to_owned());
        let [ip, cli] = &found("//! A crate.\n")[..] else { panic!("{:?}", found("")) };
        assert!(ip.starts_with("crates/ip/src/lib.rs") && cli.starts_with("crates/cli/src/main.rs"));
        assert_eq!(found(FORBIDS), ["crates/sync/src/lib.rs: forbids unsafe code: take sync off the list"]);
    }

    #[test]
    fn the_page_names_all_of_them() {
        let page =
            "* No `unsafe` outside `sync`, `pktbuf`, `dev-tap`, `packetdrill` (C's pointers) and `vsmp`.\n\n## Next\n";
        assert_eq!(unlisted(page), None);
        assert!(unlisted(&page.replace("`vsmp`", "others")).is_some_and(|complaint| complaint.contains("vsmp")));
    }
}
