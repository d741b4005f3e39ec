//! Linux's error numbers.

use std::fmt;

/// An error number as Linux has it, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Errno = Errno(libc::$name);)*
        }

        const NAMES: &[(i32, &str)] = &[$((libc::$name, stringify!($name)),)*];
    };
}

errnos! {
    EPERM ENOENT EINTR EIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EINVAL EMFILE ENOTTY ESPIPE EPIPE EDOM ERANGE
    ENOMSG ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN
    ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTDOWN
    EHOSTUNREACH ENODEV EALREADY EINPROGRESS EMSGSIZE EDESTADDRREQ ENOTSOCK EPROTO EPROTOTYPE ESHUTDOWN EEXIST ELOOP
}

impl Errno {
    /// The name, as in `ECONNRESET`.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(number, _)| *number == self.0).map_or("an unnamed error", |(_, name)| name)
    }

    /// The error of this name.
    pub fn named(name: &str) -> Option<Errno> {
        // Two names that Linux gives to numbers that have another one.
        let name = match name {
            "EWOULDBLOCK" => "EAGAIN",
            "ENOTSUP" => "EOPNOTSUPP",
            other => other,
        };
        NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| Errno(*number))
    }
}

impl From<tcp::Error> for Errno {
    fn from(error: tcp::Error) -> Errno {
        match error {
            tcp::Error::Refused => Errno::ECONNREFUSED,
            tcp::Error::Reset => Errno::ECONNRESET,
            tcp::Error::TimedOut => Errno::ETIMEDOUT,
            tcp::Error::Aborted => Errno::ECONNABORTED,
            tcp::Error::HostUnreachable => Errno::EHOSTUNREACH,
            tcp::Error::NetworkUnreachable => Errno::ENETUNREACH,
            tcp::Error::NotConnected => Errno::ENOTCONN,
            tcp::Error::Shutdown => Errno::EPIPE,
            tcp::Error::WouldBlock => Errno::EAGAIN,
            tcp::Error::InvalidOption => Errno::EINVAL,
            tcp::Error::NoBuffer => Errno::ENOBUFS,
            _ => Errno::EIO,
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
