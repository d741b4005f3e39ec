//! The walk from a crate's root: the items that a user can name, and their paths.
//!
//! An item with several paths is described at the shortest, and the others refer to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::description::{Crates, Item};
use super::signature::{Names, Writer, kind};

/// Auto traits that users rely on.
const AUTO: [&str; 2] = ["Send", "Sync"];

/// The marker trait of a derived `PartialEq`.
const MARKER: &str = "StructuralPartialEq";

/// The lines of the interface, sorted by path, and the types in it without a path.
pub fn list(crates: &Crates, library: &str) -> (Vec<String>, BTreeSet<String>) {
    let (names, again) = named(crates, library);
    let mut lister = Lister { crates, writer: Writer::new(crates, &names), lines: Vec::new() };
    for (item, path) in &names {
        lister.item(*item, path);
    }
    for (path, same) in again {
        lister.line(&path, format!("use {path} = {same}"));
    }
    lister.lines.sort();
    lister.lines.dedup();
    let unnamed = lister.writer.into_unnamed();
    (lister.lines.into_iter().map(|(_, line)| line).collect(), unnamed)
}

/// Every item with its shortest path; and the other paths, each with the shortest.
pub fn named(crates: &Crates, library: &str) -> (Names, BTreeMap<String, String>) {
    let (mut names, mut again) = (Names::new(), BTreeMap::new());
    let mut rest: VecDeque<(Item, String)> =
        crates.root(library).map(|root| (root, String::new())).into_iter().collect();
    // Breadth first: shorter paths come first.
    while let Some((module, path)) = rest.pop_front() {
        for child in members(crates, module) {
            let (name, item) = child;
            let path = if path.is_empty() { name } else { format!("{path}::{name}") };
            let Some(item) = item else {
                again.insert(path, "an item of another project".to_owned());
                continue;
            };
            if let Some(known) = names.get(&item) {
                again.insert(path, known.clone());
                continue;
            }
            if kind(crates.item(item)) == "module" {
                rest.push_back((item, path.clone()));
            }
            names.insert(item, path);
        }
    }
    (names, again)
}

/// The public members of a module by name; `None`: not ours.
fn members(crates: &Crates, module: Item) -> Vec<(String, Option<Item>)> {
    let ids = &crates.item(module)["inner"]["module"]["items"];
    let mut members = Vec::new();
    for item in ids.as_array().into_iter().flatten().filter_map(|id| crates.find(module, id)) {
        let said = crates.item(item);
        if said["visibility"] != "public" && kind(said) != "impl" {
            continue;
        }
        let import = &said["inner"]["use"];
        if import.is_null() {
            members.extend(said["name"].as_str().map(|name| (name.to_owned(), Some(item))));
            continue;
        }
        let target = crates.find(item, &import["id"]);
        if import["is_glob"] == true {
            members.extend(target.into_iter().flat_map(|target| self::members(crates, target)));
        } else {
            // A chain of re-exports ends at the item itself.
            let name = import["name"].as_str().unwrap_or_default().to_owned();
            members.push((name, target.map(|target| resolved(crates, target))));
        }
    }
    members
}

/// The item behind a re-export, or behind an alias that only fixes arguments.
fn resolved(crates: &Crates, item: Item) -> Item {
    let import = &crates.item(item)["inner"]["use"];
    crates.find(item, &import["id"]).map_or(item, |target| resolved(crates, target))
}

struct Lister<'a> {
    crates: &'a Crates,
    writer: Writer<'a>,
    lines: Vec<(String, String)>,
}

