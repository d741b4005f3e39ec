//! The system calls that the tests use, as a trait, implemented by the machine's kernel and by a process's table over
//! the stack.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use posix::{EpollInterest, Errno, GroupRequest, OptionValue, PollFd, Reported, Sockets};
use sync::Real;

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Sockets are of IPv4 unless a name ends in `v6`. Numbers and flags are Linux's.
pub(crate) trait System: Send + Sync {
    fn socket(&self, kind: i32) -> Result<i32>;
    fn socket_v6(&self, kind: i32) -> Result<i32>;
    fn bind(&self, fd: i32, address: SocketAddr) -> Result<()>;
    fn listen(&self, fd: i32, backlog: i32) -> Result<()>;
    fn accept(&self, fd: i32, flags: i32) -> Result<i32>;
    fn connect(&self, fd: i32, to: SocketAddr) -> Result<()>;
    fn send(&self, fd: i32, data: &[u8], flags: i32) -> Result<usize>;
    fn sendto(&self, fd: i32, data: &[u8], to: SocketAddr) -> Result<usize>;
    /// The value of the call, and the bytes in the buffer.
    fn recv(&self, fd: i32, max: usize, flags: i32) -> Result<(usize, Vec<u8>)>;
    fn shutdown(&self, fd: i32, how: i32) -> Result<()>;
    fn close(&self, fd: i32) -> Result<()>;
    fn dup(&self, fd: i32) -> Result<i32>;
    fn set_nonblocking(&self, fd: i32, on: bool) -> Result<()>;
    fn is_nonblocking(&self, fd: i32) -> Result<bool>;
    /// `SO_ERROR`
    fn error(&self, fd: i32) -> Result<i32>;
    /// `IP_TTL`
    fn ttl(&self, fd: i32) -> Result<u32>;
    /// `IP_TTL`
    fn set_ttl(&self, fd: i32, ttl: u32) -> Result<()>;
    /// `IP_MULTICAST_TTL`, `IP_MULTICAST_LOOP`
    fn group_options(&self, fd: i32) -> Result<(u32, bool)>;
    /// `IP_MULTICAST_TTL`
    fn set_group_ttl(&self, fd: i32, ttl: u32) -> Result<()>;
    /// `IP_MULTICAST_LOOP`
    fn set_group_loop(&self, fd: i32, on: bool) -> Result<()>;
    /// `IP_ADD_MEMBERSHIP` with `struct ip_mreqn`, or `IPV6_ADD_MEMBERSHIP`, by the family of the group.
    fn join(&self, fd: i32, group: IpAddr, address: Ipv4Addr, index: u32) -> Result<()>;
    /// `IP_DROP_MEMBERSHIP`, `IPV6_DROP_MEMBERSHIP`
    fn leave(&self, fd: i32, group: IpAddr, address: Ipv4Addr, index: u32) -> Result<()>;
    /// `IP_MULTICAST_IF`
    fn group_interface(&self, fd: i32) -> Result<Ipv4Addr>;
    /// `IP_MULTICAST_IF` with `struct ip_mreqn`
    fn set_group_interface(&self, fd: i32, address: Ipv4Addr, index: u32) -> Result<()>;
    /// `IPV6_MULTICAST_HOPS`, `IPV6_MULTICAST_LOOP`, `IPV6_MULTICAST_IF`
    fn group_options_v6(&self, fd: i32) -> Result<(u32, bool, u32)>;
    /// `IPV6_MULTICAST_HOPS`
    fn set_group_hops(&self, fd: i32, hops: u32) -> Result<()>;
    /// `IPV6_MULTICAST_LOOP`
    fn set_group_loop_v6(&self, fd: i32, on: bool) -> Result<()>;
    /// `IPV6_MULTICAST_IF`
    fn set_group_interface_v6(&self, fd: i32, index: u32) -> Result<()>;
    /// `IP_MULTICAST_ALL`, or `IPV6_MULTICAST_ALL`
    fn set_all_groups(&self, fd: i32, v6: bool, on: bool) -> Result<()>;
    /// The same.
    fn all_groups(&self, fd: i32, v6: bool) -> Result<bool>;
    /// `SO_RCVTIMEO`
    fn set_receive_timeout(&self, fd: i32, time: Duration) -> Result<()>;
    /// `SO_SNDTIMEO`
    fn set_send_timeout(&self, fd: i32, time: Duration) -> Result<()>;
    /// `SO_LINGER`, on.
    fn set_linger(&self, fd: i32, time: Duration) -> Result<()>;
    /// `SO_TIMESTAMPING`
    fn set_timestamping(&self, fd: i32, flags: u32) -> Result<()>;
    fn local(&self, fd: i32) -> Result<SocketAddr>;
    fn peer(&self, fd: i32) -> Result<SocketAddr>;
    fn poll(&self, fds: &mut [PollFd], timeout: Duration) -> usize;
    fn epoll_create(&self) -> Result<i32>;
    fn epoll_ctl(&self, epoll: i32, operation: i32, fd: i32, interest: EpollInterest) -> Result<()>;
    fn epoll_wait(&self, epoll: i32, max: usize, timeout: Duration) -> Result<Vec<Reported>>;
    /// The read end and the write end.
    fn pipe(&self) -> Result<(i32, i32)>;
    fn write(&self, fd: i32, data: &[u8]) -> Result<usize>;
    fn read(&self, fd: i32, max: usize) -> Result<Vec<u8>>;
    /// Into the buffers; the value of the call.
    fn readv(&self, fd: i32, buffers: &mut [Vec<u8>]) -> Result<usize>;
    fn writev(&self, fd: i32, buffers: &[&[u8]]) -> Result<usize>;
    /// `recvmsg(2)` into the buffers; the value of the call.
    fn recvmsg(&self, fd: i32, buffers: &mut [Vec<u8>], flags: i32) -> Result<usize>;
    /// `sendmsg(2)` of the buffers.
    fn sendmsg(&self, fd: i32, buffers: &[&[u8]], flags: i32) -> Result<usize>;
    fn dup2(&self, fd: i32, new: i32) -> Result<()>;
}

