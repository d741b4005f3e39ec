//! A socket's error queue: completions of sends with `MSG_ZEROCOPY`, and the times at which sent bytes left and were
//! acknowledged (`SO_TIMESTAMPING`).
//!
//! The stack copies the data, and the completions report that. While reports for a socket's sends are pending, the
//! connection notifies of its next acknowledgement; a thread in `poll` or `epoll_wait` that this wakes updates the
//! reports, and requests the next notification. Bytes that leave without an acknowledgement are stamped at the next
//! update ([`Sockets::update_reports`]).

use std::collections::VecDeque;

use observe::Time;
use stack::Stack;
use sync::Platform;
use tcp::SocketOption;

use crate::description::OpenObject;
use crate::tcp_socket::{Stage, TcpSocketState};
use crate::wait_queue::bits;
use crate::{Errno, Sockets};

/// One entry of an error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorQueueEntry {
    /// The memory of sends with `MSG_ZEROCOPY` is the user's again: the first and the last of them, by number.
    ZeroCopy {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
    },
    /// An event of the last byte of a send.
    Stamp {
        /// The event.
        what: Stamped,
        /// When.
        at: Time,
        /// The byte, counted from when stamps were enabled; 0 without `SOF_TIMESTAMPING_OPT_ID`.
        byte: u32,
        /// The entry is only the stamp, without the bytes (`SOF_TIMESTAMPING_OPT_TSONLY`).
        alone: bool,
    },
}

/// The event of a stamp. The numbers are Linux's (`SCM_TSTAMP_SND` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamped {
    /// It was given to the device.
    Sent = 0,
    /// It was given to the queue in front of the device.
    Scheduled = 1,
    /// The peer has it.
    Acknowledged = 2,
}

/// The reports of a socket, past and pending.
#[derive(Default)]
pub(crate) struct Reports {
    queue: VecDeque<ErrorQueueEntry>,
    /// Entries put into the queue so far.
    entered: u64,
    /// Bytes that the connection has accepted.
    written: u64,
    /// Sends by zero copy so far.
    sends: u32,
    /// Incomplete ones: the byte at which they end, and their numbers.
    copies: VecDeque<(u64, u32)>,
    /// `SO_TIMESTAMPING`, and the byte that its stamps count from.
    wanted: u32,
    base: u64,
    /// Ends of sends to be stamped: those that have not left, and those that are not acknowledged.
    leaving: VecDeque<u64>,
    arriving: VecDeque<u64>,
}

/// Takes the first of `queue`, if it satisfies `is`.
fn first_if<T>(queue: &mut VecDeque<T>, is: impl Fn(&T) -> bool) -> Option<T> {
    if is(queue.front()?) { queue.pop_front() } else { None }
}

impl Reports {
    /// A send ended after `accepted` bytes.
    pub(crate) fn sent(&mut self, accepted: usize, zero_copy: bool) {
        self.written += accepted as u64;
        if accepted == 0 {
            return;
        }
        if zero_copy {
            self.copies.push_back((self.written, self.sends));
            self.sends = self.sends.wrapping_add(1);
        }
        if self.wanted & (libc::SOF_TIMESTAMPING_TX_SCHED | libc::SOF_TIMESTAMPING_TX_SOFTWARE) != 0 {
            self.leaving.push_back(self.written);
        }
        if self.wanted & libc::SOF_TIMESTAMPING_TX_ACK != 0 {
            self.arriving.push_back(self.written);
        }
    }

    /// Enables stamps; `acknowledged` bytes have already arrived.
    fn want(&mut self, flags: u32, acknowledged: u64) {
        if flags & libc::SOF_TIMESTAMPING_OPT_ID & !self.wanted != 0 {
            self.base = acknowledged;
        }
        self.wanted = flags;
    }

    fn waits(&self) -> bool {
        !(self.copies.is_empty() && self.leaving.is_empty() && self.arriving.is_empty())
    }

    /// The peer has acknowledged `acknowledged` bytes of those `sent` that have left.
    fn look(&mut self, sent: u64, acknowledged: u64, now: Time) {
        while let Some(end) = first_if(&mut self.leaving, |end| *end <= sent) {
            self.stamp(libc::SOF_TIMESTAMPING_TX_SCHED, Stamped::Scheduled, end, now);
            self.stamp(libc::SOF_TIMESTAMPING_TX_SOFTWARE, Stamped::Sent, end, now);
        }
        while let Some(end) = first_if(&mut self.arriving, |end| *end <= acknowledged) {
            self.stamp(libc::SOF_TIMESTAMPING_TX_ACK, Stamped::Acknowledged, end, now);
        }
        while let Some((_, number)) = first_if(&mut self.copies, |(end, _)| *end <= acknowledged) {
            self.entered += 1;
            match self.queue.back_mut() {
                Some(ErrorQueueEntry::ZeroCopy { last, .. }) if last.wrapping_add(1) == number => *last = number,
                _ => self.queue.push_back(ErrorQueueEntry::ZeroCopy { first: number, last: number }),
            }
        }
    }

