//! `epoll`: an instance has an interest list and a ready list (epoll(7)).
//!
//! A registration waits in the queue of the description that it watches. A wake-up there puts the registration into the
//! ready list and wakes the threads that wait for the instance; `epoll_wait` takes registrations out of the list,
//! queries the readiness of each description, and reports those that are ready. A level-triggered registration goes
//! back into the list until it is found not ready; an edge-triggered one returns with the next wake-up; a one-shot one
//! with `EPOLL_CTL_MOD`.
//!
//! A registration is identified by the number of the descriptor and the description, so it outlives the descriptor if
//! the description does: "a file descriptor is removed from an interest list only after all the file descriptors
//! referring to the underlying open file description have been closed" (epoll(7)).
//!
//! What may never happen: a description is queried while a list is locked, or a wake-up during the query is lost (the
//! registration counts as taken out before the query).

mod calls;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use sync::{Lock, LockClass, LockKind, Platform};

use crate::Errno;
use crate::description::{Description, OpenObject};
use crate::wait_queue::{WaitQueue, WaitTicket, Waiter, bits};

/// The events that one descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpollInterest {
    /// Event bits, `EPOLLET` and `EPOLLONESHOT` among them.
    pub events: u32,
    /// The user's own value.
    pub data: u64,
}

/// One event of `epoll_wait`.
pub type Reported = EpollInterest;

const EDGE_TRIGGERED: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
/// The nesting depth of instances: Linux's limit.
const MOST_NESTED: usize = 5;

impl EpollInterest {
    /// The events to report.
    fn wanted(self) -> u32 {
        self.events & bits::ALL | bits::ALWAYS
    }
}

/// A registration's name: number of the descriptor and address of the description, unique while it lives; and a serial
/// number among the registrations of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegistrationKey {
    fd: i32,
    address: usize,
    serial: u64,
}

struct EpollRegistration<P: Platform> {
    serial: u64,
    file: Weak<Description<P>>,
    /// If that is an instance as well.
    nested: Option<Weak<Instance<P>>>,
    interest: EpollInterest,
    /// Its entry in the description's queue.
    ticket: Option<WaitTicket>,
    /// It is in the ready list.
    listed: bool,
    /// It was reported under `EPOLLONESHOT`.
    spent: bool,
}

struct Lists<P: Platform> {
    interest: BTreeMap<(i32, usize), EpollRegistration<P>>,
    ready: VecDeque<RegistrationKey>,
    serial: u64,
}

impl<P: Platform> Lists<P> {
    fn find(&mut self, key: RegistrationKey) -> Option<&mut EpollRegistration<P>> {
        self.interest.get_mut(&(key.fd, key.address)).filter(|registration| registration.serial == key.serial)
    }

    /// Puts a registration into the ready list; false if it was there already.
    fn list(&mut self, key: RegistrationKey) -> bool {
        let Some(registration) = self.find(key) else { return false };
        if registration.spent || std::mem::replace(&mut registration.listed, true) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Takes the oldest registration out of the ready list.
    fn next(&mut self) -> Option<(RegistrationKey, Weak<Description<P>>, u32)> {
        loop {
            let key = self.ready.pop_front()?;
            // One that has been deleted may still be listed.
            if let Some(registration) = self.find(key) {
                registration.listed = false;
                return Some((key, registration.file.clone(), registration.interest.wanted()));
            }
        }
    }

    /// The report for a registration with a description that is ready for `level`.
    fn report(&mut self, key: RegistrationKey, level: u32) -> Option<Reported> {
        let registration = self.find(key)?;
        let EpollInterest { events, data } = registration.interest;
        let there = level & registration.interest.wanted();
        if there == 0 || registration.spent {
            return None;
        }
        registration.spent = events & ONE_SHOT != 0;
        if events & (ONE_SHOT | EDGE_TRIGGERED) == 0 {
            self.list(key);
        }
        Some(EpollInterest { events: there, data })
    }
}

/// An `epoll` instance. Any thread.
pub(crate) struct Instance<P: Platform> {
    lists: Lock<Lists<P>, P>,
    /// Waiters for an entry in the ready list.
    pub(crate) waiters: Arc<WaitQueue<P>>,
}

fn address_of<P: Platform>(file: &Arc<Description<P>>) -> usize {
    Arc::as_ptr(file) as usize
}

impl<P: Platform> Instance<P> {
    pub(crate) fn new() -> Arc<Self> {
        let lists = Lists { interest: BTreeMap::new(), ready: VecDeque::new(), serial: 0 };
        let lists = Lock::new(LockKind::Blocking, LockClass::WaitQueue, lists);
        Arc::new(Instance { lists, waiters: WaitQueue::new() })
    }

