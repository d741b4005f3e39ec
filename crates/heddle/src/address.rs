//! Socket addresses as strings or as values.

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
/// assert_eq!("example:80".to_addr(), Err("example:80".to_owned()));
/// ```
pub trait ToAddr {
    /// Converts to a socket address.
    ///
    /// # Errors
    /// The string that is not an address, unchanged.
    fn to_addr(&self) -> Result<SocketAddr, String>;
}

macro_rules! is_an_address {
    ($($value:ty),*) => {$(
        impl ToAddr for $value {
            fn to_addr(&self) -> Result<SocketAddr, String> {
                Ok(SocketAddr::from(*self))
            }
        }
    )*};
}

is_an_address!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

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

impl<T: ToAddr + ?Sized> ToAddr for &T {
    fn to_addr(&self) -> Result<SocketAddr, String> {
        (**self).to_addr()
    }
}
