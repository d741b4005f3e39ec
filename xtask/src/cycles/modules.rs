//! The modules of a crate, and their references to each other.
//!
//! A module is identified by the place of its file. Paths in `use` items and in code are resolved as by the compiler,
//! as far as modules are concerned: an imported name leads to its origin; a name that is neither a child nor imported
//! is defined in the module.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::graph::Graph;
use super::tokens::{Token, tokens};

/// A path of names from the root of the crate.
type Names = Vec<String>;

/// One path in the code of a module.
struct Reference {
    /// As written, from the module on: `crate`, `self`, `super` or a child first.
    path: Names,
    line: usize,
    /// It re-exports a name of a child, which is not an import of the module's own code.
    re_export: bool,
    /// The names of its inline module, below the module of the file.
    inside: Names,
}

struct Module {
    file: String,
    source: String,
    references: Vec<Reference>,
    /// Names imported by `use` items.
    imported: BTreeMap<String, Names>,
}

/// A crate's modules by path.
pub struct Crate {
    modules: BTreeMap<Names, Module>,
}

impl Crate {
    /// Reads every module below `directory`, named `shown` in messages.
    pub fn read(directory: &Path, shown: &str) -> Result<Crate, String> {
        let mut sources = BTreeMap::new();
        collect(directory, &[], &mut sources)?;
        let files = sources.into_iter().map(|(names, (file, source))| (names, (format!("{shown}/{file}"), source)));
        Ok(Crate::parse(files.collect()))
    }

    /// The modules of these files, given with their sources.
    pub fn parse(sources: BTreeMap<Names, (String, String)>) -> Crate {
        let paths: Vec<Names> = sources.keys().cloned().collect();
        let mut modules = BTreeMap::new();
        for (names, (file, source)) in sources {
            let child = |word: &str| {
                paths.iter().any(|path| {
                    path.len() == names.len() + 1
                        && path.starts_with(&names)
                        && path.last().is_some_and(|last| last == word)
                })
            };
            let (references, imported) = references(&source, &child);
            modules.insert(names, Module { file, source, references, imported });
        }
        Crate { modules }
    }

    /// The imports between the children of the module `within`, which itself is one of the nodes: `mod`, or `lib` for
    /// the crate.
    pub fn graph(&self, within: &[&str]) -> Graph {
        let mut graph = Graph::default();
        for (names, module) in self.modules.iter().filter(|(names, _)| starts(names, within)) {
            let from = node(names, within);
            for reference in &module.references {
                let target = self.resolve(names, reference);
                if !starts(&target, within) || reference.re_export && target.starts_with(names) {
                    continue;
                }
                let text = module.source.lines().nth(reference.line - 1).unwrap_or_default().trim();
                graph.add(&from, &node(&target, within), format!("{}:{}: {text}", module.file, reference.line));
            }
        }
        graph
    }

    /// The module that defines the target of a reference.
    fn resolve(&self, names: &[String], reference: &Reference) -> Names {
        self.locate([names, &reference.inside].concat(), &reference.path, 0).0
    }

    /// Resolves a path in the module `at`: the module that defines its last name, and whether the last name is that
    /// module itself. `depth` bounds circular imports.
    fn locate(&self, mut at: Names, path: &[String], depth: usize) -> (Names, bool) {
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => _ = at.pop(),
                _ => {
                    // An inline module is part of its file.
                    while !self.modules.contains_key(&at) && at.pop().is_some() {}
                    let child = [&at[..], std::slice::from_ref(name)].concat();
                    if self.modules.contains_key(&child) {
                        at = child;
                        continue;
                    }
                    let imported = self.modules.get(&at).and_then(|module| module.imported.get(name));
                    let Some(onward) = imported.filter(|_| depth < 8) else { return (at, false) };
                    let (found, is_module) = self.locate(at, onward, depth + 1);
                    return if is_module { self.locate(found, &path[index + 1..], depth + 1) } else { (found, false) };
                }
            }
        }
        while !self.modules.contains_key(&at) && at.pop().is_some() {}
        (at, true)
    }
}

fn starts(names: &[String], within: &[&str]) -> bool {
    names.len() >= within.len() && names.iter().zip(within).all(|(name, part)| name == part)
}

