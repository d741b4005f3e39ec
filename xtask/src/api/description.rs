//! Descriptions of our crates by rustdoc, and the look-up of an item that one crate mentions in the crate that defines
//! it.
//!
//! An item has a number in each crate's description; across crates it is identified by the path of its definition,
//! which may include private modules.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde_json::Value;

/// The format of the pinned toolchain's rustdoc.
const FORMAT: u64 = 57;

/// An item: the index of its crate, and its number there.
pub type Item = (usize, u64);

/// The crates that are described.
pub struct Crates {
    crates: Vec<Description>,
}

struct Description {
    name: String,
    json: Value,
    /// Numbers of its own items by the paths of their definitions.
    defined: BTreeMap<String, u64>,
}

impl Crates {
    /// Reads the descriptions of the crates with these names.
    pub fn read(directory: &Path, names: &[String]) -> Result<Crates, String> {
        let read = |name: &String| {
            let path = directory.join(format!("{name}.json"));
            let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let json: Value = serde_json::from_reader(BufReader::new(file))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            match json["format_version"].as_u64() {
                Some(FORMAT) => Ok((name.clone(), json)),
                other => Err(format!(
                    "rustdoc's format is {other:?} and not {FORMAT}: look at what changed, then set FORMAT in xtask/src/api/description.rs"
                )),
            }
        };
        Ok(Crates::new(names.iter().map(read).collect::<Result<_, String>>()?))
    }

    /// The crates of these names with rustdoc's descriptions.
    pub fn new(crates: Vec<(String, Value)>) -> Crates {
        Crates { crates: crates.into_iter().map(|(name, json)| Description::new(name, json)).collect() }
    }

    /// The root module of a crate.
    pub fn root(&self, name: &str) -> Option<Item> {
        let index = self.index(name)?;
        Some((index, self.crates[index].json["root"].as_u64()?))
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.crates.iter().position(|description| description.name == name)
    }

    /// The description of an item.
    pub fn item(&self, (index, id): Item) -> &Value {
        &self.crates[index].json["index"][id.to_string()]
    }

    /// The item with the number `id` in the crate of `of`, if it is one of ours.
    pub fn find(&self, (index, _): Item, id: &Value) -> Option<Item> {
        let id = id.as_u64()?;
        let description = &self.crates[index];
        let path = &description.json["paths"][id.to_string()];
        let known = path["crate_id"].as_u64();
        if known.is_none_or(|number| number == 0) {
            return Some((index, id)).filter(|item| !self.item(*item).is_null());
        }
        let path = joined(&path["path"]);
        let other = self.index(path.split("::").next()?)?;
        Some((other, *self.crates[other].defined.get(&path)?))
    }

    /// The path of the definition of an item of one of our crates, which need not be in its description.
    pub fn definition(&self, (index, _): Item, id: &Value) -> Option<String> {
        let path = joined(&self.crates[index].json["paths"][id.as_u64()?.to_string()]["path"]);
        self.index(path.split("::").next()?).map(|_| path)
    }
}

impl Description {
    fn new(name: String, json: Value) -> Description {
        let paths = json["paths"].as_object().into_iter().flatten();
        let own = paths.filter(|(_, path)| path["crate_id"] == 0);
        let defined = own.filter_map(|(id, path)| Some((joined(&path["path"]), id.parse().ok()?))).collect();
        Description { name, json, defined }
    }
}

fn joined(path: &Value) -> String {
    let parts: Vec<&str> = path.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    parts.join("::")
}
