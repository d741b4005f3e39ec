//! Attributes of the path behind a route, and the text form of routes, which is that of `ip route`.
//!
//! They are read when a connection opens, and the MTU again when the table has changed. What may never happen: an
//! unknown word that is skipped.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use crate::cidr::Cidr;

/// Least packet that every router must carry whole (RFC 791), bytes.
const LEAST_V4: u16 = 68;
/// The same for IPv6, with its longer header. A link of IPv6 carries at least 1280 bytes, and a router's report of less
/// is ignored ([`crate::path_mtu::FLOOR_V6`]); a configured route may nevertheless require smaller packets, for example
/// for a tunnel that truncates others.
const LEAST_V6: u16 = LEAST_V4 + 20;

/// Attributes of the path behind a route. Connections read them when they open; only the MTU is read again when routes
/// have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteAttributes {
    /// Largest packet that the path carries, bytes: 68 (IPv6: 88) to 65 535, and no more than the link's; `None`: the
    /// link's.
    pub mtu: Option<u16>,
    /// `mtu` is locked: routers' reports do not change it, and IPv4 packets may be fragmented on their path.
    pub mtu_locked: bool,
    /// The MSS that is announced, bytes, 1 to 65 495; `None`: from `mtu`. It does not limit sent segments.
    pub announced_mss: Option<u16>,
    /// Initial congestion window in segments, 1 to 255; `None`: the stack's.
    pub initial_window: Option<u8>,
    /// Upper bound of our first window, in segments of the announced MSS, 1 to 65 535; `None`: the receive buffer.
    pub initial_receive_window: Option<u16>,
}

impl RouteAttributes {
    /// No attributes.
    pub const NONE: RouteAttributes = RouteAttributes {
        mtu: None,
        mtu_locked: false,
        announced_mss: None,
        initial_window: None,
        initial_receive_window: None,
    };
}

/// A route in its text form, as in `default via 10.0.0.1 mtu lock 1400`, `10.8.0.0/16 advmss 1200 initcwnd 20` or
/// `192.0.2.1 via 10.0.0.2 initrwnd 30`. Without `via` the network is attached to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    network: Cidr,
    gateway: Option<IpAddr>,
    attributes: RouteAttributes,
}

impl Route {
    /// A route to `network`: through `gateway`, or attached to the link (`None`); with the attributes of the path.
    ///
    /// # Errors
    /// [`ParseRouteError::OtherFamily`], [`ParseRouteError::OutOfRange`] (an attribute) and
    /// [`ParseRouteError::SmallMtu`].
    pub fn new(network: Cidr, gateway: Option<IpAddr>, attributes: RouteAttributes) -> Result<Route, ParseRouteError> {
        if gateway.is_some_and(|gateway| gateway.is_ipv4() != network.address().is_ipv4()) {
            return Err(ParseRouteError::OtherFamily(network));
        }
        let RouteAttributes { mtu, announced_mss, initial_window, initial_receive_window, .. } = attributes;
        for (word, value) in [
            (MTU, mtu),
            (MSS, announced_mss),
            (WINDOW, initial_window.map(u16::from)),
            (RECEIVE_WINDOW, initial_receive_window),
        ] {
            value.map_or(Ok(()), |value| word.check(value.into(), &value).map(drop))?;
        }
        if network.address().is_ipv6() && mtu.is_some_and(|mtu| mtu < LEAST_V6) {
            return Err(ParseRouteError::SmallMtu(network));
        }
        Ok(Route { network, gateway, attributes })
    }

    /// The network; host bits of its address are ignored.
    pub fn network(&self) -> Cidr {
        self.network
    }

    /// The router to hand packets to; `None`: the network is attached to the link.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    /// Attributes of the path.
    pub fn attributes(&self) -> RouteAttributes {
        self.attributes
    }
}

impl FromStr for Route {
    type Err = ParseRouteError;

    fn from_str(text: &str) -> Result<Route, ParseRouteError> {
        let mut words = text.split_ascii_whitespace();
        let destination = words.next().ok_or(ParseRouteError::Empty)?;
        let mut gateway = None;
        let mut attributes = RouteAttributes::NONE;
        while let Some(word) = words.next() {
            let mut value = words.next().ok_or_else(|| ParseRouteError::NoValue(word.to_owned()))?;
            match word {
                "via" => gateway = Some(address(value)?),
                "mtu" => {
                    attributes.mtu_locked = value == "lock";
                    if attributes.mtu_locked {
                        value = words.next().ok_or_else(|| ParseRouteError::NoValue("mtu lock".to_owned()))?;
                    }
                    attributes.mtu = Some(MTU.parse(value)? as u16);
                }
                "advmss" => attributes.announced_mss = Some(MSS.parse(value)? as u16),
                "initcwnd" => attributes.initial_window = Some(WINDOW.parse(value)? as u8),
                "initrwnd" => attributes.initial_receive_window = Some(RECEIVE_WINDOW.parse(value)? as u16),
                _ => return Err(ParseRouteError::UnknownWord(word.to_owned())),
            }
        }
        Route::new(network(destination, gateway)?, gateway, attributes)
    }
}