pub(crate) fn to_write<'a>(buffers: &[&'a [u8]]) -> Vec<IoSlice<'a>> {
    buffers.iter().map(|buffer| IoSlice::new(buffer)).collect()
}

pub(crate) fn to_read(buffers: &mut [Vec<u8>]) -> Vec<IoSliceMut<'_>> {
    buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect()
}

/// `libc` has the number of IPv6 not for each of its C libraries.
fn all_groups_option(v6: bool) -> (i32, i32) {
    if v6 { (libc::IPPROTO_IPV6, 29) } else { (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL) }
}

/// The value of an option that is a number.
fn number(value: OptionValue) -> u32 {
    match value {
        OptionValue::Int(value) => value as u32,
        other => panic!("a number, not {other:?}"),
    }
}

impl System for Sockets<Real> {
    fn socket(&self, kind: i32) -> Result<i32> {
        self.socket(libc::AF_INET, kind, 0)
    }

    fn socket_v6(&self, kind: i32) -> Result<i32> {
        self.socket(libc::AF_INET6, kind, 0)
    }

    fn bind(&self, fd: i32, address: SocketAddr) -> Result<()> {
        self.bind(fd, address)
    }

    fn listen(&self, fd: i32, backlog: i32) -> Result<()> {
        self.listen(fd, backlog)
    }

    fn accept(&self, fd: i32, flags: i32) -> Result<i32> {
        self.accept4(fd, flags).map(|(child, _)| child)
    }

    fn connect(&self, fd: i32, to: SocketAddr) -> Result<()> {
        self.connect(fd, Some(to))
    }

    fn send(&self, fd: i32, data: &[u8], flags: i32) -> Result<usize> {
        self.send(fd, data, flags)
    }

