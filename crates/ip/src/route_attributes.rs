//! What a route says of the path behind it, and the words in which people state routes: those of `ip route`.
//!
//! The table of routes answers per packet; this is asked when a connection opens, and its MTU again when the table has
//! changed. What may never happen: an unknown word that is skipped.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// Least packet that every router must carry whole (RFC 791), octets.
const LEAST_V4: u16 = 68;
/// The same for IPv6, by what is behind its longer header. A link of IPv6 carries 1280 octets and more, and no router is
/// believed that says less ([`crate::path_mtu::FLOOR_V6`]); whoever states a route may nevertheless have smaller packets sent
/// (RFC 8200 section 5 wants none larger than 1280 of a host that knows nothing), for a tunnel that cuts others, say.
const LEAST_V6: u16 = LEAST_V4 + 20;

/// What a route says of the path behind it. Connections look at it when they open and keep what they found, but for the
/// MTU: that they look up again when routes have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteAttributes {
    /// Largest packet that the path carries, octets: 68 (IPv6: 88) to 65 535, and no more than the link's; `None`: the
    /// link's.
    pub mtu: Option<u16>,
    /// `mtu` is locked: routers' reports do not change it, and IPv4 packets may be fragmented on their way.
    pub mtu_locked: bool,
    /// The MSS that is announced, octets, 1 to 65 495; `None`: as `mtu` has it. It does not bound what is sent.
    pub announced_mss: Option<u16>,
    /// Initial congestion window in segments, 1 to 255; `None`: the stack's.
    pub initial_window: Option<u8>,
    /// The most that our first window announces, in segments of the announced MSS, 1 to 65 535; `None`: what the
    /// receive buffer has.
    pub initial_receive_window: Option<u16>,
}

impl RouteAttributes {
    /// Nothing is said.
    pub const NONE: RouteAttributes = RouteAttributes {
        mtu: None,
        mtu_locked: false,
        announced_mss: None,
        initial_window: None,
        initial_receive_window: None,
    };
}

/// A route as a person states it, as in `default via 10.0.0.1 mtu lock 1400`, `10.8.0.0/16 advmss 1200 initcwnd 20` or
/// `192.0.2.1 via 10.0.0.2 initrwnd 30`. Without `via` the network is attached to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedRoute {
    /// Network address.
    pub network: IpAddr,
    /// Prefix length in bits.
    pub prefix_len: u8,
    /// The router to hand packets to.
    pub gateway: Option<IpAddr>,
    /// Attributes of the path.
    pub attributes: RouteAttributes,
}

impl FromStr for StatedRoute {
    type Err = String;

    /// # Errors
    /// A sentence: which word is not understood, and what is.
    fn from_str(text: &str) -> Result<StatedRoute, String> {
        let mut words = text.split_ascii_whitespace();
        let destination = words.next().ok_or("a route begins with its network: write 10.8.0.0/16 or `default`")?;
        let mut gateway = None;
        let mut attributes = RouteAttributes::NONE;
        while let Some(word) = words.next() {
            let mut value = words.next().ok_or_else(|| format!("`{word}` of a route wants a value"))?;
            match word {
                "via" => gateway = Some(address(value)?),
                "mtu" => {
                    attributes.mtu_locked = value == "lock";
                    if attributes.mtu_locked {
                        value = words.next().ok_or("`mtu lock` of a route wants a value")?;
                    }
                    attributes.mtu = Some(number(word, value, u64::from(LEAST_V4), 65_535)? as u16);
                }
                "advmss" => attributes.announced_mss = Some(number(word, value, 1, 65_495)? as u16),
                "initcwnd" => attributes.initial_window = Some(number(word, value, 1, 255)? as u8),
                "initrwnd" => attributes.initial_receive_window = Some(number(word, value, 1, 65_535)? as u16),
                _ => {
                    let known = "via, mtu, mtu lock, advmss, initcwnd or initrwnd";
                    return Err(format!("`{word}` is nothing that a route can say here: give {known}"));
                }
            }
        }
        let (network, prefix_len) = network(destination, gateway)?;
        if gateway.is_some_and(|gateway| gateway.is_ipv4() != network.is_ipv4()) {
            return Err(format!("the router of {destination} is of the other family: give one of the same"));
        }
        if network.is_ipv6() && attributes.mtu.is_some_and(|mtu| mtu < LEAST_V6) {
            return Err(format!("no text fits less than {LEAST_V6} octets of IPv6: give {destination} a larger mtu"));
        }
        Ok(StatedRoute { network, prefix_len, gateway, attributes })
    }
}

/// A route by its name, as in a command that removes it: `10.8.0.0/16`, `default`, or `192.0.2.1 via 10.0.0.2`, which
/// means that route and not one by another router. `default` alone is IPv4's; that of IPv6 is `::/0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRoute {
    /// Network address.
    pub network: IpAddr,
    /// Prefix length in bits.
    pub prefix_len: u8,
    /// The router, if it was said.
    pub gateway: Option<IpAddr>,
}

