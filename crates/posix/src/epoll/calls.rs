//! `epoll_create`, `epoll_ctl`, `epoll_wait`.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sync::Platform;

use super::{EpollInterest, Instance, MOST_NESTED, Reported};
use crate::blocking::block;
use crate::description::{Description, OpenObject};
use crate::wait_queue::bits;
use crate::{CallProgress, Errno, Sockets, now};

impl<P: Platform> Sockets<P> {
    /// `epoll_create1(2)`.
    ///
    /// # Errors
    /// `EMFILE`; `EINVAL` for a flag other than `EPOLL_CLOEXEC`.
    pub fn epoll_create(&self, flags: i32) -> Result<i32, Errno> {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return Err(Errno::EINVAL);
        }
        let instance = Instance::new();
        let waiters = instance.waiters.clone();
        let file = Description::new(OpenObject::Epoll(instance), waiters, (false, libc::O_RDWR), &self.stack);
        self.table.add(file, flags & libc::EPOLL_CLOEXEC != 0, 0)
    }

    /// `epoll_ctl(2)`. `EPOLL_CTL_DEL` ignores `interest`.
    ///
    /// # Errors
    /// `EBADF`; `EEXIST`, `ENOENT`; `EINVAL` if `epoll` is no instance or `fd` itself; `EPERM` for a file that is
    /// always ready; `ELOOP` if instances would watch each other in a cycle or more than five deep.
    pub fn epoll_ctl(&self, epoll: i32, operation: i32, fd: i32, interest: EpollInterest) -> Result<(), Errno> {
        let (instance, file) = (self.file(epoll)?, self.file(fd)?);
        if matches!(file.object, OpenObject::Zeros(_)) {
            return Err(Errno::EPERM);
        }
        let same = Arc::ptr_eq(&instance, &file);
        let instance = instance.epoll()?;
        match operation {
            _ if same => Err(Errno::EINVAL),
            libc::EPOLL_CTL_ADD => match &file.object {
                OpenObject::Epoll(inner) => {
                    // Of two threads that would close a cycle, one must see the other's half.
                    let _one_at_a_time = self.nesting.lock();
                    if inner.reaches(instance, MOST_NESTED) {
                        return Err(Errno::ELOOP);
                    }
                    instance.add(fd, &file, interest)
                }
                _ => instance.add(fd, &file, interest),
            },
            libc::EPOLL_CTL_MOD => instance.modify(fd, &file, interest),
            libc::EPOLL_CTL_DEL => instance.delete(fd, &file),
            _ => Err(Errno::EINVAL),
        }
    }

    /// One attempt of `epoll_wait(2)`: at most `max` events; pending when there is none.
    pub fn try_epoll_wait(&self, epoll: i32, max: usize) -> CallProgress<Vec<Reported>> {
        let taken = self.file(epoll).and_then(|file| Ok(file.epoll()?.take(max)));
        match taken {
            Ok(events) if events.is_empty() => Poll::Pending,
            other => now(other),
        }
    }

    /// `epoll_wait(2)`: at most `max` events, within `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` if `epoll` is no instance or `max` is 0.
    pub fn epoll_wait(&self, epoll: i32, max: usize, timeout: Option<Duration>) -> Result<Vec<Reported>, Errno> {
        let file = self.file(epoll)?;
        let instance = file.epoll()?;
        if max == 0 {
            return Err(Errno::EINVAL);
        }
        block(&file, bits::IN, timeout, |over| match instance.take(max) {
            events if events.is_empty() && !over => Poll::Pending,
            events => now(Ok(events)),
        })
    }
}
