//! Frames that are received, classified and passed on together, each with its headers.
//!
//! A vector is filled from one receive queue ([`Vector::receive`]), which locates the headers of each frame once;
//! consumers receive them with the frame. Filled and emptied by one thread; made once, and kept for its memory.

use dev::RxQueue;
use pktbuf::PktBuf;
use wire::{FlowMark, Framing, Headers};

/// Most frames in a vector: enough to amortise a clock read and a wake, few enough to stay in cache.
pub const VECTOR_LEN: usize = 64;

/// A frame with its parsed headers.
#[derive(Debug)]
pub struct Frame {
    /// The frame, from its first byte on. Its metadata have the hash of its flow, if the device computed one.
    pub buffer: PktBuf,
    /// Where its headers lie.
    pub headers: Headers,
    /// The next frame of the vector has data of the same TCP connection.
    pub followed: bool,
}

impl Frame {
    /// A frame that was not received from a device: reassembled from others, or made by a test.
    pub fn new(framing: Framing, buffer: PktBuf) -> Frame {
        let headers = Headers::of(framing, &buffer);
        Frame { buffer, headers, followed: false }
    }

    /// A copy in the heap; `None` if there is no buffer for one.
    pub fn duplicate(&self) -> Option<Frame> {
        Some(Frame { buffer: self.buffer.duplicate()?, headers: self.headers, followed: self.followed })
    }

    /// The frame as an `StackInput`, for this framing.
    #[inline]
    pub fn ingress(self, framing: Framing) -> StackInput {
        match framing {
            Framing::Ethernet => StackInput::Frame(self),
            Framing::Fddi => StackInput::Fddi(self),
            Framing::Packet => StackInput::Packet(self),
        }
    }
}

/// Input of a protocol stack, which may pass it to another thread unexamined.
#[derive(Debug)]
pub enum StackInput {
    /// A frame that begins at its Ethernet header.
    Frame(Frame),
    /// A frame that begins at its FDDI header.
    Fddi(Frame),
    /// A packet that begins at its network header: its link has no header.
    Packet(Frame),
}

impl StackInput {
    /// The frame that followed is not passed on.
    pub fn end_run(&mut self) {
        let (StackInput::Frame(frame) | StackInput::Fddi(frame) | StackInput::Packet(frame)) = self;
        frame.followed = false;
    }
}

/// The flow of a frame that is about to be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivingFlow {
    /// Its hash, as the device has computed it.
    pub hash: u32,
    /// The hash with the flow's ports, if it has any.
    pub mark: FlowMark,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Vector {
    frames: Vec<PktBuf>,
    headers: Vec<Headers>,
    /// A bit for each frame: [`Frame::followed`].
    followed: u64,
    framing: Framing,
    /// How many fewer than [`VECTOR_LEN`] are received at once.
    spared: usize,
}

const _: () = assert!(VECTOR_LEN <= u64::BITS as usize);

/// False: the device has computed the hashes of their flows, and they differ. Most neighbours in a vector of requests do.
#[inline(always)]
fn may_be_one_flow(a: &PktBuf, b: &PktBuf) -> bool {
    let (a, b) = (a.meta().flow_hash, b.meta().flow_hash);
    a == b || a.is_none() || b.is_none()
}

impl Vector {
    /// No frames, and memory for as many as there may be.
    pub fn new() -> Vector {
        let (frames, headers) = (Vec::with_capacity(VECTOR_LEN), Vec::with_capacity(VECTOR_LEN));
        Vector { frames, headers, followed: 0, framing: Framing::Ethernet, spared: 0 }
    }

    /// Receives no more than `most` frames at once from now on; a value outside 1 to [`VECTOR_LEN`] is clamped.
    pub fn limit(&mut self, most: usize) {
        self.spared = VECTOR_LEN - most.clamp(1, VECTOR_LEN);
    }

    /// The maximum number of frames that it receives at once.
    #[inline]
    pub fn most(&self) -> usize {
        VECTOR_LEN - self.spared
    }

    /// Fills an empty vector from a queue, without waiting, and returns the number of frames. `runs`: whether to find
    /// out which frames are followed.
    #[inline]
    pub fn receive(&mut self, queue: &mut dyn RxQueue, framing: Framing, runs: bool) -> usize {
        debug_assert!(self.frames.is_empty(), "a vector is emptied before it is filled again");
        self.framing = framing;
        let most = self.most();
        let count = queue.receive(&mut self.frames, most);
        self.find(framing, runs);
        count
    }

    /// Finds the headers of all frames.
    #[inline]
    fn find(&mut self, framing: Framing, runs: bool) {
        self.headers.clear();
        let frames = self.frames.iter();
        if framing == Framing::Ethernet {
            self.headers.extend(frames.map(|frame| Headers::of_frame(frame)));
        } else {
            self.headers.extend(frames.map(|frame| Headers::of(framing, frame)));
        }
        self.followed = if runs { self.runs() } else { 0 };
    }

    /// A bit for each frame that is followed by data of the same connection.
    #[inline]
    fn runs(&self) -> u64 {
        let (frames, headers) = (self.frames.windows(2), self.headers.windows(2));
        frames.zip(headers).enumerate().fold(0, |runs, (at, (frames, headers))| match (frames, headers) {
            ([frame, next], [of_frame, of_next]) if may_be_one_flow(frame, next) => {
                runs | u64::from(of_frame.continues(frame, (*of_next, next))) << at
            }
            _ => runs,
        })
    }

    /// Appends a frame. Its `followed` refers to the frame that is appended next.
    pub fn push(&mut self, Frame { buffer, headers, followed }: Frame) {
        let at = self.frames.len();
        debug_assert!(at < VECTOR_LEN, "a vector has at most {VECTOR_LEN} frames");
        if at == 0 {
            self.headers.clear();
            self.followed = 0;
        }
        self.followed |= u64::from(followed) << (at % VECTOR_LEN);
        self.frames.push(buffer);
        self.headers.push(headers);
    }

    /// The successor of the last frame is not appended, so that frame is not followed.
    pub fn interrupt(&mut self) {
        if let Some(last) = self.frames.len().checked_sub(1) {
            self.followed &= !(1 << (last % VECTOR_LEN));
        }
    }

    /// The framing of its frames.
    #[inline]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Sets the framing of the frames to be appended.
    pub fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Frames in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// The frames' flows, where the device has computed their hashes.
    #[inline]
    pub fn flows(&self) -> impl Iterator<Item = ArrivingFlow> {
        self.frames.iter().zip(&self.headers).filter_map(|(frame, headers)| {
            let hash = frame.meta().flow_hash?;
            Some(ArrivingFlow { hash, mark: FlowMark::new(hash, headers.ports(frame).unwrap_or_default()) })
        })
    }

    /// Whether no frame is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes the frames out, in the order in which they were received. Frames not taken are dropped.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Frame> {
        let mut followed = self.followed;
        self.frames.drain(..).zip(&self.headers).map(move |(buffer, headers)| {
            let frame = Frame { buffer, headers: *headers, followed: followed & 1 != 0 };
            followed >>= 1;
            frame
        })
    }

    /// Drops all frames.
    pub fn clear(&mut self) {
        self.frames.clear();
    }
}