    fn sendto(&self, fd: i32, data: &[u8], to: SocketAddr) -> Result<usize> {
        self.sendto(fd, data, 0, to)
    }

    fn recv(&self, fd: i32, max: usize, flags: i32) -> Result<(usize, Vec<u8>)> {
        self.recvmsg(fd, max, flags).map(|received| (received.count, received.data))
    }

    fn shutdown(&self, fd: i32, how: i32) -> Result<()> {
        self.shutdown(fd, how)
    }

    fn close(&self, fd: i32) -> Result<()> {
        self.close(fd)
    }

    fn dup(&self, fd: i32) -> Result<i32> {
        self.dup(fd)
    }

    fn set_nonblocking(&self, fd: i32, on: bool) -> Result<()> {
        self.fcntl(fd, libc::F_SETFL, if on { libc::O_NONBLOCK } else { 0 }).map(|_| ())
    }

    fn is_nonblocking(&self, fd: i32) -> Result<bool> {
        self.fcntl(fd, libc::F_GETFL, 0).map(|flags| flags & libc::O_NONBLOCK != 0)
    }

    fn error(&self, fd: i32) -> Result<i32> {
        match self.get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
            OptionValue::Int(error) => Ok(error as i32),
            other => panic!("SO_ERROR is a number, not {other:?}"),
        }
    }

    fn ttl(&self, fd: i32) -> Result<u32> {
        match self.get_option(fd, libc::IPPROTO_IP, libc::IP_TTL)? {
            OptionValue::Int(ttl) => Ok(ttl as u32),
            other => panic!("IP_TTL is a number, not {other:?}"),
        }
    }

    fn set_ttl(&self, fd: i32, ttl: u32) -> Result<()> {
        self.set_option(fd, libc::IPPROTO_IP, libc::IP_TTL, &OptionValue::Int(ttl.into()))
    }

    fn group_options(&self, fd: i32) -> Result<(u32, bool)> {
        let ttl = self.get_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL)?;
        match (ttl, self.get_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP)?) {
            (OptionValue::Int(ttl), OptionValue::Int(loops)) => Ok((ttl as u32, loops != 0)),
            others => panic!("numbers, not {others:?}"),
        }
    }

    fn set_group_ttl(&self, fd: i32, ttl: u32) -> Result<()> {
        self.set_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, &OptionValue::Int(ttl.into()))
    }

    fn set_group_loop(&self, fd: i32, on: bool) -> Result<()> {
        self.set_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, &OptionValue::Int(on.into()))
    }

    fn join(&self, fd: i32, group: IpAddr, address: Ipv4Addr, index: u32) -> Result<()> {
        let value = OptionValue::Group(GroupRequest { group, address, index });
        match group {
            IpAddr::V4(_) => self.set_option(fd, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &value),
            IpAddr::V6(_) => self.set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &value),
        }
    }

    fn leave(&self, fd: i32, group: IpAddr, address: Ipv4Addr, index: u32) -> Result<()> {
        let value = OptionValue::Group(GroupRequest { group, address, index });
        match group {
            IpAddr::V4(_) => self.set_option(fd, libc::IPPROTO_IP, libc::IP_DROP_MEMBERSHIP, &value),
            IpAddr::V6(_) => self.set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DROP_MEMBERSHIP, &value),
        }
    }

    fn group_interface(&self, fd: i32) -> Result<Ipv4Addr> {
        match self.get_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF)? {
            OptionValue::Address(address) => Ok(address),
            other => panic!("an address, not {other:?}"),
        }
    }

    fn set_group_interface(&self, fd: i32, address: Ipv4Addr, index: u32) -> Result<()> {
        let value = match index {
            0 => OptionValue::Address(address),
            index => OptionValue::Group(GroupRequest { group: Ipv4Addr::UNSPECIFIED.into(), address, index }),
        };
        self.set_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &value)
    }

    fn group_options_v6(&self, fd: i32) -> Result<(u32, bool, u32)> {
        let get = |name| self.get_option(fd, libc::IPPROTO_IPV6, name).map(number);
        let loops = get(libc::IPV6_MULTICAST_LOOP)? != 0;
        Ok((get(libc::IPV6_MULTICAST_HOPS)?, loops, get(libc::IPV6_MULTICAST_IF)?))
    }

    fn set_group_hops(&self, fd: i32, hops: u32) -> Result<()> {
        self.set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, &OptionValue::Int(hops.into()))
    }

    fn set_group_loop_v6(&self, fd: i32, on: bool) -> Result<()> {
        self.set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, &OptionValue::Int(on.into()))
    }

    fn set_group_interface_v6(&self, fd: i32, index: u32) -> Result<()> {
        self.set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &OptionValue::Int(index.into()))
    }

    fn set_all_groups(&self, fd: i32, v6: bool, on: bool) -> Result<()> {
        let (level, name) = all_groups_option(v6);
        self.set_option(fd, level, name, &OptionValue::Int(on.into()))
    }

    fn all_groups(&self, fd: i32, v6: bool) -> Result<bool> {
        let (level, name) = all_groups_option(v6);
        Ok(number(self.get_option(fd, level, name)?) != 0)
    }

    fn set_receive_timeout(&self, fd: i32, time: Duration) -> Result<()> {
        self.set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &OptionValue::Time(time))
    }

    fn set_send_timeout(&self, fd: i32, time: Duration) -> Result<()> {
        self.set_option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &OptionValue::Time(time))
    }

    fn set_linger(&self, fd: i32, time: Duration) -> Result<()> {
        let value = OptionValue::Linger(true, time.as_secs() as u32);
        self.set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &value)
    }

    fn set_timestamping(&self, fd: i32, flags: u32) -> Result<()> {
        self.set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &OptionValue::Int(flags.into()))
    }

    fn local(&self, fd: i32) -> Result<SocketAddr> {
        self.getsockname(fd)
    }

    fn peer(&self, fd: i32) -> Result<SocketAddr> {
        self.getpeername(fd)
    }

    fn poll(&self, fds: &mut [PollFd], timeout: Duration) -> usize {
        self.poll(fds, Some(timeout))
    }

    fn epoll_create(&self) -> Result<i32> {
        self.epoll_create(0)
    }

    fn epoll_ctl(&self, epoll: i32, operation: i32, fd: i32, interest: EpollInterest) -> Result<()> {
        self.epoll_ctl(epoll, operation, fd, interest)
    }

    fn epoll_wait(&self, epoll: i32, max: usize, timeout: Duration) -> Result<Vec<Reported>> {
        self.epoll_wait(epoll, max, Some(timeout))
    }

    fn pipe(&self) -> Result<(i32, i32)> {
        self.pipe(0)
    }

    fn write(&self, fd: i32, data: &[u8]) -> Result<usize> {
        self.write(fd, data)
    }

    fn read(&self, fd: i32, max: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; max];
        let count = self.read(fd, &mut buffer)?;
        buffer.truncate(count);
        Ok(buffer)
    }

    fn readv(&self, fd: i32, buffers: &mut [Vec<u8>]) -> Result<usize> {
        self.readv(fd, &mut to_read(buffers))
    }

    fn writev(&self, fd: i32, buffers: &[&[u8]]) -> Result<usize> {
        self.writev(fd, &to_write(buffers))
    }

    fn recvmsg(&self, fd: i32, buffers: &mut [Vec<u8>], flags: i32) -> Result<usize> {
        self.recvmsg_vectored(fd, &mut to_read(buffers), flags).map(|received| received.count)
    }

    fn sendmsg(&self, fd: i32, buffers: &[&[u8]], flags: i32) -> Result<usize> {
        self.sendmsg_vectored(fd, &to_write(buffers), flags, None)
    }

    fn dup2(&self, fd: i32, new: i32) -> Result<()> {
        self.dup3(fd, new, 0).map(drop)
    }
}
