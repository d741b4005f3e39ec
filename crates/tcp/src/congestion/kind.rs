//! The names of the algorithms in configuration and options.

use core::fmt;
use core::str::FromStr;

/// Which algorithm governs congestion avoidance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// RFC 5681: one segment per round trip, half after a loss.
    NewReno,
    /// RFC 9438: a cubic function of the time since the last loss, 0.7 of the window after one.
    #[default]
    Cubic,
}

impl Kind {
    /// Every algorithm, for tables and option parsers.
    pub const ALL: &'static [Kind] = &[Kind::NewReno, Kind::Cubic];

    /// The name in configuration, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::NewReno => "newreno",
            Kind::Cubic => "cubic",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not a congestion control algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown congestion control `{}`: choose `newreno` or `cubic`", self.0)
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for Kind {
    type Err = UnknownKind;

    /// Parses a name, ignoring case; `reno` means `newreno`.
    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let lower = name.to_ascii_lowercase();
        let wanted = if lower == "reno" { "newreno" } else { &lower };
        Kind::ALL.iter().copied().find(|kind| kind.name() == wanted).ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for &kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("Reno".parse(), Ok(Kind::NewReno));
        let error = "bbr".parse::<Kind>().unwrap_err().to_string();
        assert_eq!(error, "unknown congestion control `bbr`: choose `newreno` or `cubic`");
    }
}
