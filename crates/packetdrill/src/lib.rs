//! The plug-in `libheddle_packetdrill.so`: the real packetdrill loads it (`--so_filename`) and runs its scripts against
//! the stack instead of a kernel, in virtual time.
//!
//! packetdrill calls [`abi::packetdrill_interface_init`], which fills a table of functions. The sockets behind them are
//! [`posix`], the machine is [`drill::host`]: what a script finds here is what it finds under `heddle drill`. Made
//! for one script at a time, as packetdrill is.
//!
//! Two threads come in: the one that called `packetdrill_interface_init`, which runs the script, and one for calls that
//! block. Both move the clock, and neither may ever spin: packetdrill takes a thread that sleeps for one that blocks.
//!
//! # Map
//!
//! | file | content |
//! |---|---|
//! | [`abi`] | the table, and the symbol that packetdrill looks for |
//! | `flags` | what `--so_flags` may say |
//! | `machine` | stack, sockets, clock and calls that wait |
//! | `plug` | the thread that has it, and how a call waits |
//! | `numbers` | numbers of descriptors: each is one of the kernel's as well |
//! | `sysctls` | knobs from a directory of files |
//! | `calls` | the functions of the table |
//! | `marshal` | C's addresses and vectors |
//! | [`preload`] | `close`, `getsockopt` and `sendfile` of the whole program, for what packetdrill does not route through the table |

pub mod abi;
mod calls;

mod flags;
mod machine;
mod marshal;
mod numbers;
mod plug;
pub mod preload;
mod sysctls;
