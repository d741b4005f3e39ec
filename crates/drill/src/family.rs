//! The address families that scripts run in.

use std::fmt;
use std::str::FromStr;

use crate::parse;

/// The family of a script's sockets, and of their packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Sockets and packets of IPv4.
    V4,
    /// Sockets and packets of IPv6.
    V6,
    /// Sockets of IPv6 with IPv4-mapped addresses (RFC 4291 section 2.5.5.2), which exchange packets of IPv4.
    Mapped,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 3] = [Family::V4, Family::V6, Family::Mapped];

    /// Whether packets are IPv4's.
    pub fn has_v4_packets(self) -> bool {
        self != Family::V6
    }

    /// The family that the script `text` declares with `--ip_version`; the last one counts.
    pub fn declared_in(text: &str) -> Option<Family> {
        let settings = parse::settings_of(text);
        settings.iter().rev().find(|setting| setting.name == "ip_version")?.value.parse().ok()
    }

    /// The family in which a script with the declaration `said` runs if `self` was requested. A script for IPv4 is
    /// about IPv4's packets, which sockets with mapped addresses exchange as well.
    pub fn with(self, said: Option<Family>) -> Family {
        match (said, self) {
            (None, asked) => asked,
            (Some(Family::V4), Family::Mapped) => Family::Mapped,
            (Some(said), _) => said,
        }
    }

    /// The families in which the script `text` runs if `asked` are requested: each once.
    pub fn of_script(text: &str, asked: &[Family]) -> Vec<Family> {
        let said = Family::declared_in(text);
        let mut families = Vec::new();
        for family in asked.iter().map(|family| family.with(said)) {
            if !families.contains(&family) {
                families.push(family);
            }
        }
        families
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
            Family::Mapped => "ipv4-mapped-ipv6",
        })
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(name: &str) -> Result<Family, String> {
        match name {
            "ipv4" => Ok(Family::V4),
            "ipv6" => Ok(Family::V6),
            "mapped" | "ipv4-mapped-ipv6" | "ipv4_mapped_ipv6" => Ok(Family::Mapped),
            other => Err(format!("there is no address family `{other}`: ipv4, ipv6, mapped or all")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_runs_once_in_each_family_that_it_is_for() {
        let families = |text| Family::of_script(text, &Family::ALL);
        assert_eq!(families("0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n"), Family::ALL);
        assert_eq!(families("// why\n--ip_version=ipv4\n"), [Family::V4, Family::Mapped]);
        assert_eq!(families("--mtu=1500 --ip_version=ipv6 // why\n"), [Family::V6]);
        assert_eq!(families("--ip_version=ipv4-mapped-ipv6\n"), [Family::Mapped]);
        // A line after the settings is not a setting.
        assert_eq!(families("`echo\n--ip_version=ipv6`\n"), Family::ALL);
        assert_eq!(Family::of_script("--ip_version=ipv4\n", &[Family::V6]), [Family::V4]);
        for family in Family::ALL {
            assert_eq!(family.to_string().parse(), Ok(family));
        }
    }
}
