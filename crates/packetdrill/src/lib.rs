//! The plug-in `libheddle_packetdrill.so`: the real packetdrill loads it (`--so_filename`) and runs its scripts against
//! the stack instead of a kernel, in virtual time.
//!
//! packetdrill calls [`abi::packetdrill_interface_init`], which fills a table of functions. The sockets behind them are
//! [`posix`], the machine is [`drill::host`]: a script runs as under `heddle drill`. One script at a time, as in
//! packetdrill.
//!
//! Two threads call in: the one that called `packetdrill_interface_init`, which runs the script, and one for calls that
//! block. Both move the clock, and neither may ever spin: packetdrill recognises a blocked call by its sleeping thread.
//!
//! # Map
//!
//! | file | content |
//! |---|---|
//! | [`abi`] | the table, and the symbol that packetdrill looks for |
//! | `flags` | the values of `--so_flags` |
//! | `machine` | stack, sockets, clock and blocked calls |
//! | `plug` | the machine's thread, and how a call waits |
//! | `numbers` | numbers of descriptors: each is one of the kernel's as well |
//! | `sysctls` | knobs from a directory of files |
//! | `calls` | the functions of the table |
//! | `marshal` | C's addresses and vectors |
//! | [`preload`] | `close`, `getsockopt` and `sendfile` of the whole program, for calls that bypass the table |

pub mod abi;
mod calls;

mod flags;
mod machine;
mod marshal;
mod numbers;
mod plug;
pub mod preload;
mod sysctls;
