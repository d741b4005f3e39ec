//! `cargo xtask pages`: everything that the pages name must exist.
//!
//! A rename can leave references to files and tests that no longer exist. The check reads each tracked Markdown page
//! and fails if a code span names a source file, or a test by `module::beginning_...`, that does not exist, or if a
//! relative link is broken. A file may be named without `crates/`, and without `src/`, as the pages about code do.
//! Fenced blocks, templates (`arch/NAME.rs`) and files of other projects are ignored: a span counts as one of our files
//! if it has the directory of one of our crates.

use std::collections::BTreeSet;
use std::fs;

use crate::metadata;

/// The contents of the tree, in the forms that pages use.
struct Tree {
    files: BTreeSet<String>,
    /// Names of crates' directories, `xtask` and other top directories.
    rooms: BTreeSet<String>,
    functions: BTreeSet<String>,
}

/// Reads every page and reports names that do not exist.
pub fn check() -> Result<(), String> {
    let tree = Tree::read()?;
    let pages: Vec<&String> = tree.files.iter().filter(|path| path.ends_with(".md")).collect();
    let mut wrong = Vec::new();
    for page in &pages {
        let text =
            fs::read_to_string(metadata::root().join(page)).map_err(|error| format!("cannot read {page}: {error}"))?;
        wrong.extend(tree.missing(page, &text));
    }
    if wrong.is_empty() {
        println!("{} pages: every file and test that they name exists.", pages.len());
        return Ok(());
    }
    Err(format!("{}\nThese do not exist; name what took their place.", wrong.join("\n")))
}

impl Tree {
    fn read() -> Result<Tree, String> {
        let files = metadata::tracked()?;
        let code = files.iter().filter(|path| path.ends_with(".rs"));
        let code = code.filter_map(|path| fs::read_to_string(metadata::root().join(path)).ok());
        let functions = code.flat_map(|text| functions(&text)).collect();
        Ok(Tree::of(files, functions))
    }

    fn of(files: Vec<String>, functions: BTreeSet<String>) -> Tree {
        let parts = |path: &String| path.split('/').map(str::to_owned).collect::<Vec<_>>();
        let rooms = files.iter().map(parts).filter_map(|parts| match &parts[..] {
            [crates, room, _, ..] if crates == "crates" => Some(room.clone()),
            [top, _, ..] => Some(top.clone()),
            _ => None,
        });
        Tree { rooms: rooms.collect(), files: files.into_iter().collect(), functions }
    }

    /// A line for each name in `text` that does not exist.
    fn missing(&self, page: &str, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if fenced {
                continue;
            }
            let spans = line.split('`').skip(1).step_by(2).filter(|span| !self.has(span));
            let links = links(line).filter(|target| !self.leads(page, target));
            wrong.extend(spans.chain(links).map(|name| format!("{page}:{}: {name}", number + 1)));
        }
        wrong
    }

    /// Whether a code span names something that exists, or nothing that is checked.
    fn has(&self, span: &str) -> bool {
        if let Some((_, name)) = span.strip_suffix("...").and_then(|name| name.rsplit_once("::")) {
            let after = self.functions.range(name.to_owned()..).next();
            return after.is_some_and(|function| function.starts_with(name));
        }
        let room = span.strip_prefix("crates/").unwrap_or(span).split_once('/').map(|(room, _)| room);
        let Some(room) = room.filter(|room| is_source(span) && self.rooms.contains(*room)) else { return true };
        let bare = span.strip_prefix("crates/").unwrap_or(span);
        let rest = bare.strip_prefix(room).unwrap_or_default();
        [span.to_owned(), format!("crates/{bare}"), format!("crates/{room}/src{rest}")]
            .iter()
            .any(|path| self.files.contains(path))
    }

    /// Whether a relative link of a page leads to a file or a directory of the tree.
    fn leads(&self, page: &str, target: &str) -> bool {
        let target = target.split('#').next().unwrap_or_default();
        if target.is_empty() || target.contains(':') {
            return true;
        }
        let mut path: Vec<&str> = page.split('/').collect();
        path.pop();
        for part in target.trim_end_matches('/').split('/') {
            match part {
                "." => {}
                ".." => _ = path.pop(),
                part => path.push(part),
            }
        }
        let path = path.join("/");
        self.files.contains(&path) || self.files.iter().any(|file| file.starts_with(&format!("{path}/")))
    }
}

/// Whether a code span has the form of a source file's path; a template has a word in capitals or an asterisk.
fn is_source(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/_-.".contains(c);
    let suffix = [".rs", ".toml", ".txt", ".json", ".md", ".sh"].iter().any(|suffix| span.ends_with(suffix));
    suffix && (span.chars().all(plain) || span.ends_with(".md"))
}

/// The targets of the links in one line: `](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The names of the functions that a file defines.
fn functions(text: &str) -> Vec<String> {
    let names = text.split("fn ").skip(1);
    let name =
        |rest: &str| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default().to_owned();
    names.map(name).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let files =
            ["README.md", "docs/ci.md", "docs/walk.txt", "crates/stack/src/rx.rs", "crates/stack/tests/walk.rs"];
        let functions = functions("fn one_client_has_so_many() {}\nfn after() {}").into_iter().collect();
        Tree::of(files.map(str::to_owned).into(), functions)
    }

    fn missing(text: &str) -> Vec<String> {
        tree().missing("docs/ci.md", text)
    }

    #[test]
    fn what_exists_may_be_named() {
        let text = "`crates/stack/src/rx.rs`, `stack/src/rx.rs`, `stack/rx.rs`, `stack/tests/walk.rs`,\n[it](walk.txt#top), \
                    [map](../README.md), [code](../crates/stack), `real::one_client_...`, [web](https://example.org/x.rs)";
        assert!(missing(text).is_empty(), "{:?}", missing(text));
    }

    #[test]
    fn what_does_not_exist_is_found_with_its_line() {
        assert_eq!(
            missing("\n`stack/src/gone.rs` and [it](gone.txt)"),
            ["docs/ci.md:2: stack/src/gone.rs", "docs/ci.md:2: gone.txt"]
        );
        assert_eq!(missing("`real::one_server_...`"), ["docs/ci.md:1: real::one_server_..."]);
    }

    #[test]
    fn templates_other_projects_and_fenced_blocks_are_left_alone() {
        let text = "`stack/src/arch/NAME.rs`, `net/ipv4/tcp.rs`, `defaults.sh`\n```\n`stack/src/gone.rs`\n```";
        assert!(missing(text).is_empty(), "{:?}", missing(text));
    }

    #[test]
    fn the_pages_name_what_exists() {
        check().expect("the pages are true");
    }
}
