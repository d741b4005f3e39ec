//! Writes items of rustdoc's description in Rust syntax: declarations, types, generics.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::description::{Crates, Item};

/// Paths of items.
pub type Names = BTreeMap<Item, String>;

/// The platform of the library. It is a type argument of its types, which no user writes.
const PLATFORM: &str = "sync::real::Real";

/// The kind of an item: the name of the only member of `inner`.
pub fn kind(item: &Value) -> &str {
    item["inner"].as_object().and_then(|inner| inner.keys().next()).map_or("", String::as_str)
}

/// Writes declarations and records types without a path.
pub struct Writer<'a> {
    crates: &'a Crates,
    names: &'a Names,
    unnamed: RefCell<BTreeSet<String>>,
}

impl<'a> Writer<'a> {
    pub fn new(crates: &'a Crates, names: &'a Names) -> Writer<'a> {
        Writer { crates, names, unnamed: RefCell::default() }
    }

    /// Types that were written without a path, each with its place.
    pub fn into_unnamed(self) -> BTreeSet<String> {
        self.unnamed.into_inner()
    }

    /// The item at `path`, in one line.
    pub fn declaration(&self, item: Item, path: &str) -> String {
        let said = self.crates.item(item);
        let kind = kind(said);
        let inner = &said["inner"][kind];
        let at = At { writer: self, item, path };
        let generics = at.parameters(&inner["generics"]);
        let bounds = at.bounds_of(&inner["generics"]);
        let open = if is_open(said) { "#[non_exhaustive] " } else { "" };
        match kind {
            "module" => format!("mod {path}"),
            "struct" => {
                let opaque = inner["kind"]["plain"]["has_stripped_fields"] == true;
                let unit = if inner["kind"] == "unit" { ";" } else { "" };
                format!("{open}struct {path}{generics}{bounds}{}{unit}", if opaque { " { .. }" } else { "" })
            }
            "enum" => format!("{open}enum {path}{generics}{bounds}"),
            "variant" => format!("{open}{path}{}", at.variant(&inner["kind"])),
            "struct_field" => format!("{path}: {}", at.a_type(inner)),
            "function" => at.function(inner, &generics, &bounds),
            "trait" => format!("trait {path}{generics}{}{bounds}", at.after_colon(&inner["bounds"])),
            "type_alias" => format!("type {path}{generics}"),
            "constant" => format!("const {path}: {} = {}", at.a_type(&inner["type"]), text(&inner["const"]["expr"])),
            "static" => format!("static {path}: {}", at.a_type(&inner["type"])),
            "assoc_const" => format!("const {path}: {}", at.a_type(&inner["type"])),
            "assoc_type" => format!("type {path}{}", at.after_colon(&inner["bounds"])),
            "macro" => format!("macro {path}!"),
            other => format!("{other} {path}"),
        }
    }

    /// The trait implemented by the item at `path`, and the implementing type, which may be a reference.
    pub fn implementation(&self, block: Item, path: &str) -> (String, String) {
        let said = &self.crates.item(block)["inner"]["impl"];
        let at = At { writer: self, item: block, path };
        let not = if said["is_negative"] == true { "!" } else { "" };
        (format!("{not}{}", at.path(&said["trait"])), at.a_type(&said["for"]))
    }

    /// Whether an implementation is of, or for, one of our items without a path, and so invisible to users. (It may be
    /// listed at a type only because it mentions that type.)
    pub fn is_hidden(&self, block: Item) -> bool {
        let said = &self.crates.item(block)["inner"]["impl"];
        let is_hidden = |id: &Value| {
            let ours = self.crates.definition(block, id).is_some();
            let item = self.crates.find(block, id);
            ours && item.is_none_or(|item| !self.names.contains_key(&item) && self.alias_of(item).is_none())
        };
        is_hidden(&said["trait"]["id"]) || is_hidden(&said["for"]["resolved_path"]["id"])
    }

    /// The type of ours behind an alias, if no path names it.
    pub fn aliased(&self, alias: Item) -> Option<Item> {
        let id = &self.crates.item(alias)["inner"]["type_alias"]["type"]["resolved_path"]["id"];
        self.crates.find(alias, id).filter(|item| !self.names.contains_key(item))
    }

    /// The path of an alias for a type of ours that has no other path.
    fn alias_of(&self, item: Item) -> Option<&String> {
        let mut aliases = self.names.iter().filter(|(alias, _)| kind(self.crates.item(**alias)) == "type_alias");
        aliases.find(|(alias, _)| self.aliased(**alias) == Some(item)).map(|(_, path)| path)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is_open(item: &Value) -> bool {
    list(&item["attrs"]).any(|attribute| attribute == "non_exhaustive")
}

/// The short form of another project's path: its last name, with the module if that is needed to identify it.
fn short(path: &str) -> String {
    let parts: Vec<&str> = path.split("::").collect();
    let kept = if matches!(parts.last(), Some(&("Result" | "Error"))) { 2 } else { 1 };
    parts[parts.len().saturating_sub(kept)..].join("::")
}

fn joined(parts: impl Iterator<Item = String>, between: &str) -> String {
    parts.collect::<Vec<_>>().join(between)
}

/// The context of a written type: the crate of `item`, and the path of the declaration.
struct At<'w, 'a> {
    writer: &'w Writer<'a>,
    item: Item,
    path: &'w str,
}

impl At<'_, '_> {
    fn function(&self, inner: &Value, generics: &str, bounds: &str) -> String {
        let header = &inner["header"];
        let words = [("is_const", "const "), ("is_async", "async "), ("is_unsafe", "unsafe ")];
        let words: String = words.iter().filter(|(key, _)| header[key] == true).map(|(_, word)| *word).collect();
        let inputs = joined(list(&inner["sig"]["inputs"]).map(|input| self.input(text(&input[0]), &input[1])), ", ");
        format!("{words}fn {}{generics}({inputs}){}{bounds}", self.path, self.output(&inner["sig"]["output"]))
    }

    fn input(&self, name: &str, of_type: &Value) -> String {
        let borrowed = &of_type["borrowed_ref"];
        match name {
            "self" if of_type["generic"] == "Self" => "self".to_owned(),
            "self" if borrowed["type"]["generic"] == "Self" && borrowed["is_mutable"] == true => "&mut self".to_owned(),
            "self" if borrowed["type"]["generic"] == "Self" => "&self".to_owned(),
            name => format!("{name}: {}", self.a_type(of_type)),
        }
    }

    fn output(&self, output: &Value) -> String {
        if output.is_null() { String::new() } else { format!(" -> {}", self.a_type(output)) }
    }

    fn variant(&self, kind: &Value) -> String {
        if !kind["struct"].is_null() {
            return " { .. }".to_owned();
        }
        let ids: Vec<&Value> = list(&kind["tuple"]).collect();
        if ids.is_empty() {
            return String::new();
        }
        let crates = self.writer.crates;
        let fields = ids.into_iter().map(|id| {
            let field = crates.find(self.item, id);
            field.map_or("_".to_owned(), |field| self.a_type(&crates.item(field)["inner"]["struct_field"]))
        });
        format!("({})", joined(fields, ", "))
    }

    /// `<T, 'a>`, without the implicit parameters of `impl Trait`.
    fn parameters(&self, generics: &Value) -> String {
        let written = list(&generics["params"]).filter(|parameter| parameter["kind"]["type"]["is_synthetic"] != true);
        let parameters = joined(written.map(|parameter| self.parameter(parameter)), ", ");
        if parameters.is_empty() { parameters } else { format!("<{parameters}>") }
    }

    fn parameter(&self, parameter: &Value) -> String {
        let (name, kind) = (text(&parameter["name"]), &parameter["kind"]);
        match kind["const"]["type"].is_null() {
            false => format!("const {name}: {}", self.a_type(&kind["const"]["type"])),
            true => format!("{name}{}", self.after_colon(&kind["type"]["bounds"])),
        }
    }

    fn bounds_of(&self, generics: &Value) -> String {
        let bounds = joined(list(&generics["where_predicates"]).map(|predicate| self.predicate(predicate)), ", ");
        if bounds.is_empty() { bounds } else { format!(" where {bounds}") }
    }

    fn predicate(&self, predicate: &Value) -> String {
        let (bound, lifetime) = (&predicate["bound_predicate"], &predicate["lifetime_predicate"]);
        if !bound.is_null() {
            return format!("{}{}", self.a_type(&bound["type"]), self.after_colon(&bound["bounds"]));
        }
        let outlives = joined(list(&lifetime["outlives"]).map(|name| text(name).to_owned()), " + ");
        format!("{}: {outlives}", text(&lifetime["lifetime"]))
    }

    fn after_colon(&self, bounds: &Value) -> String {
        let bounds = self.bounds(bounds);
        if bounds.is_empty() { bounds } else { format!(": {bounds}") }
    }

    fn bounds(&self, bounds: &Value) -> String {
        joined(list(bounds).map(|bound| self.bound(bound)), " + ")
    }

    fn bound(&self, bound: &Value) -> String {
        let of_trait = &bound["trait_bound"];
        if of_trait.is_null() {
            return text(&bound["outlives"]).to_owned();
        }
        let question = if of_trait["modifier"] == "maybe" { "?" } else { "" };
        format!("{question}{}", self.path(&of_trait["trait"]))
    }

    fn a_type(&self, of_type: &Value) -> String {
        let Some((kind, inner)) = of_type.as_object().and_then(|object| object.iter().next()) else {
            return "_".to_owned();
        };
        match kind.as_str() {
            "resolved_path" => self.path(inner),
            "generic" | "primitive" => text(inner).to_owned(),
            "tuple" => format!("({})", joined(list(inner).map(|part| self.a_type(part)), ", ")),
            "slice" => format!("[{}]", self.a_type(inner)),
            "array" => format!("[{}; {}]", self.a_type(&inner["type"]), text(&inner["len"])),
            "impl_trait" => format!("impl {}", self.bounds(inner)),
            "dyn_trait" => {
                let traits = list(&inner["traits"]).map(|of| self.path(&of["trait"]));
                let lifetime = inner["lifetime"].as_str().map(str::to_owned);
                format!("dyn {}", joined(traits.chain(lifetime), " + "))
            }
            "borrowed_ref" => {
                let lifetime = inner["lifetime"].as_str().map(|name| format!("{name} ")).unwrap_or_default();
                let mutable = if inner["is_mutable"] == true { "mut " } else { "" };
                format!("&{lifetime}{mutable}{}", self.a_type(&inner["type"]))
            }
            "raw_pointer" => {
                let mutable = if inner["is_mutable"] == true { "mut" } else { "const" };
                format!("*{mutable} {}", self.a_type(&inner["type"]))
            }
            "qualified_path" => format!("{}::{}", self.a_type(&inner["self_type"]), text(&inner["name"])),
            "function_pointer" => {
                let inputs = joined(list(&inner["sig"]["inputs"]).map(|input| self.a_type(&input[1])), ", ");
                format!("fn({inputs}){}", self.output(&inner["sig"]["output"]))
            }
            other => other.to_owned(),
        }
    }

    /// A path with its arguments: the library's path if there is one, else that of the source.
    fn path(&self, path: &Value) -> String {
        format!("{}{}", self.name(path), self.arguments(&path["args"]))
    }

    fn name(&self, path: &Value) -> String {
        let (crates, names) = (self.writer.crates, self.writer.names);
        let Some(definition) = crates.definition(self.item, &path["id"]) else { return short(text(&path["path"])) };
        let item = crates.find(self.item, &path["id"]);
        let named = item.and_then(|item| names.get(&item).or_else(|| self.writer.alias_of(item)));
        if named.is_none() && definition != PLATFORM {
            self.writer.unnamed.borrow_mut().insert(format!("{definition} in {}", self.path));
        }
        named.cloned().unwrap_or(definition)
    }

    fn arguments(&self, arguments: &Value) -> String {
        let parenthesized = &arguments["parenthesized"];
        if !parenthesized.is_null() {
            let inputs = joined(list(&parenthesized["inputs"]).map(|input| self.a_type(input)), ", ");
            return format!("({inputs}){}", self.output(&parenthesized["output"]));
        }
        let angled = &arguments["angle_bracketed"];
        let plain = list(&angled["args"]).filter_map(|argument| self.argument(argument));
        let bound = list(&angled["constraints"]).map(|constraint| self.constraint(constraint));
        let arguments = joined(plain.chain(bound), ", ");
        if arguments.is_empty() { arguments } else { format!("<{arguments}>") }
    }

    /// `None`: the platform.
    fn argument(&self, argument: &Value) -> Option<String> {
        if !argument["lifetime"].is_null() {
            return Some(text(&argument["lifetime"]).to_owned());
        }
        if !argument["const"].is_null() {
            return Some(text(&argument["const"]["expr"]).to_owned());
        }
        let id = &argument["type"]["resolved_path"]["id"];
        let platform = self.writer.crates.definition(self.item, id).is_some_and(|path| path == PLATFORM);
        (!platform).then(|| self.a_type(&argument["type"]))
    }

    fn constraint(&self, constraint: &Value) -> String {
        let binding = &constraint["binding"];
        let name = text(&constraint["name"]);
        match binding["equality"].is_null() {
            false => format!("{name} = {}", self.a_type(&binding["equality"]["type"])),
            true => format!("{name}{}", self.after_colon(&binding["constraint"])),
        }
    }
}
