//! Two handlers: one returns the data that it receives; two of the other, one at each of two connections, join the
//! connections.

#![allow(dead_code, reason = "each example uses its part")]

use std::collections::VecDeque;
use std::sync::mpsc::Sender;

use heddle::device::PktBuf;
use heddle::error::TcpError;
use heddle::handler::{Conn, Handler, HandlerMessage, HandlerRef};

/// Data that waits for room in the send buffer of a connection.
#[derive(Default)]
struct Backlog(VecDeque<PktBuf>);

impl Backlog {
    /// Sends as much as there is room for; true: all of it. A connection that has failed discards everything.
    fn flush(&mut self, conn: &mut Conn<'_>) -> bool {
        while let Some(buffer) = self.0.pop_front() {
            if let Ok(Some(rest)) = conn.send_buffer(buffer) {
                self.0.push_front(rest);
                return false;
            }
        }
        true
    }

    fn push(&mut self, buffer: PktBuf) {
        self.0.push_back(buffer);
    }
}

/// Returns the data that it receives, and accepts no more than it can return.
#[derive(Default)]
pub struct Echo {
    backlog: Backlog,
    ended: bool,
}

impl Echo {
    fn flush(&mut self, conn: &mut Conn<'_>) {
        match self.backlog.flush(conn) {
            true if self.ended => conn.close(),
            true => conn.resume(),
            false => conn.pause(),
        }
    }
}

impl Handler for Echo {
    fn on_data(&mut self, conn: &mut Conn<'_>, data: PktBuf) {
        self.backlog.push(data);
        self.flush(conn);
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) {
        self.ended = true;
        self.flush(conn);
    }

    fn on_writable(&mut self, conn: &mut Conn<'_>) {
        self.flush(conn);
    }
}

/// The messages between the handlers of two joined connections. They may be in different cells, on different threads.
enum Word {
    /// The connection to the server is open, and this is its name.
    Meet(HandlerRef),
    /// Data that has arrived there, to be sent here.
    Data(PktBuf),
    /// No more data comes from there.
    End,
    /// The send buffer there is full: read no more here.
    Full,
    /// There is room again.
    Room,
    /// The connection there is over; whether it failed.
    Gone(bool),
}

/// One side of a proxied connection: the other side sends the data that it receives.
pub struct Relay {
    other: Option<HandlerRef>,
    /// The channel by which a client's side requests a connection to the server: a handler must not open one itself.
    ask: Option<Sender<HandlerRef>>,
    backlog: Backlog,
    /// The other side was notified that the send buffer here is full.
    full: bool,
    /// The other side sends no more.
    ended: bool,
    /// The other side is over.
    alone: bool,
}

impl Relay {
    fn new(other: Option<HandlerRef>, ask: Option<Sender<HandlerRef>>) -> Relay {
        Relay { other, ask, backlog: Backlog::default(), full: false, ended: false, alone: false }
    }

    /// The side of a client, which has been accepted. It requests its server's side, with its own name.
    pub fn of_client(ask: Sender<HandlerRef>) -> Relay {
        Relay::new(None, Some(ask))
    }

    /// The server's side for this client's.
    pub fn of_server(client: HandlerRef) -> Relay {
        Relay::new(Some(client), None)
    }

    fn tell(&self, conn: &mut Conn<'_>, word: Word) {
        if let Some(other) = &self.other {
            conn.post(other, Box::new(word));
        }
    }

    /// Sends as much as there is room for, and then the end if it has arrived.
    fn flush(&mut self, conn: &mut Conn<'_>) {
        let empty = self.backlog.flush(conn);
        if self.full == empty {
            self.full = !empty;
            self.tell(conn, if empty { Word::Room } else { Word::Full });
        }
        if empty && self.ended {
            conn.shutdown_write();
        }
        if empty && self.alone {
            conn.close();
        }
    }
}

impl Handler for Relay {
    fn on_open(&mut self, conn: &mut Conn<'_>) {
        if let Some(ask) = &self.ask {
            // Nothing is read before there is a place to send it.
            conn.pause();
            if ask.send(conn.name()).is_err() {
                conn.abort();
            }
            return;
        }
        let name = conn.name();
        self.tell(conn, Word::Meet(name));
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, data: PktBuf) {
        self.tell(conn, Word::Data(data));
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) {
        self.tell(conn, Word::End);
    }

    fn on_writable(&mut self, conn: &mut Conn<'_>) {
        self.flush(conn);
    }

    fn on_message(&mut self, conn: &mut Conn<'_>, message: HandlerMessage) {
        let Ok(word) = message.downcast::<Word>() else { return };
        match *word {
            Word::Meet(name) => {
                self.other = Some(name);
                conn.resume();
            }
            Word::Data(data) => {
                self.backlog.push(data);
                self.flush(conn);
            }
            Word::End => {
                self.ended = true;
                self.flush(conn);
            }
            Word::Full => conn.pause(),
            Word::Room => conn.resume(),
            Word::Gone(true) => conn.abort(),
            Word::Gone(false) => {
                self.alone = true;
                self.flush(conn);
            }
        }
    }

    fn on_closed(&mut self, conn: &mut Conn<'_>, outcome: Result<(), TcpError>) {
        self.tell(conn, Word::Gone(outcome.is_err()));
    }
}
