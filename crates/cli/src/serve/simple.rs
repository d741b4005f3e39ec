//! Echo, discard and character generator: the services of RFCs 862, 863 and 864, over TCP and UDP.

use std::io;
use std::sync::{Arc, LazyLock};

use heddle::tokio::{TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::consume_budget;

use super::totals::Totals;

/// Bytes read at a time; also the capacity of a pooled packet buffer.
const BUFFER: usize = 64 << 10;
/// Characters in a line of the generator, without its end (RFC 864's recommendation).
const LINE: usize = 72;
/// Characters of the largest datagram of the generator (RFC 864: a random number up to this).
const CHARGEN_DATAGRAM: usize = 512;
/// Ports of services that answer everything. An exchange with one of them would never end.
const ANSWERING: [u16; 4] = [7, 13, 17, 19];

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 862.
    Echo,
    /// RFC 863.
    Discard,
    /// RFC 864.
    Chargen,
}

impl Protocol {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Echo => "echo",
            Protocol::Discard => "discard",
            Protocol::Chargen => "chargen",
        }
    }

    /// Its well-known port.
    pub fn port(self) -> u16 {
        match self {
            Protocol::Echo => 7,
            Protocol::Discard => 9,
            Protocol::Chargen => 19,
        }
    }
}

/// Serves one connection to its end.
pub async fn connection(protocol: Protocol, stream: TcpStream, totals: Arc<Totals>) {
    let ended = match protocol {
        Protocol::Echo => echo(stream).await,
        Protocol::Discard => discard(stream).await,
        Protocol::Chargen => generate(stream).await,
    };
    if ended.is_err() {
        totals.broke();
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&buffer[..count]).await?;
        consume_budget().await;
    }
}

async fn discard(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        if stream.read(&mut buffer).await? == 0 {
            return Ok(());
        }
        consume_budget().await;
    }
}

async fn generate(mut stream: TcpStream) -> io::Result<()> {
    let mut at = 0;
    loop {
        let count = match stream.write(&PATTERN[at..]).await {
            Ok(count) => count,
            // The other end has ended the stream in the only possible way.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        at = (at + count) % PATTERN.len();
        consume_budget().await;
    }
}

/// The pattern of RFC 864: 72 of the 95 printable characters per line, each line starting one character later. A whole
/// number of its periods, so that it can be sent again and again.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let printing: Vec<u8> = (b' '..=b'~').collect();
    let mut pattern = Vec::new();
    for first in 0..printing.len() {
        pattern.extend((0..LINE).map(|column| printing[(first + column) % printing.len()]));
        pattern.extend_from_slice(b"\r\n");
    }
    pattern.repeat(BUFFER / pattern.len())
});

/// Answers datagrams until it is dropped.
pub async fn datagrams(protocol: Protocol, socket: UdpSocket, totals: Arc<Totals>) {
    let mut buffer = vec![0; BUFFER];
    let mut length = 0;
    loop {
        // An error here concerns an earlier answer that a client refused.
        let Ok((count, sender)) = socket.recv_from(&mut buffer).await else { continue };
        totals.datagram_in(count);
        consume_budget().await;
        if ANSWERING.contains(&sender.port()) {
            continue;
        }
        let answer = match protocol {
            Protocol::Echo => &buffer[..count],
            Protocol::Discard => continue,
            Protocol::Chargen => {
                length = (length + 211) % CHARGEN_DATAGRAM;
                &PATTERN[..=length]
            }
        };
        if let Ok(count) = socket.send_to(answer, sender).await {
            totals.datagram_out(count);
            totals.answered(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_the_one_of_rfc_864() {
        let text = std::str::from_utf8(&PATTERN).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert!(lines.iter().all(|line| line.len() == LINE));
        assert!(lines[0].starts_with(" !\"#$%&'()"));
        assert!(lines[1].starts_with("!\"#$%&'()"));
        assert_eq!(lines[0], lines[95], "a period is 95 lines");
        assert_eq!(lines.len() % 95, 0);
    }
}
