//! The place where handlers run, and the cost of an answer: under an architecture that declares *inside* an answer
//! joins the outbox of the event, so that it has not left when the callback returns from its send; under one that
//! declares *after*, a send is a send. Under all of them the answer carries the acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dev::{Capabilities, Device, QueuePair, TxQueue};
use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::Architecture;
use stack::socket::HandlersRun;
use testbed::frames::{self, Ends};
use testbed::node::{Node, NodeConfig};
use wire::tcp::TcpFlags;

use super::scene::{Log, Peer, Seen, seen, serve};

/// Counts the frames that the stack transmits.
struct Counting {
    inner: Box<dyn Device>,
    sent: Arc<AtomicUsize>,
}

impl Device for Counting {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let sent = self.sent.clone();
        let around =
            move |pair: QueuePair| QueuePair { tx: Box::new(CountingTx { tx: pair.tx, sent: sent.clone() }), ..pair };
        self.inner.take_queues().into_iter().map(around).collect()
    }
}

struct CountingTx {
    tx: Box<dyn TxQueue>,
    sent: Arc<AtomicUsize>,
}

impl TxQueue for CountingTx {
    fn credit(&self) -> usize {
        self.tx.credit()
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        self.tx.transmit(frame)?;
        self.sent.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn flush(&mut self) {
        self.tx.flush();
    }
}

#[every_arch]
fn an_answer_joins_the_outbox_where_the_architecture_declares_it(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let mut node =
            Node::with_device(NodeConfig::new(arch), move |inner| Box::new(Counting { inner, sent: counted }));
        node.exchange(&frames::arp_request());
        node.exchange(&frames::neighbour_solicitation());
        let log = Log::default();
        // Frames that were transmitted during the send.
        let during = Arc::new(AtomicUsize::new(usize::MAX));
        let (told, count) = (during.clone(), sent.clone());
        let _listener = serve(&node, &log, move |conn, seen| {
            if let Seen::Data(_) = seen {
                let before = count.load(Ordering::SeqCst);
                assert_eq!(conn.send(b"answer"), Ok(6));
                told.store(count.load(Ordering::SeqCst) - before, Ordering::SeqCst);
            }
        });
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        for _ in 0..4 {
            let before = sent.load(Ordering::SeqCst);
            let heard = peer.say(&mut node, TcpFlags::PSH, b"question");
            let [(header, data)] = &heard[..] else { panic!("one segment, and not {heard:?}") };
            assert_eq!(data, b"answer");
            assert_eq!(header.ack.0, frames::ISS.wrapping_add(peer.sent), "it acknowledges the question");
            assert_eq!(sent.load(Ordering::SeqCst) - before, 1, "one transmission");
            let expected = match arch.properties().handlers {
                HandlersRun::Inside => 0,
                HandlersRun::After => 1,
            };
            assert_eq!(during.load(Ordering::SeqCst), expected);
        }
        assert_eq!(seen(&log).len(), 5);
    }
}

/// Where no answer follows, the delayed acknowledgement still leaves, and so does the one for every second full segment.
#[every_arch]
fn what_is_not_answered_is_acknowledged(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, log) = (super::scene::node(arch), Log::default());
        let _listener = serve(&node, &log, |_, _| ());
        let (mut peer, _) = Peer::connect(&mut node, ends, 2000);
        assert!(peer.say(&mut node, TcpFlags::PSH, b"question").is_empty(), "an answer is expected");
        let heard = peer.wait(&mut node, std::time::Duration::from_millis(250));
        assert_eq!(
            heard.iter().map(|(header, _)| header.ack.0).collect::<Vec<_>>(),
            [frames::ISS.wrapping_add(peer.sent)]
        );
        let full = [0; 1400];
        let heard: Vec<_> = (0..4).flat_map(|_| peer.say(&mut node, TcpFlags::PSH, &full)).collect();
        assert!(heard.len() >= 2, "{heard:?}");
    }
}
