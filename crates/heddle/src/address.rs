//! Addresses as text or as values.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// An interface's address with its prefix length, as in `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network part: 0 to 32 or 0 to 128.
    pub prefix_len: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not an address with a prefix length: write it as 10.0.0.1/24 or fd00::1/64");
        let (address, prefix_len) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix_len: u8 = prefix_len.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if prefix_len > most { Err(wrong()) } else { Ok(Cidr { address, prefix_len }) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// What can be given as a socket address: a [`SocketAddr`], or text such as `"10.0.0.1:80"`. No name is looked up.
pub trait ToAddr {
    /// The address, or the text that is none.
    ///
    /// # Errors
    /// The text, unchanged.
    fn to_addr(&self) -> Result<SocketAddr, String>;
}

impl ToAddr for SocketAddr {
    fn to_addr(&self) -> Result<SocketAddr, String> {
        Ok(*self)
    }
}

impl ToAddr for str {
    fn to_addr(&self) -> Result<SocketAddr, String> {
        self.parse().map_err(|_| self.to_owned())
    }
}

impl ToAddr for String {
    fn to_addr(&self) -> Result<SocketAddr, String> {
        self.as_str().to_addr()
    }
}

impl ToAddr for (IpAddr, u16) {
    fn to_addr(&self) -> Result<SocketAddr, String> {
        Ok(SocketAddr::from(*self))
    }
}

impl<T: ToAddr + ?Sized> ToAddr for &T {
    fn to_addr(&self) -> Result<SocketAddr, String> {
        (**self).to_addr()
    }
}
