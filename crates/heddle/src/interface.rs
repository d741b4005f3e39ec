//! The description of an interface: a device with its addresses, its routers and its routes. It is made before the
//! stack and passed to [`Builder::interface`](crate::Builder::interface). A method reports an invalid value at once;
//! the order of the calls does not matter.

use std::fmt;
use std::net::IpAddr;

use dev::Device;
use stack::{Addressing, Cidr, InterfaceConfig, ParseCidrError, ParseRouteError, Route};

/// A device, with the configuration of its link.
///
/// ```
/// use heddle::{Interface, Stack, mem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (device, _peer) = mem::pair(mem::MemConfig::default());
/// let interface = Interface::new(device)
///     .address("10.0.0.2/24")?
///     .address("fd00::2/64")?
///     .gateway("10.0.0.1".parse()?)
///     .route("10.8.0.0/16 via 10.0.0.3 mtu 1400")?;
/// let stack = Stack::builder().interface(interface).build()?;
/// assert!(stack.addresses().contains(&"fd00::2".parse()?));
/// # Ok(())
/// # }
/// ```
#[must_use = "an interface does nothing until it is given to a builder"]
pub struct Interface {
    pub(crate) config: InterfaceConfig,
    pub(crate) routes: Vec<Route>,
}

impl Interface {
    /// An interface on `device`, without an address.
    pub fn new(device: impl Device + 'static) -> Interface {
        let config = InterfaceConfig {
            device: Box::new(device),
            addresses: Vec::new(),
            gateways: Vec::new(),
            addressing: Addressing::default(),
        };
        Interface { config, routes: Vec::new() }
    }

    /// Adds an address with the prefix length of its network: a [`Cidr`], or a string such as `"10.0.0.1/24"` or
    /// `"fd00::1/64"`. The network is reached through this interface.
    ///
    /// # Errors
    /// The string is not an address with a prefix length. (A `Cidr` has no error, but the same signature.)
    pub fn address<A>(mut self, address: A) -> Result<Interface, ParseCidrError>
    where
        A: TryInto<Cidr, Error: Into<ParseCidrError>>,
    {
        let cidr = address.try_into().map_err(Into::into)?;
        self.config.addresses.push((cidr.address(), cidr.prefix_len()));
        Ok(self)
    }

    /// As [`Interface::address`], several at once.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn addresses<A>(self, addresses: impl IntoIterator<Item = A>) -> Result<Interface, ParseCidrError>
    where
        A: TryInto<Cidr, Error: Into<ParseCidrError>>,
    {
        addresses.into_iter().try_fold(self, Interface::address)
    }

    /// Makes `gateway` a default router on this link, for the destinations of its family.
    pub fn gateway(mut self, gateway: IpAddr) -> Interface {
        self.config.gateways.push(gateway);
        self
    }

    /// Adds a route through this interface: a [`Route`], or a string in the syntax of `ip route`, such as `"default via
    /// 10.0.0.1 mtu 1400"` or `"10.8.0.0/16 via 10.0.0.2 mtu lock 1280 advmss 1200 initcwnd 20 initrwnd 30"` (see
    /// [`RouteAttributes`](crate::RouteAttributes)).
    ///
    /// # Errors
    /// The string is not a route. (A `Route` has no error, but the same signature.)
    pub fn route<R>(mut self, route: R) -> Result<Interface, ParseRouteError>
    where
        R: TryInto<Route, Error: Into<ParseRouteError>>,
    {
        self.routes.push(route.try_into().map_err(Into::into)?);
        Ok(self)
    }

    /// How the interface obtains its addresses: tested before use, from router advertisements, or (the default) as
    /// given.
    pub fn addressing(mut self, addressing: Addressing) -> Interface {
        self.config.addressing = addressing;
        self
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interface")
            .field("device", &self.config.device.name())
            .field("addresses", &self.config.addresses)
            .field("gateways", &self.config.gateways)
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}