impl FromStr for NamedRoute {
    type Err = String;

    /// # Errors
    /// A sentence: which word is not understood, and what is.
    fn from_str(text: &str) -> Result<NamedRoute, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (destination, gateway) = match words[..] {
            ["default"] => ("0.0.0.0/0", None),
            [destination] => (destination, None),
            [destination, "via", router] => (destination, Some(address(router)?)),
            _ => return Err(format!("a route is taken away by its network: write {NAMED}, not {text:?}")),
        };
        let (network, prefix_len) = network(destination, gateway)?;
        Ok(NamedRoute { network, prefix_len, gateway })
    }
}

/// The forms of [`NamedRoute`].
const NAMED: &str = "10.8.0.0/16, `default` or `192.0.2.1 via 10.0.0.2`";

impl fmt::Display for NamedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_len)?;
        self.gateway.iter().try_for_each(|gateway| write!(f, " via {gateway}"))
    }
}

impl fmt::Display for StatedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StatedRoute { network, prefix_len, gateway, .. } = *self;
        NamedRoute { network, prefix_len, gateway }.fmt(f)?;
        let RouteAttributes { mtu, mtu_locked, announced_mss, initial_window, initial_receive_window } =
            self.attributes;
        let lock = if mtu_locked { "lock " } else { "" };
        mtu.iter().try_for_each(|mtu| write!(f, " mtu {lock}{mtu}"))?;
        announced_mss.iter().try_for_each(|mss| write!(f, " advmss {mss}"))?;
        initial_window.iter().try_for_each(|window| write!(f, " initcwnd {window}"))?;
        initial_receive_window.iter().try_for_each(|window| write!(f, " initrwnd {window}"))
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is no IP address"))
}

fn number(word: &str, text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("`{word}` of a route cannot be {text:?}: give a whole number from {least} to {most}"))
}

/// `default`, which is of its gateway's family, a network, or one address.
fn network(text: &str, gateway: Option<IpAddr>) -> Result<(IpAddr, u8), String> {
    if text == "default" {
        return match gateway {
            Some(IpAddr::V6(_)) => Ok((Ipv6Addr::UNSPECIFIED.into(), 0)),
            Some(IpAddr::V4(_)) => Ok((Ipv4Addr::UNSPECIFIED.into(), 0)),
            None => Err("the default route wants a router: write `default via ADDRESS`".to_owned()),
        };
    }
    let (host, prefix_len) = text.split_once('/').map_or((text, None), |(host, len)| (host, Some(len)));
    let host = address(host)?;
    let most: u64 = if host.is_ipv4() { 32 } else { 128 };
    let prefix_len = prefix_len.map_or(Ok(most), |len| number("the prefix", len, 0, most))?;
    Ok((host, prefix_len as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        for text in [
            "0.0.0.0/0 via 10.0.0.1",
            "10.8.0.0/16",
            "192.0.2.1/32 via 10.0.0.2 mtu lock 640 advmss 600 initcwnd 11",
            "2001:db8::/32 via fe80::1 mtu 1400 initrwnd 30",
            "2001:db8::/32 via fe80::1 mtu lock 660",
        ] {
            let route: StatedRoute = text.parse().expect(text);
            assert_eq!(route.to_string(), text);
        }
        let short: StatedRoute = "default via fd00::1 initcwnd 5 mtu 1280".parse().expect("a route");
        assert_eq!(short.to_string(), "::/0 via fd00::1 mtu 1280 initcwnd 5");
        assert_eq!("192.0.2.1".parse::<StatedRoute>().map(|route| route.prefix_len), Ok(32));
    }

    #[test]
    fn a_route_has_a_name() {
        for (text, name) in [
            ("default", "0.0.0.0/0"),
            ("default via fd00::1", "::/0 via fd00::1"),
            ("::/0", "::/0"),
            ("192.0.2.1 via 10.0.0.2", "192.0.2.1/32 via 10.0.0.2"),
        ] {
            assert_eq!(text.parse::<NamedRoute>().map(|route| route.to_string()).as_deref(), Ok(name));
        }
        for text in ["", "10.0.0.0/8 mtu 1400", "10.0.0.0/8 via", "via 10.0.0.1"] {
            assert!(text.parse::<NamedRoute>().expect_err(text).contains("write 10.8.0.0/16"), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, said) in [
            ("", "begins with its network"),
            ("default", "default via ADDRESS"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/8 via fe80::1", "other family"),
            ("10.0.0.0/8 mtu", "wants a value"),
            ("10.0.0.0/8 mtu lock", "wants a value"),
            ("10.0.0.0/8 mtu 67", "from 68 to 65535"),
            ("fd00::/8 mtu 87", "88"),
            ("10.0.0.0/8 rtt 5ms", "initcwnd or initrwnd"),
            ("10.0.0.x", "no IP address"),
        ] {
            let error = text.parse::<StatedRoute>().expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
