//! Where a user begins has an example: each module of the library, and each type and trait at its root that is the
//! library's own. An example elsewhere is accepted, if the documentation names its place ("for an example").
//! Documentation tests check whether examples run.

use super::description::Crates;
use super::signature::{Names, kind};

/// The kinds of items at the root that are looked at.
const BEGINNINGS: [&str; 3] = ["struct", "trait", "type_alias"];

/// The paths of items that have no example and name none.
pub fn missing(crates: &Crates, names: &Names, library: &str) -> Vec<String> {
    let root = crates.root(library);
    let begins = |kind: &str, path: &str| kind == "module" || BEGINNINGS.contains(&kind) && !path.contains("::");
    let own = names.iter().filter(|(item, _)| root.is_some_and(|root| root.0 == item.0));
    let beginnings = own.filter(|(item, path)| begins(kind(crates.item(**item)), path));
    let without = beginnings.filter(|(item, _)| {
        let docs = crates.item(**item)["docs"].as_str().unwrap_or_default();
        !docs.contains("```") && !docs.contains("for an example")
    });
    without.map(|(_, path)| path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::surface;
    use super::*;

    #[test]
    fn what_a_user_begins_with_must_have_an_example() {
        let item = |kind: &str, name: &str, docs: &str| {
            let mut inner = json!({});
            inner[kind] = json!({"items": []});
            json!({"name": name, "visibility": "public", "docs": docs, "inner": inner})
        };
        let mut root = item("module", "lib", "");
        root["inner"]["module"]["items"] = json!([1, 2, 3, 4]);
        let described = json!({"root": 0, "paths": {}, "index": {
            "0": root,
            "1": item("struct", "Shown", "Text.\n```\nexample\n```"),
            "2": item("struct", "Told", "See [`Shown`] for an example."),
            "3": item("struct", "Bare", "Text."),
            "4": item("module", "empty", "Text."),
        }});
        let crates = Crates::new(vec![("lib".to_owned(), described)]);
        let (names, _) = surface::named(&crates, "lib");
        assert_eq!(missing(&crates, &names, "lib"), ["Bare", "empty"]);
    }
}
