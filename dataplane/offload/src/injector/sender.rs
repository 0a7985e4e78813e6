//! Batch sending: transmission of batches out of a device, without a socket.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::DevMap;
use aya::maps::xdp::XdpMapError;

use super::anchor::Anchor;
use super::frame_tape::FrameTape;
use super::live_run::MAX_FRAME;
use crate::bpf::object::{self, map_mut};
use crate::{InjectError, OffloadError};

/// Sender of frames out of a device that accepts redirected frames. It sends a batch with one system call.
/// The call lasts until the kernel has processed the batch; for a veth, that includes reception at its other
/// end.
#[derive(Debug)]
pub struct BatchSender {
    program: OwnedFd,
    tape: FrameTape,
    ifindex: u32,
    _anchor: Anchor,
    _object: Ebpf,
}

impl BatchSender {
    /// Length of the longest frame, in bytes.
    pub const LONGEST: usize = MAX_FRAME;

    /// Creates a sender for a device of the calling thread's namespace. Later calls need no privileges, but
    /// must come from that namespace.
    ///
    /// # Errors
    /// [`OffloadError`] without the privileges, before Linux 5.18, or when the device is gone.
    pub fn new(ifindex: u32) -> Result<Self, OffloadError> {
        let mut object = object::send()?;
        let devices = DevMap::try_from(map_mut(&mut object, "send_to")?);
        let set = devices.map_err(XdpMapError::from).and_then(|mut map| map.set(0, ifindex, None, 0));
        set.map_err(|error| OffloadError::Map { map: "send_to", detail: object::chain(&error) })?;
        let program = object::load(&mut object, "millrace_send")?;
        let anchor = Anchor::hold(program.as_fd())?;
        let tape = FrameTape::new(&mut object)?;
        Ok(Self { program, tape, ifindex, _anchor: anchor, _object: object })
    }

    /// Adds a frame of `length` bytes, given in pieces, to the batch. Returns whether the frame fits: a batch
    /// has at most 256 frames and 256 KiB, a frame 14 to 3,328 bytes.
    #[inline]
    pub fn put<'a>(&mut self, length: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> bool {
        self.tape.put(length, pieces)
    }

    /// Returns the number of frames in the current batch.
    pub fn len(&self) -> u32 {
        self.tape.len()
    }

    /// Returns whether the current batch has no frame.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends the batch and begins a new one. Returns the number of frames that the kernel took; they are the
    /// first of the batch. A device may still lose frames that the kernel took. A veth loses them silently
    /// when its other end is slower, or has neither an XDP program nor receive offload (GRO).
    ///
    /// # Errors
    /// [`InjectError::DeviceGone`], [`InjectError::Kernel`]: the kernel took no frame.
    pub fn send(&mut self) -> Result<u32, InjectError> {
        self.tape.run(self.program.as_fd(), self.ifindex)
    }
}
