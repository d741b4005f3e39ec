//! Socket options, `fcntl` and `ioctl`.

use std::ffi::CStr;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr;

use libc::{c_int, c_ulong, c_void, linger, socklen_t};
use posix::{Errno, GroupRequest, OptionValue, Sockets};
use sync::Real;

use crate::abi::UserData;
use crate::calls::plug;
use crate::marshal::answer;
use crate::plug::MachineHandle;

/// Numbers in `SO_MEMINFO` reported as 0, because there is no kernel memory accounting: `SK_MEMINFO_FWD_ALLOC` and the
/// like.
const NONE: u32 = 0;

/// # Safety
/// `value` has `len` readable bytes.
unsafe fn read_value(level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> Result<OptionValue, Errno> {
    if value.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not null, and the caller guarantees `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(i32::from_ne_bytes);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let (on, seconds) = number(0).zip(number(4)).ok_or(Errno::EINVAL)?;
            Ok(OptionValue::Linger(on != 0, seconds.max(0) as u32))
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
            let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(i64::from_ne_bytes);
            let (seconds, micros) = word(0).zip(word(8)).ok_or(Errno::EINVAL)?;
            OptionValue::time(seconds, micros)
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let name = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
            Ok(OptionValue::Bytes(name.to_vec()))
        }
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY) => Ok(OptionValue::Bytes(bytes.to_vec())),
        (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) if bytes.len() == 8 => {
            let rate = bytes.try_into().map_or(0, u64::from_ne_bytes);
            Ok(OptionValue::Int(rate.min(u32::MAX.into()) as i64))
        }
        (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP | libc::IP_MULTICAST_IF)
        | (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP | libc::IPV6_DROP_MEMBERSHIP) => {
            group_value(level, bytes).ok_or(Errno::EINVAL)
        }
        // IP options may be one byte.
        (libc::IPPROTO_IP, _) if (1..4).contains(&bytes.len()) => Ok(OptionValue::Int(bytes[0].into())),
        _ => number(0).map(|number| OptionValue::Int(number.into())).ok_or(Errno::EINVAL),
    }
}

/// The value of an option for groups, by its length: `struct ipv6_mreq`; `struct in_addr`, `struct ip_mreq` or `struct
/// ip_mreqn`.
fn group_value(level: c_int, bytes: &[u8]) -> Option<OptionValue> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    if level == libc::IPPROTO_IPV6 {
        let group = Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(..16)?).ok()?).into();
        return Some(OptionValue::Group(GroupRequest { group, address: Ipv4Addr::UNSPECIFIED, index: number(16)? }));
    }
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
    let first = address(0)?;
    Some(match address(4) {
        None => OptionValue::Address(first),
        Some(address) => {
            OptionValue::Group(GroupRequest { group: first.into(), address, index: number(8).unwrap_or(0) })
        }
    })
}

pub(crate) unsafe extern "C" fn setsockopt(
    userdata: UserData,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: `userdata` is the table's; the value is as `setsockopt(2)` requires.
    let (plug, value) = unsafe { (plug(userdata), read_value(level, name, value, len)) };
    let set = plug.now(move |sockets| sockets.set_option(fd, level, name, &value?));
    answer(set.map(|()| 0)) as c_int
}

/// The bytes that `getsockopt` copies out.
fn option_bytes(sockets: &Sockets<Real>, fd: i32, level: c_int, name: c_int) -> Result<Vec<u8>, Errno> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_MEMINFO) => memory(sockets, fd),
        // No congestion control here has information beyond TCP_INFO.
        (libc::IPPROTO_TCP, libc::TCP_CC_INFO) => sockets.tcp_info(fd).map(|_| Vec::new()),
        _ => Ok(match sockets.get_option(fd, level, name)? {
            OptionValue::Int(number) => (number as i32).to_ne_bytes().to_vec(),
            OptionValue::Bytes(bytes) => bytes,
            OptionValue::Time(time) => {
                [time.as_secs() as i64, i64::from(time.subsec_micros())].map(i64::to_ne_bytes).concat()
            }
            OptionValue::Linger(on, seconds) => {
                let value = linger { l_onoff: on.into(), l_linger: seconds as i32 };
                [value.l_onoff.to_ne_bytes(), value.l_linger.to_ne_bytes()].concat()
            }
            OptionValue::Address(address) => address.octets().to_vec(),
            // Such an option is only set.
            OptionValue::Group(_) => return Err(Errno::ENOPROTOOPT),
        }),
    }
}

/// The nine numbers of `SO_MEMINFO`, from `SK_MEMINFO_RMEM_ALLOC` to `SK_MEMINFO_DROPS`: bytes of data, because there
/// is no kernel memory accounting.
fn memory(sockets: &Sockets<Real>, fd: i32) -> Result<Vec<u8>, Errno> {
    let limit = |name| match sockets.get_option(fd, libc::SOL_SOCKET, name) {
        Ok(OptionValue::Int(bytes)) => Ok(bytes as u32),
        Ok(_) => Ok(NONE),
        Err(error) => Err(error),
    };
    let (receive, send) = (limit(libc::SO_RCVBUF)?, limit(libc::SO_SNDBUF)?);
    // A listener has neither.
    let held = |request| sockets.ioctl(fd, request).map_or(NONE, |bytes| bytes as u32);
    let (received, queued) = (held(libc::FIONREAD), held(libc::TIOCOUTQ));
    let numbers = [received, receive, queued, send, NONE, queued, NONE, NONE, NONE];
    Ok(numbers.iter().flat_map(|number| number.to_ne_bytes()).collect())
}

/// `getsockopt` of one of ours.
///
/// # Safety
/// `len` is null or writable, and `value` has `*len` writable bytes.
pub(crate) unsafe fn get_option(
    plug: &MachineHandle,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let got = plug.now(move |sockets| option_bytes(sockets, fd, level, name));
    let copied = got.and_then(|bytes| {
        if value.is_null() || len.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: neither is null; the caller guarantees `*len` bytes, and no more are written.
        unsafe {
            let count = bytes.len().min(*len as usize);
            ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), count);
            *len = count as socklen_t;
        }
        Ok(0)
    });
    answer(copied) as c_int
}

pub(crate) unsafe extern "C" fn getsockopt(
    userdata: UserData,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: `userdata` is the table's; the rest is as `getsockopt(2)` requires.
    unsafe { get_option(plug(userdata), fd, level, name, value, len) }
}

pub(crate) unsafe extern "C" fn fcntl(userdata: UserData, fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let result = plug.now(move |sockets| sockets.fcntl(fd, command, argument as i32));
    answer(result.map(i64::from)) as c_int
}

pub(crate) unsafe extern "C" fn ioctl(userdata: UserData, fd: c_int, request: c_ulong, out: *mut c_int) -> c_int {
    const _: () = assert!(size_of::<c_ulong>() == 8);
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let result = plug.now(move |sockets| sockets.ioctl(fd, request));
    let result = result.map(|number| {
        // SAFETY: every request that succeeds is one that stores an `int` where its argument points.
        unsafe { out.write(number) };
        0
    });
    answer(result) as c_int
}
