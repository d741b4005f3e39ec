//! Socket addresses as strings or as values.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Types that convert to a socket address: a [`SocketAddr`], an address and a port, or a string such as
/// `"10.0.0.1:80"`. No name is looked up.
///
/// ```
/// use heddle::ToAddr;
///
/// let address: std::net::SocketAddr = "[fd00::1]:80".parse().unwrap();
/// assert_eq!("[fd00::1]:80".to_addr(), Ok(address));
/// assert_eq!((address.ip(), 80).to_addr(), Ok(address));
/// assert!("example:80".to_addr().is_err());
/// ```
pub trait ToAddr {
    /// Converts to a socket address.
    ///
    /// # Errors
    /// The string is not an address.
    fn to_addr(&self) -> Result<SocketAddr, ParseAddrError>;
}

/// A string is not a socket address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseAddrError(String);

impl ParseAddrError {
    /// For this string.
    pub fn new(text: impl Into<String>) -> ParseAddrError {
        ParseAddrError(text.into())
    }
}

impl fmt::Display for ParseAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an address: write it as 10.0.0.1:80", self.0)
    }
}

impl std::error::Error for ParseAddrError {}

impl From<ParseAddrError> for io::Error {
    fn from(error: ParseAddrError) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

macro_rules! is_an_address {
    ($($value:ty),*) => {$(
        impl ToAddr for $value {
            fn to_addr(&self) -> Result<SocketAddr, ParseAddrError> {
                Ok(SocketAddr::from(*self))
            }
        }
    )*};
}

is_an_address!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToAddr for str {
    fn to_addr(&self) -> Result<SocketAddr, ParseAddrError> {
        self.parse().map_err(|_| ParseAddrError::new(self))
    }
}

impl ToAddr for String {
    fn to_addr(&self) -> Result<SocketAddr, ParseAddrError> {
        self.as_str().to_addr()
    }
}

impl<T: ToAddr + ?Sized> ToAddr for &T {
    fn to_addr(&self) -> Result<SocketAddr, ParseAddrError> {
        (**self).to_addr()
    }
}
