//! An address with the length of its network's prefix, as in `10.0.0.1/24`: the notation of interface addresses and
//! networks. What may never happen: a prefix that is longer than the address.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An IP address with a prefix length, as in `10.0.0.1/24` or `fd00::1/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    address: IpAddr,
    prefix_len: u8,
}

impl Cidr {
    /// `address` with the first `prefix_len` bits as its network: 0 to 32, or 0 to 128 for IPv6.
    ///
    /// # Errors
    /// [`ParseCidrError::PrefixTooLong`].
    pub fn new(address: IpAddr, prefix_len: u8) -> Result<Cidr, ParseCidrError> {
        if u32::from(prefix_len) > bits(address) {
            return Err(ParseCidrError::PrefixTooLong { address, prefix_len });
        }
        Ok(Cidr { address, prefix_len })
    }

    /// The address alone as a network: `/32`, or `/128` for IPv6.
    pub fn host(address: IpAddr) -> Cidr {
        Cidr { address, prefix_len: bits(address) as u8 }
    }

    /// The address, host bits included.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Bits of the prefix: 0 to 32, or 0 to 128 for IPv6.
    pub fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// Whether `other` is in the network: of the same family, and with the same prefix.
    pub fn contains(self, other: IpAddr) -> bool {
        let differs = match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()),
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            _ => return false,
        };
        // Shifting out all 128 bits leaves none.
        differs.checked_shr(bits(self.address) - u32::from(self.prefix_len)).unwrap_or(0) == 0
    }
}

/// Bits of an address of this family.
fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Cidr, ParseCidrError> {
        let syntax = || ParseCidrError::Syntax(text.to_owned());
        let (address, prefix_len) = text.split_once('/').ok_or_else(syntax)?;
        let address = address.parse().map_err(|_| syntax())?;
        Cidr::new(address, prefix_len.parse().map_err(|_| syntax())?)
    }
}

impl TryFrom<&str> for Cidr {
    type Error = ParseCidrError;

    fn try_from(text: &str) -> Result<Cidr, ParseCidrError> {
        text.parse()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// Why a text or a pair is not a [`Cidr`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseCidrError {
    /// The text is not an address, a slash and a number up to 255.
    Syntax(String),
    /// The prefix has more bits than the address.
    PrefixTooLong {
        /// The address.
        address: IpAddr,
        /// The given prefix length, in bits.
        prefix_len: u8,
    },
}

impl fmt::Display for ParseCidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseCidrError::Syntax(text) => {
                write!(f, "{text:?} is not an address with a prefix length: write it as 10.0.0.1/24 or fd00::1/64")
            }
            ParseCidrError::PrefixTooLong { address, prefix_len } => {
                write!(f, "{address}/{prefix_len}: the prefix is too long; use at most /{}", bits(*address))
            }
        }
    }
}

impl core::error::Error for ParseCidrError {}

impl From<core::convert::Infallible> for ParseCidrError {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back_and_what_is_wrong_is_typed() {
        for text in ["10.0.0.1/24", "0.0.0.0/0", "fd00::1/64", "::/0", "2001:db8::1/128"] {
            assert_eq!(text.parse::<Cidr>().map(|cidr| cidr.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "10.0.0.1", "10.0.0.1/", "10.0.0.x/8", "10.0.0.1/256", "fd00::1/-1"] {
            assert_eq!(text.parse::<Cidr>(), Err(ParseCidrError::Syntax(text.to_owned())));
        }
        let address = IpAddr::from([10, 0, 0, 1]);
        let long = ParseCidrError::PrefixTooLong { address, prefix_len: 33 };
        assert_eq!("10.0.0.1/33".parse::<Cidr>(), Err(long.clone()));
        assert_eq!(Cidr::new(address, 33), Err(long));
        assert_eq!(Cidr::host(address), "10.0.0.1/32".parse().expect("a host"));
    }

    #[test]
    fn a_network_contains_its_addresses_only() {
        let contains = |cidr: &str, address: &str| {
            cidr.parse::<Cidr>().expect(cidr).contains(address.parse().expect("an address"))
        };
        assert!(contains("10.0.0.1/24", "10.0.0.255"));
        assert!(!contains("10.0.0.1/24", "10.0.1.1"));
        assert!(contains("0.0.0.0/0", "192.0.2.1"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(!contains("fd00::1/64", "fd00:0:0:1::1"));
        assert!(!contains("::/0", "10.0.0.1"));
    }
}
