//! The content of a response: text in memory, or a file read piece by piece into memory that the stack can share.
//!
//! The stack limits the memory of its buffers, and a piece counts there only with the part that waits to be sent. So
//! this file limits its pieces itself: the more connections have some, the shorter they are ([`PieceLimit`]). A failed
//! allocation would end the process with all its connections.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Frame, SizeHint};
use sync::{Platform, Real};

/// Bytes of a file that are read at a time if memory allows: enough to keep a connection busy while the next piece is
/// read.
const PIECE: u64 = 256 << 10;
/// Bytes that are read at a time in any case.
const LEAST_PIECE: u64 = 4 << 10;
/// Pieces of one connection that the stack's account omits at most: one that the connection has not taken completely,
/// one that is not acknowledged completely, and one being read.
const PIECES: u64 = 3;
/// The first connections share this part of the memory that the process may use.
const SHARE: u64 = 16;
/// Pieces shorter than this are copied: sharing costs as much as copying some kilobytes.
const SHARED_LEAST: usize = 8 << 10;

/// The content of a response.
pub type Body = Either<Full<Bytes>, FileBody>;

/// How long a piece may be, for all connections of a service.
///
/// With n connections a new piece has a share of 1/n, so all pieces that n connections hold, each read when there were
/// fewer of them, take about (1 + ln n) times the memory that the first of them had, and [`LEAST_PIECE`]s.
#[derive(Debug)]
pub struct PieceLimit {
    memory: AtomicU64,
    /// Connections that have read a piece.
    connections: AtomicU64,
}

impl PieceLimit {
    /// The limit for the memory that this process may use.
    pub fn of_process() -> Arc<PieceLimit> {
        PieceLimit::new(Real::memory().unwrap_or(u64::MAX))
    }

    /// The limit for a process with this many bytes of memory.
    fn new(memory: u64) -> Arc<PieceLimit> {
        Arc::new(PieceLimit { memory: AtomicU64::new(memory), connections: AtomicU64::new(0) })
    }

    /// Limits pieces from now on as in a process with at most this many bytes of memory.
    pub fn lower(&self, memory: u64) {
        self.memory.fetch_min(memory, Ordering::Relaxed);
    }

    fn length(&self) -> u64 {
        let connections = self.connections.load(Ordering::Relaxed).max(1);
        (self.memory.load(Ordering::Relaxed) / SHARE / PIECES / connections).clamp(LEAST_PIECE, PIECE)
    }
}

