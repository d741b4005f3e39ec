//! The fault `connp-t..+async-wildcard`: a listener that the protocol threads learn of while clients connect already.
//!
//! DragonFly's `listen()` waited for the replica of one protocol thread, and sent the others without waiting. A segment from
//! a device comes another way than a message from another CPU, so either may be first. Here such a replica lets the arrivals
//! behind it in the queue of its thread pass: a client that connects at once may be refused. Nothing else passes it.

use std::collections::VecDeque;

use sync::Platform;

use crate::call::ControlRequest;
use crate::handoff::CellMessage;

/// A replica that nobody waits for, and an arrival behind it, change places.
#[cold]
pub(super) fn let_an_arrival_pass<P: Platform>(message: &mut CellMessage<P>, batch: &mut VecDeque<CellMessage<P>>) {
    let unawaited = matches!(message, CellMessage::Control(ControlRequest::Listen(_), asker) if !asker.is_awaited());
    if let Some(next @ CellMessage::Ingress(_)) = batch.front_mut().filter(|_| unawaited) {
        std::mem::swap(message, next);
    }
}