impl TryFrom<&str> for Route {
    type Error = ParseRouteError;

    fn try_from(text: &str) -> Result<Route, ParseRouteError> {
        text.parse()
    }
}

/// A route by its name, as in a command that removes it: `10.8.0.0/16`, `default`, or `192.0.2.1 via 10.0.0.2`, which
/// matches only a route through that router. `default` alone is IPv4's; that of IPv6 is `::/0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteName {
    /// The network; host bits of its address are ignored.
    pub network: Cidr,
    /// The router; `None`: any.
    pub gateway: Option<IpAddr>,
}

impl From<Cidr> for RouteName {
    fn from(network: Cidr) -> Self {
        RouteName { network, gateway: None }
    }
}

impl FromStr for RouteName {
    type Err = ParseRouteError;

    fn from_str(text: &str) -> Result<RouteName, ParseRouteError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (destination, gateway) = match words[..] {
            ["default"] => ("0.0.0.0/0", None),
            [destination] => (destination, None),
            [destination, "via", router] => (destination, Some(address(router)?)),
            _ => return Err(ParseRouteError::NotAName(text.to_owned())),
        };
        Ok(RouteName { network: network(destination, gateway)?, gateway })
    }
}

impl TryFrom<&str> for RouteName {
    type Error = ParseRouteError;

    fn try_from(text: &str) -> Result<RouteName, ParseRouteError> {
        text.parse()
    }
}

impl fmt::Display for RouteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.network.fmt(f)?;
        self.gateway.iter().try_for_each(|gateway| write!(f, " via {gateway}"))
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        RouteName { network: self.network, gateway: self.gateway }.fmt(f)?;
        let RouteAttributes { mtu, mtu_locked, announced_mss, initial_window, initial_receive_window } =
            self.attributes;
        let lock = if mtu_locked { "lock " } else { "" };
        mtu.iter().try_for_each(|mtu| write!(f, " mtu {lock}{mtu}"))?;
        announced_mss.iter().try_for_each(|mss| write!(f, " advmss {mss}"))?;
        initial_window.iter().try_for_each(|window| write!(f, " initcwnd {window}"))?;
        initial_receive_window.iter().try_for_each(|window| write!(f, " initrwnd {window}"))
    }
}

/// Why a text is not a [`Route`] or a [`RouteName`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseRouteError {
    /// The text is empty.
    Empty,
    /// This word is not an attribute of a route.
    UnknownWord(String),
    /// This word is the last, and needs a value.
    NoValue(String),
    /// Not an IP address.
    Address(String),
    /// A number is missing or out of its range.
    OutOfRange {
        /// The word before the number.
        word: &'static str,
        /// The text in its place.
        value: String,
        /// The least and the most that it may be.
        range: (u64, u64),
    },
    /// `default` without a router.
    NoRouter,
    /// The router of this network is of the other address family.
    OtherFamily(Cidr),
    /// The MTU is too small for IPv6.
    SmallMtu(Cidr),
    /// The text has more than the name of a route.
    NotAName(String),
}

impl fmt::Display for ParseRouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a route begins with its network: write 10.8.0.0/16 or `default`"),
            Self::UnknownWord(word) => write!(
                f,
                "`{word}` is nothing that a route can say here: give via, mtu, mtu lock, advmss, initcwnd or initrwnd"
            ),
            Self::NoValue(word) => write!(f, "`{word}` of a route needs a value"),
            Self::Address(text) => write!(f, "{text:?} is not an IP address"),
            Self::OutOfRange { word, value, range: (least, most) } => {
                write!(f, "`{word}` of a route cannot be {value:?}: give a whole number from {least} to {most}")
            }
            Self::NoRouter => f.write_str("the default route needs a router: write `default via ADDRESS`"),
            Self::OtherFamily(network) => {
                write!(f, "the router of {network} has the other address family: give one of the same")
            }
            Self::SmallMtu(network) => {
                write!(f, "no payload fits less than {LEAST_V6} bytes of IPv6: give {network} a larger mtu")
            }
            Self::NotAName(text) => write!(
                f,
                "a route is taken away by its network: write 10.8.0.0/16, `default` or `192.0.2.1 via 10.0.0.2`, not \
                 {text:?}"
            ),
        }
    }
}

impl core::error::Error for ParseRouteError {}

impl From<core::convert::Infallible> for ParseRouteError {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}