/// The node of a module: the child of `within` that contains it.
fn node(names: &[String], within: &[&str]) -> String {
    let own = if within.is_empty() { "lib" } else { "mod" };
    names.get(within.len()).cloned().unwrap_or_else(|| own.to_owned())
}

/// Every module below a directory, with its relative file and its source, without tests.
fn collect(directory: &Path, names: &[String], sources: &mut BTreeMap<Names, (String, String)>) -> Result<(), String> {
    let wrong = |error| format!("cannot read {}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let below = |name: &str| [names, &[name.to_owned()]].concat();
        if path.is_dir() {
            collect(&path, &below(&stem), sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "tests" {
            let own = if matches!(stem.as_str(), "mod" | "lib") { names.to_vec() } else { below(&stem) };
            let file = [names, &[format!("{stem}.rs")]].concat().join("/");
            sources.insert(own, (file, fs::read_to_string(&path).map_err(wrong)?));
        }
    }
    Ok(())
}

/// The paths in the code of a module, and the names that it imports. `child`: whether a word names a child of it.
fn references(source: &str, child: &dyn Fn(&str) -> bool) -> (Vec<Reference>, BTreeMap<String, Names>) {
    let tokens = tokens(source);
    let (mut found, mut imported) = (Vec::new(), BTreeMap::new());
    let (mut depth, mut inline): (usize, Vec<(String, usize)>) = (0, Vec::new());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let before = at.checked_sub(1).map_or("", |before| tokens[before].text);
        let next = tokens.get(at + 1).map_or("", |token| token.text);
        let begins = matches!(token.text, "crate" | "super" | "self") || child(token.text) || before == "use";
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inline.retain(|(_, opened)| *opened <= depth);
            }
            "mod" if tokens.get(at + 2).is_some_and(|token| token.text == "{") => {
                inline.push((next.to_owned(), depth + 1));
            }
            _ if begins && before != "::" && before != "." && next == "::" => {
                let public = before == "use" && is_public(&tokens[..at - 1]);
                let mut paths = Vec::new();
                let end = read_path(&tokens, at, &[], &mut paths);
                for (path, name, line) in paths {
                    if before == "use" && inline.is_empty() {
                        imported.insert(name, path.clone());
                    }
                    let known = matches!(path[0].as_str(), "crate" | "super" | "self") || child(&path[0]);
                    if known {
                        let inside = inline.iter().map(|(name, _)| name.clone()).collect();
                        found.push(Reference { path, line, re_export: public, inside });
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    imported.retain(|_, path| matches!(path[0].as_str(), "crate" | "super" | "self") || child(&path[0]));
    (found, imported)
}

/// Whether these tokens end with `pub` or `pub(..)`.
fn is_public(tokens: &[Token<'_>]) -> bool {
    let texts: Vec<&str> = tokens.iter().rev().take(4).map(|token| token.text).collect();
    matches!(texts[..], ["pub", ..] | [")", _, "(", "pub"])
}

/// Parses the path at `at` with its branches in braces: each with its local name and line. Returns the index after it.
fn read_path(tokens: &[Token<'_>], mut at: usize, prefix: &[String], paths: &mut Vec<(Names, String, usize)>) -> usize {
    let mut path = prefix.to_vec();
    let mut line = 0;
    while let Some(token) = tokens.get(at) {
        line = token.line;
        match token.text {
            "{" => return read_branches(tokens, at + 1, &path, paths),
            "*" => at += 1,
            "self" if !path.is_empty() => at += 1,
            word if is_word(word) => {
                path.push(word.to_owned());
                at += 1;
            }
            _ => break,
        }
        if tokens.get(at).is_none_or(|token| token.text != "::") {
            break;
        }
        at += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if tokens.get(at).is_some_and(|token| token.text == "as")
        && let Some(alias) = tokens.get(at + 1)
    {
        name = alias.text.to_owned();
        at += 2;
    }
    if !path.is_empty() {
        paths.push((path, name, line));
    }
    at
}

fn read_branches(
    tokens: &[Token<'_>],
    mut at: usize,
    prefix: &[String],
    paths: &mut Vec<(Names, String, usize)>,
) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.text {
            "}" => return at + 1,
            "," => at += 1,
            _ => {
                let next = read_path(tokens, at, prefix, paths);
                at = next.max(at + 1);
            }
        }
    }
    at
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}
