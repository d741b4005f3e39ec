//! Calls that use the tables of IP: routes, groups, addresses, path MTUs.
//!
//! Such a call runs as a whole where the architecture lets it use the tables: on the calling thread, or on the thread
//! that owns them, by one message each way.

use ip::{Route, RouteEntry, RouteName};
use sync::Platform;

use super::Stack;
use crate::arch::at_tables;
use crate::deferred::DeferredEffects;

impl<P: Platform> Stack<P> {
    /// Runs `ask` where the tables of IP may be used; may sleep until their owner has run it. `None`: the owner
    /// panicked, or has ended. The caller holds no lock of the stack.
    pub fn at_tables<R: Send + 'static>(&self, ask: impl FnOnce(&Stack<P>) -> R + Send + 'static) -> Option<R> {
        let stack = self.clone();
        at_tables(&*self.active(), move || ask(&stack))
    }

    /// Whether the calling thread owns the tables of IP.
    #[inline]
    pub(super) fn owns_tables(&self) -> bool {
        self.core.running.get().owned().is_some_and(|active| active.owns_tables())
    }

    /// Runs `ask` at once if the calling thread may use the tables of IP. Otherwise returns it.
    pub(super) fn at_tables_here<R, F: FnOnce() -> R>(&self, ask: F) -> Result<R, F> {
        if self.owns_tables() {
            return Ok(ask());
        }
        let (mut ask, mut result) = (Some(ask), None);
        self.active().use_tables(&mut || result = ask.take().map(|ask| ask()));
        match (result, ask) {
            (Some(result), _) => Ok(result),
            (None, Some(ask)) => Err(ask),
            (None, None) => unreachable!("what was called has returned"),
        }
    }

    /// Adds or changes a route through the interface with this number. Connections notice it when they next send.
    pub fn state_route(&self, stated: &Route, interface: usize) {
        let stated = *stated;
        self.at_tables(move |stack| stack.shared().routes().state(&stated, interface));
    }

    /// Removes a route; `None`: there is no route of this name.
    pub fn remove_route(&self, named: &RouteName) -> Option<RouteEntry> {
        let named = *named;
        self.at_tables(move |stack| stack.shared().routes().remove(&named)).flatten()
    }

    /// Sets the MTU of an interface's link, in bytes, within what the device carries. Open connections apply it when
    /// they next send; new ones announce it.
    pub fn set_link_mtu(&self, interface: usize, mtu: usize) {
        self.at_tables(move |stack| {
            let (shared, mut deferred) = (stack.shared(), DeferredEffects::default());
            shared.addresses().set_link_mtu(&mut shared.context(interface, &mut deferred), mtu);
            deferred.flush(shared.links());
        });
    }
}
