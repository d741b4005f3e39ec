//! One type, one name: no two types of the library crates have the same name, private ones included.
//!
//! A type is declared by `struct`, `enum`, `union`, `trait` or `type`, in a file of a crate's `src`, unless it belongs
//! to a test. An associated type is not one, nor is an alias for a type of the same name (`type Port<P> =
//! path::Port<P>`).

use std::collections::BTreeMap;

use super::literals::code;

/// A line of the list: types of this name that are declared below these paths may share it.
pub struct Shared {
    pub name: String,
    pub paths: Vec<String>,
}

/// The tokens of code: words, and other characters one by one.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let end = match rest.find(|c: char| !c.is_alphanumeric() && c != '_') {
            Some(0) => first.len_utf8(),
            end => end.unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end);
        if !token.trim().is_empty() {
            found.push(token);
        }
        rest = after;
    }
    found
}

/// Whether `tokens`, which follow `type NAME`, make it an alias for a type of the same name.
fn renames_nothing(name: &str, tokens: &[&str]) -> bool {
    let declaration = tokens.iter().take_while(|token| **token != ";");
    let target = declaration.skip_while(|token| **token != "=").skip(1);
    target.take_while(|token| **token != "<").last() == Some(&name)
}

/// The types that a file declares, with those of `#[cfg(test)]` left out.
pub fn types(source: &str) -> Vec<String> {
    let code = code(source);
    let tokens = tokens(&code);
    let mut found = Vec::new();
    // For each open brace whether it is that of a trait or an implementation, where `type` declares an associated type.
    let mut open = Vec::new();
    // The beginning of the present item.
    let mut item = 0;
    for (index, token) in tokens.iter().enumerate() {
        match *token {
            "{" => {
                let words = &tokens[item..index];
                let keyword =
                    words.iter().find(|word| ["impl", "trait", "fn", "mod", "struct", "enum"].contains(*word));
                open.push(keyword.is_some_and(|word| ["impl", "trait"].contains(word)));
                item = index + 1;
            }
            "}" => {
                open.pop();
                item = index + 1;
            }
            ";" => item = index + 1,
            "struct" | "enum" | "union" | "trait" | "type" => {
                let Some(name) = tokens.get(index + 1).filter(|name| name.starts_with(char::is_uppercase)) else {
                    continue;
                };
                let is_associated = *token == "type" && open.last() == Some(&true);
                let is_tested = tokens[item..index].windows(4).any(|words| words == ["cfg", "(", "test", ")"]);
                let is_alias = *token == "type" && renames_nothing(name, &tokens[index + 2..]);
                if !is_associated && !is_tested && !is_alias {
                    found.push((*name).to_owned());
                }
            }
            _ => {}
        }
    }
    found
}

/// The faults of `declared`, the paths of each name's declarations, and of the list.
pub fn shared(declared: &BTreeMap<String, Vec<String>>, list: &[Shared]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, paths) in declared.iter().filter(|(_, paths)| paths.len() > 1) {
        let is_listed = |path: &String| {
            let below = |listed: &String| path.starts_with(listed.as_str());
            list.iter().any(|entry| entry.name == *name && entry.paths.iter().any(below))
        };
        // One that is not listed is the only one outside the list, or shares its name with another.
        let unlisted: Vec<&str> = paths.iter().filter(|path| !is_listed(path)).map(String::as_str).collect();
        if !unlisted.is_empty() {
            wrong.push(format!("{name} names {} types: {}", paths.len(), paths.join(", ")));
        }
    }
    for Shared { name, paths } in list {
        for listed in paths {
            let uses = |path: &&String| path.starts_with(listed.as_str());
            let declared = declared.get(name).map_or(&[][..], Vec::as_slice);
            if declared.len() < 2 || declared.iter().filter(uses).count() == 0 {
                wrong.push(format!("{} lets types share the name {name} in {listed}, where none does", super::LIST));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
/// struct Comment;
pub struct Plain<T> where T: Iterator<Item = u8> { word: T }
pub(crate) unsafe trait Behaviour { type Item; const NAME: &'static str = "struct Literal"; }
impl<P> Behaviour for Plain<P> { type Item = u8; fn f() { struct Local; } }
type Bytes = Vec<u8>;
pub type Port<P> = path::Port<TcpSocket<P>>;
mod inner { pub enum Nested { One } pub type Inner = u8; }
macro_rules! made { () => { pub struct Made; } }
#[cfg(test)]
pub struct Tested;
fn kind(r#type: u8, union: u8) -> u8 { r#type + union }
#[cfg(test)]
mod tests { struct InATest; }
"#;

    fn declared(files: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        let mut declared = BTreeMap::<String, Vec<String>>::new();
        for (name, paths) in files {
            declared.insert((*name).to_owned(), paths.iter().map(|path| (*path).to_owned()).collect());
        }
        declared
    }

    #[test]
    fn types_are_found_private_nested_and_in_macros_but_not_in_tests() {
        assert_eq!(types(SOURCE), ["Plain", "Behaviour", "Local", "Bytes", "Nested", "Inner", "Made"]);
    }

    #[test]
    fn two_types_of_one_name_are_a_fault_unless_all_are_listed() {
        let declared = declared(&[("Key", &["a/x.rs", "b/y.rs"]), ("Slab", &["a/x.rs"])]);
        assert_eq!(shared(&declared, &[]), ["Key names 2 types: a/x.rs, b/y.rs"]);
        let entry = |name: &str, paths: &[&str]| Shared {
            name: name.to_owned(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        assert!(shared(&declared, &[entry("Key", &["a/", "b/"])]).is_empty());
        assert_eq!(shared(&declared, &[entry("Key", &["a/"])]).len(), 1, "the other one is not listed");
        let idle = shared(&declared, &[entry("Key", &["a/", "b/", "c/"]), entry("Slab", &["a/"])]);
        assert_eq!(idle.len(), 2, "{idle:?}");
    }
}
