//! The owners' ends of the channels of a cell's connections, and the owner's work for them.
//!
//! A connection with a channel that is touched by a message is listed. At the end of the batch each listed channel is
//! served once: received data goes into the ring, and the room in the send buffer is granted.

use std::sync::Arc;

use observe::Time;
use pktbuf::Chunk;
use sync::{Platform, Writers};

use super::{Cell, trim_slots};
use crate::call::{Call, Reply};
use crate::connections::{Calls, Events, Place};
use crate::deferred::DeferredEffects;
use crate::flow::{Key, Target};
use crate::socket::channel::{ITEM_BYTES, OwnerEnd};
use crate::socket::{Readiness, TcpSocket};

/// See the module documentation.
pub(super) struct Channels<P: Platform> {
    /// By slot.
    ends: Vec<Option<Box<OwnerEnd<P>>>>,
    /// Slots of channels to serve.
    listed: Vec<u32>,
}

impl<P: Platform> Channels<P> {
    /// None.
    pub(super) fn new() -> Self {
        Channels { ends: Vec::new(), listed: Vec::new() }
    }

    /// Whether there was none since the last [`Channels::trim`] that found none.
    #[inline]
    pub(super) fn is_unused(&self) -> bool {
        self.ends.is_empty()
    }

    fn at(&mut self, slot: u32) -> Option<&mut OwnerEnd<P>> {
        self.ends.get_mut(slot as usize)?.as_deref_mut()
    }

    fn list(&mut self, slot: u32) {
        if let Some(end) = self.at(slot)
            && !std::mem::replace(&mut end.listed, true)
        {
            self.listed.push(slot);
        }
    }

    /// Gives back the memory that a peak has left behind.
    pub(super) fn trim(&mut self) {
        trim_slots(&mut self.ends);
        self.listed.shrink_to(2 * self.listed.len());
    }

    /// The connection has gone.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(end) = self.ends.get_mut(slot as usize) {
            *end = None;
        }
    }
}

impl<P: Platform> Cell<P> {
    /// Serves the channel of this connection from now on, unless the connection has gone.
    pub(crate) fn attach(&mut self, key: Key, end: Box<OwnerEnd<P>>) {
        if self.find_key(key).is_none() {
            return;
        }
        let slot = key.slot as usize;
        if self.channels.ends.len() <= slot {
            self.channels.ends.resize_with(slot + 1, || None);
        }
        self.channels.ends[slot] = Some(end);
        self.channels.list(key.slot);
    }

    /// A message is for this connection.
    #[inline]
    pub(crate) fn touch(&mut self, key: Key) {
        if !self.channels.is_unused() {
            self.channels.list(key.slot);
        }
    }

    /// A segment of this flow arrives.
    #[inline]
    pub(crate) fn touch_flow(&mut self, tuple: &wire::FourTuple, hash: u32) {
        if !self.channels.is_unused()
            && let Ok((slot, ())) = self.find(tuple, hash)
        {
            self.channels.list(slot);
        }
    }

    /// Serves the channels that were touched.
    #[inline]
    pub(crate) fn serve_channels(&mut self, now: Time, deferred: &mut DeferredEffects<P>) {
        while let Some(slot) = self.channels.listed.pop() {
            if let Some(mut end) = self.channels.ends.get_mut(slot as usize).and_then(Option::take) {
                end.listed = false;
                self.serve_channel(slot, &mut end, now, deferred);
                self.put_back(slot, end);
            }
        }
    }

