//! The traits that a user of the library expects of its types, checked when this compiles, and the texts of errors.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::io;

use heddle::config::{CongestionControl, Profile};
use heddle::device::conformance::Conformance;
use heddle::device::{Capabilities, Device, FrameReceiver, FrameSender, PktBuf, QueuePair, channel};
use heddle::error::{ConnectRefused, ConnectionError, KnobError, SetKnobError, TcpError};
use heddle::{
    AcceptError, Architecture, BindError, BuildError, Builder, Connect, ConnectError, Counter, DropReason, Failure,
    Interface, LockKind, Polled, Poller, Readiness, RouteError, Stack, StackStats, StatusReport, TcpListener,
    TcpStream, UdpSocket, mem,
};

fn is_shared<T: Clone + Debug + Send + Sync + 'static>() {}
fn moves<T: Debug + Send + 'static>() {}
fn is_plain<T: Copy + Debug + Eq + Hash + Send + Sync + 'static>() {}
fn is_name<T: Copy + Display + Eq + Hash + std::str::FromStr<Err: Error + Send + Sync>>() {}
fn is_error<T: Error + Send + Sync + 'static>() {}
fn is_io_error<T: Error + Into<io::Error>>() {}

#[test]
fn types_have_the_traits_that_users_expect() {
    is_shared::<Stack>();
    is_shared::<TcpListener>();
    is_shared::<TcpStream>();
    is_shared::<UdpSocket>();
    is_shared::<Poller>();
    is_shared::<Connect<'static>>();
    is_shared::<Failure>();
    is_shared::<StackStats>();
    is_shared::<StatusReport>();
    is_shared::<Capabilities>();
    moves::<Builder>();
    moves::<Interface>();
    moves::<Polled>();
    moves::<QueuePair>();
    moves::<PktBuf>();
    moves::<FrameSender>();
    moves::<FrameReceiver>();
    moves::<Box<dyn Device>>();
    is_plain::<Architecture>();
    is_plain::<Counter>();
    is_plain::<DropReason>();
    is_plain::<Readiness>();
    is_name::<Architecture>();
    is_name::<LockKind>();
    is_name::<Profile>();
    is_name::<CongestionControl>();
    is_error::<AcceptError>();
    is_error::<BindError>();
    is_error::<BuildError>();
    is_error::<ConnectError>();
    is_error::<ConnectRefused>();
    is_error::<ConnectionError>();
    is_error::<RouteError>();
    is_error::<SetKnobError>();
    is_io_error::<AcceptError>();
    is_io_error::<BindError>();
    is_io_error::<ConnectError>();
}

#[test]
fn lists_are_slices_which_can_grow() {
    let kinds: &'static [LockKind] = LockKind::ALL;
    let profiles: &'static [Profile] = Profile::ALL;
    let algorithms: &'static [CongestionControl] = CongestionControl::ALL;
    assert!(kinds.contains(&LockKind::default()));
    assert!(profiles.contains(&Profile::default()) && algorithms.contains(&CongestionControl::default()));
}

/// An error either returns the error inside from `source` or prints it: these print it.
#[test]
fn a_message_is_complete_and_said_once() {
    let peer = "10.0.0.9:80".parse().unwrap();
    let knob = KnobError::Unknown { name: "tcp_sock".to_owned(), nearest: Some("tcp_sack") };
    let unknown = Stack::builder().architecture("none-such").build().expect_err("no such architecture");
    let errors: [(Box<dyn Error>, String); 6] = [
        (Box::new(unknown), "none-such".to_owned()),
        (Box::new(BuildError::from(knob.clone())), knob.to_string()),
        (Box::new(SetKnobError::Knob(knob.clone())), knob.to_string()),
        (Box::new(BuildError::Thread(io::Error::other("no memory"))), "no memory".to_owned()),
        (Box::new(ConnectError::Refused(peer, ConnectRefused::NoRoute)), ConnectRefused::NoRoute.to_string()),
        (Box::new(ConnectError::Failed(peer, TcpError::Reset)), TcpError::Reset.to_string()),
    ];
    for (error, inner) in errors {
        assert!(error.to_string().contains(&inner), "{error}");
        assert!(error.source().is_none(), "{error}");
    }
}

#[test]
fn values_show_what_they_are() {
    let (device, _other) = mem::pair(mem::MemConfig::default());
    let interface = Interface::new(device).address("10.0.0.1/24").unwrap();
    let stack = Stack::builder().interface(interface).build().unwrap();
    let (sender, receiver) = channel(8);
    let conformance = Conformance::new(|| mem::pair(mem::MemConfig::default()));
    for (shown, holds) in [
        (format!("{stack:?}"), "10.0.0.1"),
        (format!("{:?}", Stack::builder().architecture("giant")), "giant"),
        (format!("{:?}", Poller::new().unwrap()), "fd"),
        (format!("{sender:?} {receiver:?}"), "credit"),
        (format!("{conformance:?}"), "patience"),
    ] {
        assert!(shown.contains(holds), "{shown}");
    }
}