    /// `EPOLL_CTL_ADD`.
    fn add(self: &Arc<Self>, fd: i32, file: &Arc<Description<P>>, interest: EpollInterest) -> Result<(), Errno> {
        let name = (fd, address_of(file));
        let mut lists = self.lists.lock();
        if lists.interest.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        lists.serial += 1;
        let serial = lists.serial;
        let nested = file.epoll().ok().map(Arc::downgrade);
        let file_of = Arc::downgrade(file);
        let registration =
            EpollRegistration { serial, file: file_of, nested, interest, ticket: None, listed: false, spent: false };
        lists.interest.insert(name, registration);
        drop(lists);
        self.watch(RegistrationKey { fd, address: name.1, serial }, file, interest);
        Ok(())
    }

    /// `EPOLL_CTL_MOD`.
    fn modify(self: &Arc<Self>, fd: i32, file: &Arc<Description<P>>, interest: EpollInterest) -> Result<(), Errno> {
        let address = address_of(file);
        let mut lists = self.lists.lock();
        let registration = lists.interest.get_mut(&(fd, address)).ok_or(Errno::ENOENT)?;
        (registration.interest, registration.spent) = (interest, false);
        let (serial, ticket) = (registration.serial, registration.ticket.take());
        drop(lists);
        // The new entry first, so that no wake-up is lost between the two.
        self.watch(RegistrationKey { fd, address, serial }, file, interest);
        ticket.into_iter().for_each(|ticket| file.waiters.leave(ticket));
        Ok(())
    }

    /// `EPOLL_CTL_DEL`.
    fn delete(&self, fd: i32, file: &Arc<Description<P>>) -> Result<(), Errno> {
        let removed = self.lists.lock().interest.remove(&(fd, address_of(file)));
        let registration = removed.ok_or(Errno::ENOENT)?;
        registration.ticket.into_iter().for_each(|ticket| file.waiters.leave(ticket));
        Ok(())
    }

    /// Subscribes the registration to the events of `file`, and queues it if that is ready already.
    fn watch(self: &Arc<Self>, key: RegistrationKey, file: &Arc<Description<P>>, interest: EpollInterest) {
        if interest.events & EDGE_TRIGGERED != 0
            && let OpenObject::Tcp(socket) = &file.object
        {
            socket.tell_every_arrival(file.stack());
        }
        let ticket = file.waiters.join(interest.wanted(), Waiter::Epoll(Arc::downgrade(self), key));
        let mut lists = self.lists.lock();
        let unneeded = match lists.find(key) {
            Some(registration) => registration.ticket.replace(ticket),
            // Deleted meanwhile by another thread.
            None => Some(ticket),
        };
        drop(lists);
        unneeded.into_iter().for_each(|ticket| file.waiters.leave(ticket));
        if file.events(interest.wanted()) & interest.wanted() != 0 {
            self.mark(key);
        }
    }

    /// The description of a registration may have become ready. The caller holds no lock.
    pub(crate) fn mark(&self, key: RegistrationKey) {
        let is_new = self.lists.lock().list(key);
        if is_new {
            self.waiters.wake(bits::IN);
        }
    }

    /// The description of a registration has ended.
    pub(crate) fn forget(&self, key: RegistrationKey) {
        let mut lists = self.lists.lock();
        if lists.find(key).is_some() {
            lists.interest.remove(&(key.fd, key.address));
        }
    }

    /// Takes at most `max` events out.
    pub(crate) fn take(&self, max: usize) -> Vec<Reported> {
        let (mut events, mut goes_back) = (Vec::new(), false);
        // Registrations that return to the list meanwhile wait for the next call.
        let mut left = self.lists.lock().ready.len();
        while left > 0 && events.len() < max {
            left -= 1;
            let Some((key, file, wanted)) = self.lists.lock().next() else { break };
            let Some(file) = file.upgrade() else { continue };
            let level = file.events(wanted);
            let mut lists = self.lists.lock();
            events.extend(lists.report(key, level));
            goes_back |= lists.find(key).is_some_and(|registration| registration.listed);
        }
        if goes_back {
            // Another thread may have checked, and gone to sleep, while it was out of the list.
            self.waiters.wake(bits::IN);
        }
        events
    }

    /// `EPOLLIN` if `epoll_wait` would report something.
    pub(crate) fn events(&self) -> u32 {
        let listed: Vec<RegistrationKey> = self.lists.lock().ready.iter().copied().collect();
        let is_ready = listed.into_iter().any(|key| {
            let found = self.lists.lock().find(key).map(|found| (found.file.clone(), found.interest.wanted()));
            let Some((file, wanted)) = found else { return false };
            file.upgrade().is_some_and(|file| file.events(wanted) & wanted != 0)
        });
        if is_ready { bits::IN } else { 0 }
    }

    /// The instances that this one watches.
    fn watched(&self) -> Vec<Arc<Instance<P>>> {
        self.lists.lock().interest.values().filter_map(|entry| entry.nested.as_ref()?.upgrade()).collect()
    }

    /// Whether `other` is this instance or watched by it, or something is nested deeper than `depth`.
    fn reaches(&self, other: &Instance<P>, depth: usize) -> bool {
        depth == 0 || std::ptr::eq(self, other) || self.watched().iter().any(|next| next.reaches(other, depth - 1))
    }
}