/// Pieces of files on their way through hyper to the connection, oldest first.
///
/// hyper passes on bytes, not their owner. The connection finds the owner here by the address of the bytes, which is
/// unique as long as the piece is in the list.
#[derive(Clone, Debug)]
pub struct SharedPieces {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pieces: Mutex<VecDeque<Arc<[u8]>>>,
    limit: Arc<PieceLimit>,
    /// The connection is among those that `limit` counts.
    counted: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if *self.counted.get_mut() {
            self.limit.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl SharedPieces {
    /// For one connection.
    pub fn new(limit: &Arc<PieceLimit>) -> SharedPieces {
        let counted = AtomicBool::new(false);
        SharedPieces { inner: Arc::new(Inner { pieces: Mutex::default(), limit: limit.clone(), counted }) }
    }

    fn pieces(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<[u8]>>> {
        // The data under this lock is always consistent.
        self.inner.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the next piece may be.
    fn length(&self) -> u64 {
        if !self.inner.counted.swap(true, Ordering::Relaxed) {
            self.inner.limit.connections.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.limit.length()
    }

    fn push(&self, piece: Arc<[u8]>) {
        self.pieces().push_back(piece);
    }

    /// The piece that contains `bytes`, and their offset in it.
    pub fn find(&self, bytes: &[u8]) -> Option<(Arc<[u8]>, usize)> {
        let address = bytes.as_ptr() as usize;
        self.pieces().iter().find_map(|piece| {
            let start = address.checked_sub(piece.as_ptr() as usize)?;
            (start + bytes.len() <= piece.len()).then(|| (piece.clone(), start))
        })
    }

    /// `bytes` were sent. If they were the last of their piece, it and those before it are removed.
    pub fn sent(&self, bytes: &[u8]) {
        let end = bytes.as_ptr_range().end;
        let mut pieces = self.pieces();
        if let Some(index) = pieces.iter().position(|piece| piece.as_ptr_range().end == end) {
            pieces.drain(..=index);
        }
    }
}

/// Part of a file.
#[derive(Debug)]
pub struct FileBody {
    file: File,
    at: u64,
    end: u64,
    pieces: SharedPieces,
}

impl FileBody {
    /// The bytes of `file` from `start` to before `end`.
    pub fn new(file: File, start: u64, end: u64, pieces: SharedPieces) -> FileBody {
        FileBody { file, at: start, end, pieces }
    }

    fn read(&mut self) -> io::Result<Bytes> {
        let length = (self.end - self.at).min(self.pieces.length()) as usize;
        // Allocated in place: a vector would have to be copied into shared memory.
        let mut piece: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
        let bytes =
            Arc::get_mut(&mut piece).ok_or_else(|| io::Error::other("memory that is shared before it is filled"))?;
        self.file.read_exact_at(bytes, self.at)?;
        self.at += length as u64;
        if length >= SHARED_LEAST {
            self.pieces.push(piece.clone());
        }
        Ok(Bytes::from_owner(piece))
    }
}

impl hyper::body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(self.read().map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of one connection, in a process with this many bytes of memory.
    fn pieces(memory: u64) -> SharedPieces {
        SharedPieces::new(&PieceLimit::new(memory))
    }

    /// Each of many connections has as many pieces as a slow reader can pin.
    #[test]
    fn pieces_of_many_connections_take_a_part_of_the_memory() {
        const MEMORY: u64 = 128 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * PIECE).unwrap();
        let limit = PieceLimit::new(MEMORY);
        let mut taken = 0;
        // Not the bodies: a process may have fewer descriptors.
        let mut connections = Vec::new();
        for connection in 0..1500 {
            let pieces = SharedPieces::new(&limit);
            let mut body = FileBody::new(file.try_clone().unwrap(), 0, 4 * PIECE, pieces.clone());
            taken += (0..PIECES).map(|_| body.read().unwrap().len() as u64).sum::<u64>();
            assert!(taken <= MEMORY / 2, "{taken} bytes for {connection} connections");
            connections.push(pieces);
        }
        assert_eq!(limit.length(), LEAST_PIECE);
        drop(connections);
        assert_eq!(limit.length(), PIECE, "a connection that has ended has no share");
    }

    #[test]
    fn a_limit_is_lowered_and_never_raised() {
        let limit = PieceLimit::new(64 << 20);
        assert_eq!(limit.length(), PIECE);
        limit.lower(1 << 20);
        assert_eq!(limit.length(), (1 << 20) / SHARE / PIECES);
        limit.lower(64 << 20);
        assert_eq!(limit.length(), (1 << 20) / SHARE / PIECES);
    }

    #[test]
    fn a_piece_is_found_by_any_part_of_it_until_its_end_was_sent() {
        let pieces = pieces(u64::MAX);
        let (first, second): (Arc<[u8]>, Arc<[u8]>) = ([1; 100].into(), [2; 50].into());
        pieces.push(first.clone());
        pieces.push(second.clone());
        let (owner, start) = pieces.find(&first[40..60]).unwrap();
        assert!(Arc::ptr_eq(&owner, &first) && start == 40);
        assert!(pieces.find(&[0; 10]).is_none(), "other memory");
        pieces.sent(&first[..99]);
        assert!(pieces.find(&first[99..]).is_some());
        pieces.sent(&first[99..]);
        assert!(pieces.find(&first).is_none());
        assert!(pieces.find(&second[49..]).is_some());
    }

    #[test]
    fn a_file_that_shrinks_is_an_error_and_not_a_short_response() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10).unwrap();
        let mut body = FileBody::new(file, 0, 11, pieces(u64::MAX));
        assert_eq!(body.read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_range_is_read_piece_by_piece() {
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..PIECE as u32 * 2).map(|n| n as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        let mut body = FileBody::new(file, 5, PIECE + 105, pieces(u64::MAX));
        assert_eq!(body.read().unwrap(), content[5..PIECE as usize + 5]);
        assert_eq!(body.read().unwrap(), content[PIECE as usize + 5..PIECE as usize + 105]);
        assert!(hyper::body::Body::is_end_stream(&body));
    }
}
