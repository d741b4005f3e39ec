//! [`Configure`]: the control plane of a bridge, the same for every way of sharing.

use std::time::Duration;

use bridge::{
    Bridge, FdbControl, FdbEntry, FdbKey, Members, PortConfig, PortNumber, Stp, StpConfig, StpConfigError,
    StpPortConfig, Vid,
};
use observe::Time;
use wire::ethernet::MacAddr;

/// See the head of the file.
pub trait Configure {
    /// The ports, their configuration and their VLANs.
    fn members(&self) -> &Members;
    /// All entries of the forwarding database, including aged ones, in no order.
    fn entries(&self) -> Vec<(FdbKey, FdbEntry)>;
    /// Adds an address that does not age. `false`: there is no such port, or the table has the maximum number of such
    /// entries.
    fn set_fixed(&mut self, key: FdbKey, port: PortNumber, sticky: bool, now: Time) -> bool;
    /// Removes an entry of any kind. Returns whether there was one.
    fn remove(&mut self, key: FdbKey) -> bool;
    /// Removes the dynamic entries for which `gone` is true, and returns their number.
    fn flush(&mut self, gone: &dyn Fn(FdbKey, FdbEntry) -> bool) -> usize;
    /// The time after which an address ages out.
    fn ageing_time(&self) -> Duration;
    /// Sets that.
    fn set_ageing(&mut self, ageing: Duration);
    /// Changes the configuration of a port. `false`: there is no such port.
    fn configure(&mut self, port: PortNumber, change: &mut dyn FnMut(&mut PortConfig)) -> bool;
    /// Sets a port down, or up.
    fn set_up(&mut self, port: PortNumber, up: bool, now: Time);
    /// Sets whether VLANs are distinguished.
    fn set_filtering(&mut self, filtering: bool);
    /// Makes a port a member of a VLAN. `false`: there is no such port.
    fn join(&mut self, vid: Vid, port: PortNumber, untagged: bool) -> bool;
    /// Ends a membership. Returns whether there was one.
    fn leave(&mut self, vid: Vid, port: PortNumber) -> bool;
    /// Starts spanning tree on all ports.
    ///
    /// # Errors
    /// As [`StpConfig::check`].
    fn start_tree(&mut self, config: StpConfig, address: MacAddr, now: Time) -> Result<(), StpConfigError>;
    /// This bridge's view of the spanning tree; `None`: it does not use spanning tree.
    fn tree(&self) -> Option<&Stp>;
}

impl<T: FdbControl> Configure for Bridge<T> {
    fn members(&self) -> &Members {
        Bridge::members(self)
    }

    fn entries(&self) -> Vec<(FdbKey, FdbEntry)> {
        self.table().entries()
    }

    fn set_fixed(&mut self, key: FdbKey, port: PortNumber, sticky: bool, now: Time) -> bool {
        Bridge::set_fixed(self, key, port, sticky, now)
    }

    fn remove(&mut self, key: FdbKey) -> bool {
        self.table_mut().remove(key)
    }

    fn flush(&mut self, gone: &dyn Fn(FdbKey, FdbEntry) -> bool) -> usize {
        self.table_mut().flush(gone)
    }

    fn ageing_time(&self) -> Duration {
        self.table().ageing_time()
    }

    fn set_ageing(&mut self, ageing: Duration) {
        self.table_mut().set_ageing(ageing);
    }

    fn configure(&mut self, port: PortNumber, change: &mut dyn FnMut(&mut PortConfig)) -> bool {
        Bridge::configure(self, port, change)
    }

    fn set_up(&mut self, port: PortNumber, up: bool, now: Time) {
        Bridge::set_up(self, port, up, now);
    }

    fn set_filtering(&mut self, filtering: bool) {
        Bridge::set_filtering(self, filtering);
    }

    fn join(&mut self, vid: Vid, port: PortNumber, untagged: bool) -> bool {
        Bridge::join(self, vid, port, untagged)
    }

    fn leave(&mut self, vid: Vid, port: PortNumber) -> bool {
        Bridge::leave(self, vid, port)
    }

    fn start_tree(&mut self, config: StpConfig, address: MacAddr, now: Time) -> Result<(), StpConfigError> {
        Bridge::start_tree(self, config, address)?;
        let ports: Vec<PortNumber> = Bridge::members(self).iter().map(|(port, _)| port).collect();
        for port in ports {
            self.join_tree(port, StpPortConfig::default(), now)?;
            Bridge::set_up(self, port, true, now);
        }
        Ok(())
    }

    fn tree(&self) -> Option<&Stp> {
        Bridge::tree(self)
    }
}