    fn stamp(&mut self, flag: u32, what: Stamped, end: u64, at: Time) {
        if self.wanted & flag == 0 || self.wanted & libc::SOF_TIMESTAMPING_SOFTWARE == 0 {
            return;
        }
        let counted = self.wanted & libc::SOF_TIMESTAMPING_OPT_ID != 0;
        let byte = if counted { (end - 1).wrapping_sub(self.base) as u32 } else { 0 };
        let alone = self.wanted & libc::SOF_TIMESTAMPING_OPT_TSONLY != 0;
        self.entered += 1;
        self.queue.push_back(ErrorQueueEntry::Stamp { what, at, byte, alone });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl<P: Platform> TcpSocketState<P> {
    /// `setsockopt(SO_TIMESTAMPING)`.
    pub(crate) fn want_stamps(&mut self, stack: &Stack<P>, flags: u32) {
        let acknowledged = match &self.stage {
            Stage::Stream(stream) => stream.status(stack).map_or(0, |status| status.traffic.bytes_acked),
            _ => 0,
        };
        self.reports.want(flags, acknowledged);
    }

    /// Has the next acknowledgement wake the sleepers, if reports are pending.
    fn await_acknowledgement(&self, stack: &Stack<P>) {
        if let Stage::Stream(stream) = &self.stage
            && self.reports.waits()
        {
            // A connection that has ended has notified all waiters.
            let _ = stream.set(stack, SocketOption::NotifyAcknowledged);
        }
    }

    /// Updates the reports of sends; returns whether there are new ones.
    pub(crate) fn report(&mut self, stack: &Stack<P>) -> bool {
        if !self.reports.waits() {
            return false;
        }
        // Before the update, so that later acknowledgements are notified.
        self.await_acknowledgement(stack);
        let Stage::Stream(stream) = &self.stage else { return false };
        let (before, now) = (self.reports.entered, stack.shared().clock().now());
        match stream.status(stack) {
            Some(status) if status.state != tcp::State::Closed => {
                let acknowledged = status.traffic.bytes_acked;
                self.reports.look(acknowledged + u64::from(status.unacknowledged), acknowledged, now);
            }
            // No state of sends is kept.
            _ => {
                self.reports.leaving.clear();
                self.reports.arriving.clear();
                self.reports.look(u64::MAX, u64::MAX, now);
            }
        }
        self.reports.entered != before
    }
}

impl<P: Platform> Sockets<P> {
    /// Updates the reports of every socket, and wakes threads that wait for an error queue. Acknowledgements wake
    /// threads in `poll` and `epoll_wait` without it; the accuracy of stamps of leaving bytes depends on how often it
    /// is called.
    pub fn update_reports(&self) {
        for (_, file) in self.table.all() {
            if let OpenObject::Tcp(socket) = &file.object
                && socket.lock().report(&self.stack)
            {
                file.waiters.wake(bits::ERR);
            }
        }
    }

    /// `recvmsg(2)` with `MSG_ERRQUEUE`: takes the oldest entry of the error queue of `fd`.
    ///
    /// # Errors
    /// `EAGAIN` if there is none, `EBADF`.
    pub fn receive_report(&self, fd: i32) -> Result<ErrorQueueEntry, Errno> {
        let file = self.file(fd)?;
        let OpenObject::Tcp(socket) = &file.object else { return Err(Errno::EAGAIN) };
        let mut state = socket.lock();
        state.report(&self.stack);
        state.reports.queue.pop_front().ok_or(Errno::EAGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1);

    #[test]
    fn sends_that_follow_each_other_are_one_report() {
        let mut reports = Reports::default();
        for bytes in [10, 0, 10, 10] {
            reports.sent(bytes, true);
        }
        reports.look(30, 9, NOW);
        assert!(reports.is_empty(), "the first is not acknowledged whole");
        reports.look(30, 20, NOW);
        assert_eq!(reports.queue, [ErrorQueueEntry::ZeroCopy { first: 0, last: 1 }]);
        reports.queue.clear();
        reports.look(30, 30, NOW);
        assert_eq!(reports.queue, [ErrorQueueEntry::ZeroCopy { first: 2, last: 2 }]);
        assert!(!reports.waits());
    }

    #[test]
    fn stamps_count_from_the_byte_that_was_next_to_be_acknowledged() {
        let mut reports = Reports::default();
        reports.sent(100, false);
        let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_TX_ACK;
        reports.want(flags | libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_ID, 100);
        reports.sent(50, false);
        reports.look(149, 100, NOW);
        assert!(reports.is_empty(), "its last byte has not left");
        reports.look(150, 100, NOW);
        let stamp = |what| ErrorQueueEntry::Stamp { what, at: NOW, byte: 49, alone: false };
        assert_eq!(reports.queue, [stamp(Stamped::Sent)]);
        reports.look(150, 150, NOW);
        assert_eq!(reports.queue, [stamp(Stamped::Sent), stamp(Stamped::Acknowledged)]);
    }
}
