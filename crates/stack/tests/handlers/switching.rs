//! The handlers of connections go along when the stack changes its architecture.

use every_arch::every_arch;
use stack::Architecture;
use testbed::frames::{self, Ends};
use wire::tcp::TcpFlags;

use super::scene::{Log, Peer, Seen, data_of, node, seen, serve};

#[every_arch]
fn a_handler_goes_along_with_its_connection(arch: Architecture) {
    for next in ["up", "connp-l:4", "squeue", "msgp:2"].map(Architecture::named) {
        for ends in Ends::BOTH_FAMILIES {
            let (mut node, log) = (node(arch), Log::default());
            let _listener = serve(&node, &log, |conn, seen| {
                if let Seen::Data(data) = seen {
                    let _ = conn.send(data);
                }
            });
            let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
            assert_eq!(data_of(&peer.say(&mut node, TcpFlags::PSH, b"one")), b"one");
            for (next, text) in [(next, b"two"), (arch, b"six")] {
                node.stack.switch(next).unwrap_or_else(|refused| panic!("{arch} to {next}: {refused}"));
                node.exchange(&frames::arp_request());
                node.exchange(&frames::neighbour_solicitation());
                assert_eq!(data_of(&peer.say(&mut node, TcpFlags::PSH, text)), text, "{arch} to {next}");
            }
            peer.say(&mut node, TcpFlags::RST, b"");
            let last = seen(&log).pop().expect("it was called");
            assert_eq!(last, (2000, Seen::Closed(Err(tcp::Error::Reset))), "{arch} by {next}");
        }
    }
}