/// A numeric attribute, with its range.
#[derive(Clone, Copy)]
struct NumericAttribute(&'static str, u64, u64);

const MTU: NumericAttribute = NumericAttribute("mtu", LEAST_V4 as u64, 65_535);
const MSS: NumericAttribute = NumericAttribute("advmss", 1, 65_495);
const WINDOW: NumericAttribute = NumericAttribute("initcwnd", 1, 255);
const RECEIVE_WINDOW: NumericAttribute = NumericAttribute("initrwnd", 1, 65_535);

impl NumericAttribute {
    fn parse(self, text: &str) -> Result<u64, ParseRouteError> {
        // A text that is not a number is out of every range.
        self.check(text.parse().unwrap_or(u64::MAX), &text)
    }

    fn check(self, number: u64, shown: &dyn fmt::Display) -> Result<u64, ParseRouteError> {
        let NumericAttribute(word, least, most) = self;
        let wrong = || ParseRouteError::OutOfRange { word, value: shown.to_string(), range: (least, most) };
        if (least..=most).contains(&number) { Ok(number) } else { Err(wrong()) }
    }
}

fn address(text: &str) -> Result<IpAddr, ParseRouteError> {
    text.parse().map_err(|_| ParseRouteError::Address(text.to_owned()))
}

/// `default`, which is of its gateway's family, a network, or one address.
fn network(text: &str, gateway: Option<IpAddr>) -> Result<Cidr, ParseRouteError> {
    let (host, prefix_len) = match (text.split_once('/'), gateway) {
        (None, None) if text == "default" => return Err(ParseRouteError::NoRouter),
        (None, Some(IpAddr::V4(_))) if text == "default" => (Ipv4Addr::UNSPECIFIED.into(), Some("0")),
        (None, Some(IpAddr::V6(_))) if text == "default" => (Ipv6Addr::UNSPECIFIED.into(), Some("0")),
        (None, _) => (address(text)?, None),
        (Some((host, len)), _) => (address(host)?, Some(len)),
    };
    let Some(prefix_len) = prefix_len else { return Ok(Cidr::host(host)) };
    let most = Cidr::host(host).prefix_len();
    let wrong =
        || ParseRouteError::OutOfRange { word: "the prefix", value: prefix_len.to_owned(), range: (0, most.into()) };
    let prefix_len = prefix_len.parse().map_err(|_| wrong())?;
    Cidr::new(host, prefix_len).map_err(|_| wrong())
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
            let route: Route = text.parse().expect(text);
            assert_eq!(route.to_string(), text);
        }
        let short: Route = "default via fd00::1 initcwnd 5 mtu 1280".parse().expect("a route");
        assert_eq!(short.to_string(), "::/0 via fd00::1 mtu 1280 initcwnd 5");
        assert_eq!("192.0.2.1".parse::<Route>().map(|route| route.network().prefix_len()), Ok(32));
    }

    #[test]
    fn a_route_has_a_name() {
        for (text, name) in [
            ("default", "0.0.0.0/0"),
            ("default via fd00::1", "::/0 via fd00::1"),
            ("::/0", "::/0"),
            ("192.0.2.1 via 10.0.0.2", "192.0.2.1/32 via 10.0.0.2"),
        ] {
            assert_eq!(text.parse::<RouteName>().map(|route| route.to_string()).as_deref(), Ok(name));
        }
        for text in ["", "10.0.0.0/8 mtu 1400", "10.0.0.0/8 via", "via 10.0.0.1"] {
            let error = text.parse::<RouteName>().expect_err(text).to_string();
            assert!(error.contains("write 10.8.0.0/16"), "{text}: {error}");
        }
    }

    #[test]
    fn a_route_made_of_values_meets_the_same_checks_as_text() {
        let network: Cidr = "fd00::/8".parse().expect("a network");
        let none = RouteAttributes::NONE;
        let v4 = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(Route::new(network, Some(v4), none), Err(ParseRouteError::OtherFamily(network)));
        let small = RouteAttributes { mtu: Some(87), ..none };
        assert_eq!(Route::new(network, None, small), Err(ParseRouteError::SmallMtu(network)));
        let zero = RouteAttributes { initial_window: Some(0), ..none };
        let range = ParseRouteError::OutOfRange { word: "initcwnd", value: "0".to_owned(), range: (1, 255) };
        assert_eq!(Route::new(network, None, zero), Err(range.clone()));
        assert_eq!("fd00::/8 initcwnd 0".parse::<Route>(), Err(range));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, said) in [
            ("", "begins with its network"),
            ("default", "default via ADDRESS"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/8 via fe80::1", "other address family"),
            ("10.0.0.0/8 mtu", "needs a value"),
            ("10.0.0.0/8 mtu lock", "needs a value"),
            ("10.0.0.0/8 mtu 67", "from 68 to 65535"),
            ("fd00::/8 mtu 87", "88"),
            ("10.0.0.0/8 rtt 5ms", "initcwnd or initrwnd"),
            ("10.0.0.x", "not an IP address"),
        ] {
            let error = text.parse::<Route>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
