//! Texts written by users: names of architectures, fault plans, addresses, values of knobs, packet scripts.

use std::fmt::Display;
use std::str::FromStr;

/// Parses `text` as every type of the command line and the configuration.
pub fn texts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    comes_back::<stack::Architecture>(text);
    comes_back::<tcp::congestion::Kind>(text);
    refuses_in_a_sentence::<heddle::Cidr>(text);
    refuses_in_a_sentence::<dev::fault::FaultPlan>(text);
}

/// Parses `data` as an assignment to a knob. The knob then prints the value that was set, and setting that again
/// changes nothing.
pub fn knobs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut config = tcp::Config::default();
    // Selects a knob by number, so that names need not be guessed.
    let (first, value) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    let number = first.chars().next().map_or(0, |letter| letter as usize);
    let knob = &tcp::knobs::KNOBS[number % tcp::knobs::KNOBS.len()];
    for (name, value) in [(knob.name, value), text.split_once('=').unwrap_or((text, ""))] {
        if let Err(error) = tcp::knobs::set(&mut config, name, value) {
            assert!(!error.to_string().is_empty(), "an error without words for {name}={value:?}");
            continue;
        }
        let Ok(knob) = tcp::knobs::find(name) else { panic!("{name} was set and is not found") };
        let told = knob.value(&config);
        let before = config.clone();
        assert!(tcp::knobs::set(&mut config, name, &told).is_ok(), "{name} says {told:?} and does not take it");
        assert_eq!(config, before, "{name}={told}");
    }
    let _ = tcp::knobs::assign(&mut config, text);
}

/// Reads `data` as a packet script.
pub fn scripts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = drill::parse::parse(text) {
        assert!(!error.to_string().is_empty(), "an error without words for {text:?}");
    }
}

/// An accepted value prints as a text that parses to the same value.
fn comes_back<T: FromStr<Err: Display> + Display + PartialEq + std::fmt::Debug>(text: &str) {
    if let Some(value) = refuses_in_a_sentence::<T>(text) {
        let again = value.to_string().parse::<T>();
        assert_eq!(again.ok().as_ref(), Some(&value), "{value} does not read back");
    }
}

/// A refusal has a message of one line.
fn refuses_in_a_sentence<T: FromStr<Err: Display>>(text: &str) -> Option<T> {
    match text.parse::<T>() {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error without words for {text:?}");
            None
        }
    }
}
