//! A custom device over a pair of channels of the standard library: everything that a stack requires of a device, in
//! about a hundred lines. Two stacks communicate through it.
//!
//! ```text
//! cargo run --example channel_device
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use heddle::device::{
    Capabilities, Counters, Device, Framing, MacAddr, PktBuf, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake,
};
use heddle::{DropReason, Interface, Stack, TcpListener, TcpStream};

/// The longest packet in a frame.
const MTU: usize = 1500;

/// Frames that may be in transit in one direction.
const ROOM: usize = 256;

/// A message of a channel. A wake is sent by the receiver's own end.
enum Message {
    Frame(PktBuf),
    Wake,
}

/// One direction's sending end. The count bounds the channel, which itself does not.
#[derive(Clone)]
struct Line {
    sender: Sender<Message>,
    under_way: Arc<AtomicUsize>,
    /// A wake is pending. Wakes do not accumulate; their messages only end the sleep on the channel.
    woken: Arc<AtomicBool>,
}

/// One end of the link.
struct ChannelDevice {
    capabilities: Capabilities,
    /// Its drops, by reason.
    counters: Arc<Counters>,
    /// Taken by the stack.
    queues: Option<QueuePair>,
}

/// Two linked devices.
fn pair() -> (ChannelDevice, ChannelDevice) {
    let line = || {
        let (sender, receiver) = mpsc::channel();
        (Line { sender, under_way: Arc::default(), woken: Arc::default() }, receiver)
    };
    let ((to_right, at_right), (to_left, at_left)) = (line(), line());
    let device = |number, out: &Line, own: &Line, receiver| {
        let rx = Incoming { own: own.clone(), receiver, pending: VecDeque::new() };
        let counters = Arc::new(Counters::shared());
        let tx = Outgoing { line: out.clone(), counters: counters.clone() };
        ChannelDevice {
            capabilities: Capabilities {
                framing: Framing::Ethernet,
                mtu: MTU,
                mac: MacAddr([2, 0, 0, 0, 0, number]),
                queue_pairs: 1,
                // Nothing can damage a frame in transit, so the receiver need not verify a checksum that the sender did
                // not compute.
                tx_checksum: true,
                rx_checksum: true,
                segmentation: None,
                coalescing: false,
                rss_key: None,
                region: None,
            },
            counters,
            queues: Some(QueuePair { rx: Box::new(rx), tx: Box::new(tx) }),
        }
    };
    (device(1, &to_right, &to_left, at_left), device(2, &to_left, &to_right, at_right))
}

impl Device for ChannelDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        "channel"
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        self.queues.take().into_iter().collect()
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.counters.clone())
    }
}

struct Outgoing {
    line: Line,
    counters: Arc<Counters>,
}

impl TxQueue for Outgoing {
    fn credit(&self) -> usize {
        ROOM.saturating_sub(self.line.under_way.load(Ordering::Acquire))
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        if self.credit() == 0 {
            return Err(frame);
        }
        if frame.len() > MTU + Framing::Ethernet.header_len() {
            self.counters.drop_many(DropReason::FrameTooLong, 1);
            return Ok(());
        }
        self.line.under_way.fetch_add(1, Ordering::AcqRel);
        // If the other end is gone, the frame is lost, as on an unplugged cable.
        if self.line.sender.send(Message::Frame(frame)).is_err() {
            self.counters.drop_many(DropReason::InterfaceDown, 1);
        }
        Ok(())
    }

    /// A channel wakes its receiver with each frame.
    fn flush(&mut self) {}
}

struct Incoming {
    /// The line that ends here, for wakes and for the count.
    own: Line,
    receiver: Receiver<Message>,
    /// Frames that a wait found.
    pending: VecDeque<PktBuf>,
}

impl RxQueue for Incoming {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let before = batch.len();
        while batch.len() < before + max {
            let frame = match self.pending.pop_front() {
                Some(frame) => frame,
                None => match self.receiver.try_recv() {
                    Ok(Message::Frame(frame)) => frame,
                    // A wake received among frames ends the next wait.
                    Ok(Message::Wake) => continue,
                    Err(_) => break,
                },
            };
            self.own.under_way.fetch_sub(1, Ordering::AcqRel);
            batch.push(frame);
        }
        batch.len() - before
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        if !self.pending.is_empty() {
            return WaitOutcome::Ready;
        }
        while !self.own.woken.swap(false, Ordering::AcqRel) {
            match self.receiver.recv_timeout(timeout.unwrap_or(Duration::MAX)) {
                Ok(Message::Frame(frame)) => {
                    self.pending.push_back(frame);
                    return WaitOutcome::Ready;
                }
                // The flag says whether it has ended a wait before.
                Ok(Message::Wake) => {}
                // This end holds a sender for its wakes, so the channel never closes: a link whose other end is gone
                // is silent.
                Err(_) => return WaitOutcome::TimedOut,
            }
        }
        WaitOutcome::Woken
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(self.own.clone())
    }
}

impl Wake for Line {
    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            let _ = self.sender.send(Message::Wake);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (left, right) = pair();
    let server = Stack::builder().interface(Interface::new(left).address("10.0.0.1/24")?).build()?;
    let client = Stack::builder().interface(Interface::new(right).address("10.0.0.2/24")?).build()?;
    let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
    let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
    let (mut peer, from) = listener.accept()?;
    stream.write_all(b"across two channels")?;
    let mut came = [0; 19];
    peer.read_exact(&mut came)?;
    println!("{from} says {:?}", String::from_utf8_lossy(&came));
    Ok(())
}

#[cfg(test)]
mod tests {
    use heddle::device::conformance::Conformance;

    /// A complete test for any device: everything that a stack expects of one.
    #[test]
    fn the_device_keeps_the_contract() {
        Conformance::new(super::pair).check().unwrap();
    }
}
