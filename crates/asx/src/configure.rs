//! Modules from text: `xdr | frame max=65536 | checksum | trace name=wire`, the topmost first.
//!
//! Every module takes `name=`, `low=` and `high=` (water marks, in bytes) beside its own options. An unused option is
//! an error, as is a value out of range: a stream is configured exactly as its text says, or not at all.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::modules::{checksum, frame, trace, xdr};
use crate::queue::{Module, WaterMarks};

type Maker = Box<dyn Fn(&mut ModuleOptions) -> Result<Module, ConfigureError> + Send + Sync>;

/// The modules that a text may name.
pub struct Catalogue {
    makers: BTreeMap<String, Maker>,
}

/// A module of a text could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigureError {
    /// The module as the text names it.
    pub module: String,
    /// The error.
    pub reason: String,
}

impl fmt::Display for ConfigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "module `{}`: {}", self.module, self.reason)
    }
}

impl std::error::Error for ConfigureError {}

/// The options of one module of a text.
#[derive(Debug)]
pub struct ModuleOptions {
    module: String,
    values: BTreeMap<String, String>,
}

impl ModuleOptions {
    fn of(text: &str) -> Result<ModuleOptions, ConfigureError> {
        let mut words = text.split_whitespace();
        let mut options = ModuleOptions { module: words.next().unwrap_or("").to_owned(), values: BTreeMap::new() };
        if options.module.is_empty() {
            return Err(options.wrong("a name is missing; write modules as `frame max=4096 | checksum`"));
        }
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(options.wrong(&format!("`{word}` is not an option; write KEY=VALUE")));
            };
            if options.values.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(options.wrong(&format!("`{key}` is given twice")));
            }
        }
        Ok(options)
    }

    /// The value of an option, or `default` without it.
    ///
    /// # Errors
    /// The text of the value is not a `T`.
    pub fn take<T: FromStr>(&mut self, key: &str, default: T) -> Result<T, ConfigureError> {
        match self.values.remove(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| self.wrong(&format!("`{text}` is not a value of `{key}`"))),
        }
    }

    /// An error of this module.
    pub fn wrong(&self, reason: &str) -> ConfigureError {
        ConfigureError { module: self.module.clone(), reason: reason.to_owned() }
    }
}

/// With the modules of this crate: `checksum`, `frame`, `trace`, `xdr`.
impl Default for Catalogue {
    fn default() -> Catalogue {
        let mut catalogue = Catalogue { makers: BTreeMap::new() };
        catalogue.add("checksum", |_| Ok(checksum::module()));
        catalogue.add("frame", |options| {
            let limits = frame::RecordLimits::default();
            let (record, fragment) = (options.take("max", limits.record)?, options.take("fragment", limits.fragment)?);
            frame::RecordLimits { record, fragment }.module().map_err(|reason| options.wrong(&reason))
        });
        catalogue.add("trace", |_| Ok(trace::module(|line| eprintln!("{line}"))));
        catalogue.add("xdr", |_| Ok(xdr::opaque()));
        catalogue
    }
}

impl Catalogue {
    /// Adds a module, or replaces the one of this name.
    pub fn add(
        &mut self,
        name: &str,
        make: impl Fn(&mut ModuleOptions) -> Result<Module, ConfigureError> + Send + Sync + 'static,
    ) {
        self.makers.insert(name.to_owned(), Box::new(make));
    }

    /// The modules of a text, the topmost first. An empty text has none.
    ///
    /// # Errors
    /// The first module that the catalogue does not have, or that its options do not fit.
    pub fn modules(&self, text: &str) -> Result<Vec<Module>, ConfigureError> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        text.split('|').map(|module| self.module(module)).collect()
    }

    /// One module: `frame max=4096`.
    ///
    /// # Errors
    /// As [`modules`](Catalogue::modules).
    pub fn module(&self, text: &str) -> Result<Module, ConfigureError> {
        let mut options = ModuleOptions::of(text)?;
        let Some(make) = self.makers.get(&options.module) else {
            let known: Vec<&str> = self.makers.keys().map(String::as_str).collect();
            return Err(options.wrong(&format!("there is no such module; the modules are {}", known.join(", "))));
        };
        let name = options.take("name", options.module.clone())?;
        let marks = WaterMarks::default();
        let (low, high) = (options.take("low", marks.low())?, options.take("high", marks.high())?);
        if low >= high {
            return Err(options.wrong(&format!("low={low} is not below high={high}")));
        }
        let module = make(&mut options)?;
        match options.values.keys().next() {
            Some(key) => Err(options.wrong(&format!("the module has no option `{key}`"))),
            None => Ok(module.named(name).marks(WaterMarks::new(low, high))),
        }
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Catalogue").field(&self.makers.keys()).finish()
    }
}
