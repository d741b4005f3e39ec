//! A custom device: all that a stack requires of one, and the test of its contract. Two stacks communicate through it.
//!
//! Frames go through Heddle's channels, on which a receive thread can sleep. A device with another source of frames (a
//! tunnel, a simulator, a virtual machine) gives the sending end to the thread that reads them.
//!
//! ```text
//! cargo run --example channel_device
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::TrySendError;

use heddle::device::{
    Capabilities, Counters, Device, DropReason, FrameReceiver, FrameSender, Framing, MacAddr, PktBuf, QueuePair,
    TxQueue, channel,
};
use heddle::{Interface, Stack, TcpListener, TcpStream};

/// The longest packet in a frame.
const MTU: usize = 1500;

/// Frames that may be in transit in one direction.
const ROOM: usize = 256;

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
    let ((to_right, at_right), (to_left, at_left)) = (channel(ROOM), channel(ROOM));
    (ChannelDevice::new(1, to_right, at_left), ChannelDevice::new(2, to_left, at_right))
}

impl ChannelDevice {
    fn new(number: u8, sender: FrameSender, receiver: FrameReceiver) -> ChannelDevice {
        let address = MacAddr([2, 0, 0, 0, 0, number]);
        let counters = Arc::new(Counters::shared());
        let tx = Outgoing { sender, counters: counters.clone() };
        ChannelDevice {
            // Nothing can damage a frame in transit, so the receiver need not verify a checksum that the sender did not
            // compute.
            capabilities: Capabilities { tx_checksum: true, rx_checksum: true, ..Capabilities::ethernet(address, MTU) },
            counters,
            queues: Some(QueuePair { rx: Box::new(receiver), tx: Box::new(tx) }),
        }
    }
}

impl Device for ChannelDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        self.queues.take().into_iter().collect()
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.counters.clone())
    }
}

/// The transmit queue. The receive queue is the channel's end.
struct Outgoing {
    sender: FrameSender,
    counters: Arc<Counters>,
}

impl TxQueue for Outgoing {
    fn credit(&self) -> usize {
        self.sender.credit()
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        if frame.len() > MTU + Framing::Ethernet.header_len() {
            self.counters.count_drop(DropReason::FrameTooLong);
            return Ok(());
        }
        match self.sender.try_send(frame) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(frame)) => Err(frame),
            // If the other end is gone, the frame is lost, as on an unplugged cable.
            Err(TrySendError::Disconnected(_)) => {
                self.counters.count_drop(DropReason::InterfaceDown);
                Ok(())
            }
        }
    }

    fn flush(&mut self) {
        self.sender.flush();
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