impl Lister<'_> {
    fn line(&mut self, path: &str, line: String) {
        self.lines.push((path.to_owned(), line));
    }

    /// An item with its fields, variants, methods and traits.
    fn item(&mut self, item: Item, path: &str) {
        let said = self.crates.item(item);
        let inner = &said["inner"][kind(said)];
        let line = self.writer.declaration(item, path);
        self.line(path, line);
        match kind(said) {
            "struct" => {
                self.fields(item, &inner["kind"]["plain"]["fields"], path);
                self.fields(item, &inner["kind"]["tuple"], path);
            }
            "enum" => self.each(item, &inner["variants"], path, Self::variant),
            "trait" => self.each(item, &inner["items"], path, Self::member),
            "type_alias" => self.behind_alias(item, path),
            _ => {}
        }
        self.implementations(item, path);
    }

    /// The methods of an alias's type, if no other path names it.
    fn behind_alias(&mut self, item: Item, path: &str) {
        if let Some(target) = self.writer.aliased(item) {
            self.implementations(target, path);
        }
    }

    fn implementations(&mut self, item: Item, path: &str) {
        let said = self.crates.item(item);
        let mut traits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for block in self.found(item, &said["inner"][kind(said)]["impls"]) {
            if let Some((of_trait, of_type)) = self.implementation(block, path) {
                traits.entry(of_type).or_default().insert(of_trait);
            }
        }
        for (of_type, traits) in traits {
            let traits: Vec<String> = traits.into_iter().collect();
            self.line(&format!("{path} "), format!("impl {} for {of_type}", traits.join(" + ")));
        }
    }

    fn each(&mut self, of: Item, ids: &Value, path: &str, list: fn(&mut Self, Item, &str)) {
        for item in self.found(of, ids) {
            list(self, item, path);
        }
    }

    fn found(&self, of: Item, ids: &Value) -> Vec<Item> {
        ids.as_array().into_iter().flatten().filter_map(|id| self.crates.find(of, id)).collect()
    }

    fn fields(&mut self, of: Item, ids: &Value, path: &str) {
        for field in self.found(of, ids) {
            let said = self.crates.item(field);
            if said["visibility"] == "public" || said["visibility"] == "default" {
                self.member(field, path);
            }
        }
    }

    fn variant(&mut self, item: Item, path: &str) {
        self.member(item, path);
        let said = self.crates.item(item);
        let path = format!("{path}::{}", said["name"].as_str().unwrap_or_default());
        let fields = said["inner"]["variant"]["kind"]["struct"]["fields"].clone();
        self.fields(item, &fields, &path);
    }

    fn member(&mut self, item: Item, path: &str) {
        let path = format!("{path}::{}", self.crates.item(item)["name"].as_str().unwrap_or_default());
        let line = self.writer.declaration(item, &path);
        self.line(&path, line);
    }

    /// Lists inherent methods and returns `None`, or returns the trait and the implementing type.
    fn implementation(&mut self, block: Item, path: &str) -> Option<(String, String)> {
        let said = &self.crates.item(block)["inner"]["impl"];
        let of_trait = &said["trait"];
        if of_trait.is_null() {
            for item in self.found(block, &said["items"]) {
                if self.crates.item(item)["visibility"] == "public" {
                    self.member(item, path);
                }
            }
            return None;
        }
        let automatic = said["is_synthetic"] == true && !AUTO.iter().any(|name| of_trait["path"] == *name);
        let told = said["blanket_impl"].is_null() && !automatic && of_trait["path"] != MARKER;
        (told && !self.writer.is_hidden(block)).then(|| self.writer.implementation(block, path))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn public(name: &str, inner: Value) -> Value {
        json!({"name": name, "visibility": "public", "attrs": [], "inner": inner})
    }

    fn function(output: &Value) -> Value {
        let generics = json!({"params": [], "where_predicates": []});
        json!({"function": {"sig": {"inputs": [], "output": output}, "generics": generics, "header": {}}})
    }

    /// A library with a function `f` that returns the struct `T` of an inner crate, and the given `items`.
    fn crates(items: &[(u64, Value)]) -> Crates {
        let t = json!({"resolved_path": {"path": "T", "id": 9, "args": null}});
        let mut index = json!({"1": public("f", function(&t))});
        let mut members = vec![1];
        for (id, item) in items {
            index[id.to_string()] = item.clone();
            members.push(*id);
        }
        index["0"] = public("library", json!({"module": {"items": members}}));
        let library =
            json!({"root": 0, "index": index, "paths": {"9": {"crate_id": 5, "path": ["behind", "private", "T"]}}});
        let t = json!({"struct": {"kind": "unit", "generics": {}, "impls": []}});
        let paths = json!({"3": {"crate_id": 0, "path": ["behind", "private", "T"]}});
        let behind = json!({"root": 0, "index": {"3": public("T", t)}, "paths": paths});
        Crates::new(vec![("library".to_owned(), library), ("behind".to_owned(), behind)])
    }

    fn import(name: &str) -> Value {
        json!({"name": null, "visibility": "public", "inner": {"use": {"name": name, "id": 9, "is_glob": false}}})
    }

    #[test]
    fn a_type_of_a_crate_behind_needs_a_path() {
        let (_, unnamed) = list(&crates(&[]), "library");
        assert_eq!(unnamed, BTreeSet::from(["behind::private::T in f".to_owned()]));
        let (lines, unnamed) = list(&crates(&[(2, import("Named"))]), "library");
        assert!(unnamed.is_empty(), "{unnamed:?}");
        assert_eq!(lines, ["struct Named;", "fn f() -> Named"]);
    }

    #[test]
    fn a_second_path_is_the_same_item() {
        let (lines, _) = list(&crates(&[(2, import("A")), (3, import("B"))]), "library");
        assert_eq!(lines, ["struct A;", "use B = A", "fn f() -> A"]);
    }
}
