//! Texts that a person writes: names of architectures, fault plans, addresses.

use std::fmt::Display;
use std::str::FromStr;

/// Reads `text` as everything that the command line and the configuration read.
pub fn texts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    comes_back::<stack::Plan>(text);
    comes_back::<tcp::congestion::Kind>(text);
    refuses_in_a_sentence::<heddle::Cidr>(text);
    refuses_in_a_sentence::<dev::fault::FaultPlan>(text);
}

/// What is accepted prints as something that reads as the same.
fn comes_back<T: FromStr<Err: Display> + Display + PartialEq + std::fmt::Debug>(text: &str) {
    if let Some(value) = refuses_in_a_sentence::<T>(text) {
        let again = value.to_string().parse::<T>();
        assert_eq!(again.ok().as_ref(), Some(&value), "{value} does not read back");
    }
}

/// What is refused is refused with words, on one line.
fn refuses_in_a_sentence<T: FromStr<Err: Display>>(text: &str) -> Option<T> {
    match text.parse::<T>() {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error without words for {text:?}");
            None
        }
    }
}
