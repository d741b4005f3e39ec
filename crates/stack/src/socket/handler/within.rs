//! Whether the calling thread runs a handler.
//!
//! A thread that runs a handler may hold a cell. If it called the stack, it could enter the same cell twice, wait for a
//! cell whose thread waits for this one, or sleep with the cell held. Such calls check this, off their usual path, and
//! are refused.

use std::marker::PhantomData;

use sync::Platform;

/// The message of a call of the stack that was refused because a handler made it.
pub const IN_HANDLER: &str = "a handler must not block or call the stack: use its own connection, or post to another";

/// Whether the calling thread runs a handler now: it must not sleep or call the stack, and uses its
/// [`Conn`](super::Conn) instead.
#[inline]
pub fn in_handler<P: Platform>() -> bool {
    P::in_callback()
}

/// The calling thread runs a handler until this is dropped, also by a panic. Not `Send`: it belongs to the thread.
pub(super) struct Within<P: Platform>(bool, PhantomData<(*const (), P)>);

#[inline(always)]
pub(super) fn enter<P: Platform>() -> Within<P> {
    Within(P::set_in_callback(true), PhantomData)
}

impl<P: Platform> Drop for Within<P> {
    #[inline(always)]
    fn drop(&mut self) {
        P::set_in_callback(self.0);
    }
}
