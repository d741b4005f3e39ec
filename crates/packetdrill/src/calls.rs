//! The functions of the table: they convert C's arguments, call the socket layer and the machine, and convert the
//! results.
//!
//! The first argument of each is the table's `userdata`, valid until `free`; the other pointers have the requirements
//! of the system call of the same name. packetdrill fulfils them, and every `unsafe` here relies on that.

pub(crate) mod clock;
pub(crate) mod life;
pub(crate) mod messages;
pub(crate) mod options;
pub(crate) mod poll;

use crate::abi::UserData;
use crate::plug::MachineHandle;

/// The machine behind `userdata`.
///
/// # Safety
/// `userdata` is the table's, and `free` was not called.
unsafe fn plug<'a>(userdata: UserData) -> &'a MachineHandle {
    // SAFETY: the pointer is from `Arc::into_raw`, and its reference is released in `free` only.
    unsafe { &*userdata.cast_const().cast::<MachineHandle>() }
}
