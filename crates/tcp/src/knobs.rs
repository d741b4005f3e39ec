//! Knobs: parameters of [`Config`] by the names that Linux gives them under `/proc/sys/net/ipv4`.
//!
//! One table ([`KNOBS`]) gives each knob's meaning, its values, and how it is read from and written to a [`Config`];
//! everything else (command line, directories of files, packet scripts, `heddle knobs`) goes through it. Names may be
//! given as `tcp_sack`, `net.ipv4.tcp_sack` or `/proc/sys/net/ipv4/tcp_sack`. A knob of Linux that has no effect here
//! is accepted, checked and marked ([`Knob::idle`]), so that scripts written for Linux run.

mod table;

use core::fmt;

use crate::config::Config;

pub use table::KNOBS;

/// One parameter by its sysctl's name.
#[derive(Debug)]
pub struct Knob {
    /// Linux's name below `net.ipv4`.
    pub name: &'static str,
    /// Its description, with the unit.
    pub meaning: &'static str,
    /// Why it has no effect here; `None`: it has one.
    pub idle: Option<&'static str>,
    form: KnobForm,
}

/// The format of a knob's value, and its accessors.
#[derive(Debug)]
enum KnobForm {
    /// One whole number in a range.
    Number { range: (i64, i64), get: fn(&Config) -> i64, set: fn(&mut Config, i64) },
    /// Three whole numbers in a range, each at least as large as the one before.
    Triple { range: (i64, i64), get: fn(&Config) -> [i64; 3], set: fn(&mut Config, [i64; 3]) },
    /// A word with its own grammar; `set` returns whether it is valid.
    Word { expects: &'static str, get: fn(&Config) -> String, set: fn(&mut Config, &str) -> bool },
    /// Checked and ignored: the value never changes.
    Idle { range: (i64, i64), value: &'static str },
}

impl Knob {
    /// Its value in `config`, as Linux prints it: numbers separated by a tab.
    pub fn value(&self, config: &Config) -> String {
        match &self.form {
            KnobForm::Number { get, .. } => get(config).to_string(),
            KnobForm::Triple { get, .. } => get(config).map(|number| number.to_string()).join("\t"),
            KnobForm::Word { get, .. } => get(config),
            KnobForm::Idle { value, .. } => (*value).to_owned(),
        }
    }

    /// The values it accepts, as half a sentence.
    pub fn expects(&self) -> String {
        match &self.form {
            KnobForm::Number { range: (least, most), .. } | KnobForm::Idle { range: (least, most), .. } => {
                format!("a whole number from {least} to {most}")
            }
            KnobForm::Triple { range: (least, most), .. } => {
                format!("three whole numbers from {least} to {most}, none smaller than the one before")
            }
            KnobForm::Word { expects, .. } => (*expects).to_owned(),
        }
    }

    /// Writes `text` to `config`.
    ///
    /// # Errors
    /// [`KnobError::Value`]; `config` is as it was.
    pub fn set(&self, config: &mut Config, text: &str) -> Result<(), KnobError> {
        if self.write(config, text.trim()) {
            return Ok(());
        }
        Err(KnobError::Value { name: self.name, text: text.trim().to_owned(), expects: self.expects() })
    }

    fn write(&self, config: &mut Config, text: &str) -> bool {
        match &self.form {
            KnobForm::Number { range, set, .. } => {
                let Some([value]) = numbers(text, *range) else { return false };
                set(config, value);
            }
            KnobForm::Triple { range, set, .. } => {
                let Some(values) = numbers::<3>(text, *range) else { return false };
                if !values.is_sorted() {
                    return false;
                }
                set(config, values);
            }
            KnobForm::Word { set, .. } => return set(config, text),
            KnobForm::Idle { range, .. } => return idle_value(text, *range),
        }
        true
    }
}

/// Exactly `N` numbers within `range`, separated by white space.
fn numbers<const N: usize>(text: &str, range: (i64, i64)) -> Option<[i64; N]> {
    let mut values = [0; N];
    let mut words = text.split_whitespace();
    for value in &mut values {
        *value = number(words.next()?)?;
        if !(range.0..=range.1).contains(value) {
            return None;
        }
    }
    words.next().is_none().then_some(values)
}

/// A decimal or (`0x`) hexadecimal number, as the kernel reads them.
fn number(word: &str) -> Option<i64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn idle_value(text: &str, (least, most): (i64, i64)) -> bool {
    !text.is_empty() && text.split_whitespace().all(|word| number(word).is_some_and(|n| (least..=most).contains(&n)))
}

/// The knob called `name`, with or without a path before it.
///
/// # Errors
/// [`KnobError::Unknown`].
pub fn find(name: &str) -> Result<&'static Knob, KnobError> {
    let bare = name.trim().rsplit(['.', '/']).next().unwrap_or(name);
    KNOBS
        .iter()
        .find(|knob| knob.name == bare)
        .ok_or_else(|| KnobError::Unknown { name: name.trim().to_owned(), nearest: nearest(bare) })
}

/// The knob with the closest name, if no more than a third of the letters differ.
fn nearest(name: &str) -> Option<&'static str> {
    let (away, known) = KNOBS.iter().map(|knob| (distance(knob.name, name), knob.name)).min()?;
    (away * 3 <= name.len()).then_some(known)
}

/// Writes `value` to the knob called `name`.
///
/// # Errors
/// See [`KnobError`]; `config` is as it was.
pub fn set(config: &mut Config, name: &str, value: &str) -> Result<(), KnobError> {
    find(name)?.set(config, value)
}

/// Reads `name=value`, as on `sysctl`'s command line.
///
/// # Errors
/// See [`KnobError`]; `config` is as it was.
pub fn assign(config: &mut Config, assignment: &str) -> Result<(), KnobError> {
    let (name, value) =
        assignment.split_once('=').ok_or_else(|| KnobError::NoAssignment { text: assignment.to_owned() })?;
    set(config, name, value)
}

/// Edit distance of two words: single letters to insert, remove or change.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// A knob cannot be set to this value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnobError {
    /// No knob has this name.
    Unknown {
        /// The name as given.
        name: String,
        /// A similar name, if there is one.
        nearest: Option<&'static str>,
    },
    /// It does not take this value.
    Value {
        /// Its name.
        name: &'static str,
        /// The value as given.
        text: String,
        /// The values it accepts.
        expects: String,
    },
    /// The text is not `name=value`.
    NoAssignment {
        /// The text.
        text: String,
    },
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobError::Unknown { name, nearest } => {
                write!(f, "there is no knob `{name}`: ")?;
                nearest.map_or(Ok(()), |nearest| write!(f, "did you mean `{nearest}`? "))?;
                f.write_str("`heddle knobs` lists them all")
            }
            KnobError::Value { name, text, expects } if text.is_empty() => {
                write!(f, "{name} has no value: give {expects}")
            }
            KnobError::Value { name, text, expects } => write!(f, "{name} cannot be `{text}`: give {expects}"),
            KnobError::NoAssignment { text } => {
                write!(f, "`{text}` is not an assignment: write NAME=VALUE, such as tcp_sack=1")
            }
        }
    }
}

impl std::error::Error for KnobError {}

#[cfg(test)]
mod tests;
