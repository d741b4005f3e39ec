//! Listeners and active opens whose connections have handlers: see [`crate::socket::handler`].

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use sync::Platform;
use tcp::config::ConnectionOptions;

use super::{BindRefused, ConnectRefused, Stack};
use crate::arch::running::ArchitectureSlot;
use crate::call::{Call, Ingress, Reply};
use crate::deferred::DeferredEffects;
use crate::flow::Target;
use crate::shared::Shared;
use crate::socket::handler::{Acceptor, ConnectionHandler, HandlerRef, HandlerState, NotifyOwner, Post};
use crate::socket::{ListenerShared, TcpSocket};

impl<P: Platform> Stack<P> {
    /// As [`Stack::listen`], but connections are not queued for a user that accepts them: each gets a handler, which
    /// `make` makes where it will run. `backlog` has no effect but on the handshakes' bound.
    ///
    /// # Errors
    /// See [`BindRefused`].
    pub fn listen_with_handlers(
        &self,
        address: SocketAddr,
        backlog: usize,
        options: ConnectionOptions,
        make: impl Fn(&TcpSocket<P>) -> Box<dyn ConnectionHandler<P>> + Send + Sync + 'static,
    ) -> Result<Arc<ListenerShared<P>>, BindRefused> {
        self.listen_and(address, backlog, options, Some(Acceptor::new(make, self.owners())))
    }

    /// As [`Stack::connect_with`]; `handler` is the connection's user from the beginning. Returns the connection's name for
    /// messages.
    ///
    /// # Errors
    /// See [`ConnectRefused`].
    pub fn connect_with_handler(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &ConnectionOptions,
        data: &[u8],
        handler: Box<dyn ConnectionHandler<P>>,
    ) -> Result<HandlerRef<P>, ConnectRefused> {
        let socket = self.connect_with(local.as_ref(), &remote, options, data)?;
        let name = HandlerRef::new(&socket, &self.owners());
        let state = HandlerState::opening(handler, name.clone());
        match self.call(&socket.target(), Call::Handle(state)) {
            Reply::Done => Ok(name),
            _ => Err(ConnectRefused::Fault),
        }
    }

    fn owners(&self) -> Arc<dyn NotifyOwner<P>> {
        Arc::new(StackOwners { shared: self.core.shared.clone(), running: Arc::downgrade(&self.core.running) })
    }
}

/// Reaches the owners of the connections of a stack, for messages. It does not keep the architecture, whose cells keep handlers.
struct StackOwners<P: Platform> {
    shared: Arc<Shared<P>>,
    running: Weak<ArchitectureSlot<P>>,
}

impl<P: Platform> NotifyOwner<P> for StackOwners<P> {
    fn announce(&self, target: &Target) -> Vec<Post<P>> {
        let Some(running) = self.running.upgrade() else { return Vec::new() };
        let _inside = self.shared.gate().enter();
        let active = running.get().active.clone();
        let mut deferred = DeferredEffects::default();
        active.post(&mut Ingress::Posted(*target), self.shared.clock().now(), &mut deferred);
        let posts = deferred.take_posts();
        deferred.flush(self.shared.links());
        active.end_of_batch(&mut deferred);
        posts
    }
}
