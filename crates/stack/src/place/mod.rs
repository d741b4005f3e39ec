//! Storage of connections: the part of a process architecture that defines the unit of exclusion.
//!
//! The two implementations of [`Place`](crate::connections::Place): a [`Cell`], which one thread uses as a whole by
//! `&mut`, and [`Locked`], in which many threads each use one connection, by its locks. In both, connections are in the
//! slab of the stack ([`connection`]), and tables hold slots. *What happens* to a connection is in
//! [`connections`](crate::connections), written once over the trait; *which thread* runs it is in `arch/`.
//!
//! What may never happen here: a protocol rule. A place finds and stores connections and runs events; it does not
//! interpret a segment.

pub mod cell;
mod channels;
pub mod connection;
mod contents;
mod handlers;
pub mod locked;
pub mod pcb;
mod runs;
mod time_wait;
pub mod turns;
mod waiting;

use tcp::{LocalEffects, Outbox};

use crate::connections::Effects;
use crate::deferred::DeferredEffects;
use crate::flow::Flow;
use crate::route_cache::RouteCache;
use crate::shared::Shared;
use crate::socket::TcpSocket;
use sync::Platform;

pub use cell::Cell;
pub use contents::{Contents, NotAtRest};
pub use locked::{Habits, Locked, TablePolicy};

/// Gives back the memory of a table by slot that a peak has left behind: that of empty places at its end. Room for as
/// many again as there are is kept.
fn trim_slots<T>(by_slot: &mut Vec<Option<T>>) {
    let used = by_slot.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    by_slot.truncate(used);
    by_slot.shrink_to(2 * used);
}

/// The part of [`conclude`] that concerns effects without an outbox.
#[inline(always)]
fn conclude_locally<P: Platform>(
    shared: &Shared<P>,
    flow: &Flow,
    local: &LocalEffects<'_>,
    deferred: &mut DeferredEffects<P>,
) {
    if local.progress && shared.egress().neighbours().has_doubts() {
        shared.egress().path_works(flow.tuple.remote_addr, deferred);
    }
}

/// Processes an outbox once the segments have left, for every place; effects on tables and timers are returned. The user
/// is notified by the place itself, which may have to call a handler first.
#[inline(always)]
fn conclude<P: Platform>(
    shared: &Shared<P>,
    flow: &Flow,
    route: &RouteCache,
    socket: &TcpSocket<P>,
    out: &Outbox<'_>,
    deferred: &mut DeferredEffects<P>,
) -> Option<Effects> {
    conclude_locally(shared, flow, out, deferred);
    if out.tx_blocked {
        shared.egress().wait_for_room(flow, route, socket.target(), deferred);
    }
    Effects::of(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_by_slot_keeps_what_it_has_and_room_for_as_much_again() {
        let mut by_slot: Vec<Option<u32>> = (0..1000).map(|slot| (slot == 3 || slot == 9).then_some(slot)).collect();
        trim_slots(&mut by_slot);
        assert_eq!((by_slot.len(), by_slot[3], by_slot[9]), (10, Some(3), Some(9)));
        assert!((20..40).contains(&by_slot.capacity()), "{}", by_slot.capacity());
        by_slot.fill(None);
        trim_slots(&mut by_slot);
        assert_eq!(by_slot.capacity(), 0);
    }
}