    /// Runs a call that was sent by another thread, on a connection that may have a channel.
    pub(crate) fn call_of_user(
        &mut self,
        target: &Target,
        call: &mut Call<P>,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Reply {
        let mut reply = Reply::Gone;
        if self.channels.at(target.key.slot).is_some() {
            self.touch(target.key);
            match call {
                // Data received before the call is in the ring after it, and the user takes it from there first.
                Call::Receive(_) if self.delivers(target.key, now, deferred) => {
                    return Reply::Received(Err(tcp::Error::WouldBlock));
                }
                Call::ReceiveInOrder(_) if self.delivers(target.key, now, deferred) => {
                    return Reply::ReceivedInOrder(Err(tcp::Error::WouldBlock));
                }
                Call::Peek(_) if self.delivers(target.key, now, deferred) => {
                    return Reply::Peeked(Err(tcp::Error::WouldBlock));
                }
                // Delivered and not read: the same as data that the connection still has (RFC 9293, 3.6.1).
                Call::Close(_) if self.has_unread(target.key) => *call = Call::Abort(tcp::Abort),
                Call::SendPromised(send) => {
                    let bytes = send.0.iter().map(Chunk::len).sum();
                    if let Some(end) = self.channels.at(target.key.slot) {
                        end.appended(bytes);
                    }
                }
                _ => {}
            }
        }
        self.call(target, call, now, deferred, &mut reply);
        reply
    }

    /// Puts the received data into the ring of a connection. True: the ring has something.
    fn delivers(&mut self, key: Key, now: Time, deferred: &mut DeferredEffects<P>) -> bool {
        let end = self.channels.ends.get_mut(key.slot as usize).and_then(Option::take);
        let Some(mut end) = end else { return false };
        self.serve_channel(key.slot, &mut end, now, deferred);
        let delivered = !end.is_empty();
        self.put_back(key.slot, end);
        delivered
    }

    fn has_unread(&mut self, key: Key) -> bool {
        self.channels.at(key.slot).is_some_and(|end| end.has_data())
    }

    /// The end of a connection that is still there.
    fn put_back(&mut self, slot: u32, end: Box<OwnerEnd<P>>) {
        if self.find_key(end.key()).is_some() {
            self.channels.ends[slot as usize] = Some(end);
        }
    }

    fn serve_channel(&mut self, slot: u32, end: &mut OwnerEnd<P>, now: Time, deferred: &mut DeferredEffects<P>) {
        if self.find_key(end.key()).is_none() {
            return;
        }
        end.take_back();
        let (mut put, mut more) = (false, true);
        while more && end.has_room() {
            let ready = tcp::ReceiveReady { max: ITEM_BYTES, unread: end.unread() };
            let Some(Some(mut received)) = self.run_contained(&slot, (), ready, now, deferred) else { break };
            if !received.check() {
                self.run_contained(&slot, (), tcp::DamagedData, now, deferred);
                if received.data.is_empty() {
                    break;
                }
            }
            more = received.more;
            end.clamped = std::mem::take(&mut received.window_clamped);
            end.put(received);
            put = true;
        }
        if end.clamped {
            // Data that the user takes before it sees the request is counted here; it reports data that it takes later.
            end.request_report();
            let bytes = end.unread();
            self.run_contained(&slot, (), tcp::ReportUnread { bytes }, now, deferred);
            end.clamped = bytes > 0;
        }
        if end.needs_grant()
            && let Some(room) = self.run_contained(&slot, (), tcp::SendRoom, now, deferred)
        {
            end.grant(room);
            end.attach();
        }
        if put {
            end.publish();
            deferred.wake(end.socket(), Readiness::READABLE, Writers::Many);
        }
    }

    /// The cell is about to be dissolved: users make calls from now on. Returns the connections that had channels. Data
    /// in a ring counts as read, because no one will report when it has been read. The user of a ring may sleep
    /// although the connection has data that waits for room in the ring, so it must check again after the switch.
    pub(crate) fn end_channels(&mut self, now: Time, deferred: &mut DeferredEffects<P>) -> Vec<Arc<TcpSocket<P>>> {
        let ends = std::mem::replace(&mut self.channels, Channels::new()).ends.into_iter().flatten();
        let mut ended = Vec::new();
        for end in ends {
            if end.clamped
                && let Some((slot, ())) = self.find_key(end.key())
            {
                self.run_contained(&slot, (), tcp::ReportUnread { bytes: 0 }, now, deferred);
            }
            ended.push(end.socket().clone());
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    #[test]
    fn channels_that_are_gone_leave_no_memory() {
        let mut channels =
            Channels::<Real> { ends: (0..1000).map(|_| None).collect(), listed: Vec::with_capacity(1000) };
        channels.trim();
        assert!(channels.is_unused(), "look-ups for them are saved again");
        assert_eq!((channels.ends.capacity(), channels.listed.capacity()), (0, 0));
    }
}
