//! The clock, and the link.

use std::time::Duration;

use libc::{c_int, c_longlong, c_void, timeval, useconds_t};
use posix::Errno;

use crate::abi::UserData;
use crate::calls::plug;
use crate::marshal::answer;

pub(crate) unsafe extern "C" fn usleep(userdata: UserData, microseconds: useconds_t) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    plug.with(move |machine| machine.sleep(Duration::from_micros(microseconds.into())));
    0
}

pub(crate) unsafe extern "C" fn gettimeofday(userdata: UserData, time: *mut timeval, _zone: *mut c_void) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let now = plug.look().as_micros();
    let value = timeval { tv_sec: (now / 1_000_000) as i64, tv_usec: (now % 1_000_000) as i64 };
    if !time.is_null() {
        // SAFETY: not null, and the caller has room for a `timeval` there.
        unsafe { time.write(value) };
    }
    0
}

/// One IP packet for the stack.
pub(crate) unsafe extern "C" fn netdev_send(userdata: UserData, packet: *const c_void, count: usize) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    // SAFETY: the caller has `count` bytes there, and they are not written meanwhile.
    let packet = unsafe { std::slice::from_raw_parts(packet.cast::<u8>(), count) }.to_vec();
    plug.read_sysctls();
    let result = plug.with(move |machine| machine.inject(&packet));
    answer(result.map(|()| 0).map_err(|error| {
        eprintln!("heddle: a packet of {count} bytes was not taken: {error}");
        Errno::EINVAL
    })) as c_int
}

/// The next IP packet of the stack, cut to the room there is. None: a count of 0, which packetdrill reports and ends
/// with; it would retry an error for ever.
pub(crate) unsafe extern "C" fn netdev_receive(
    userdata: UserData,
    buffer: *mut c_void,
    count: *mut usize,
    time: *mut c_longlong,
) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let (at, packet) = plug.with(|machine| machine.next_packet().unwrap_or_default());
    // SAFETY: the caller passes its room in `count`, which is writable, as is `time`; no more bytes are written.
    unsafe {
        let len = packet.len().min(*count);
        std::ptr::copy_nonoverlapping(packet.as_ptr(), buffer.cast::<u8>(), len);
        *count = len;
        *time = at.as_micros() as c_longlong;
    }
    0
}
