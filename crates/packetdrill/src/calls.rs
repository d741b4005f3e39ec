//! The functions of the table: C's arguments onto the socket layer and the machine, results back.
//!
//! Each gets `userdata` first, the pointer that the table has, which lives until `free`; and pointers for which the
//! system call of its name has the same requirements. What packetdrill passes meets them, and that is what each
//! `unsafe` here rests on.

pub(crate) mod clock;
pub(crate) mod life;
pub(crate) mod messages;
pub(crate) mod options;
pub(crate) mod poll;

use crate::abi::UserData;
use crate::plug::Plug;

/// The machine behind `userdata`.
///
/// # Safety
/// `userdata` is the table's, and `free` was not called.
unsafe fn plug<'a>(userdata: UserData) -> &'a Plug {
    // SAFETY: it is a pointer that `Arc::into_raw` gave, and the count that it stands for is given back in `free` only.
    unsafe { &*userdata.cast_const().cast::<Plug>() }
}
