//! Batches sent by a device without a socket.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::DevMap;
use aya::maps::xdp::XdpMapError;

use super::anchor::Anchor;
use super::frame_tape::FrameTape;
use super::live_run::MAX_FRAME;
use crate::object::map_mut;
use crate::{InjectError, OffloadError, object};

/// Sends frames out of a device that takes redirected ones, a batch with one system call, which lasts until the kernel has done with
/// them: for a veth, until its other end has received them.
#[derive(Debug)]
pub struct BatchSender {
    program: OwnedFd,
    tape: FrameTape,
    ifindex: u32,
    _anchor: Anchor,
    _object: Ebpf,
}

impl BatchSender {
    /// The longest frame, in bytes.
    pub const LONGEST: usize = MAX_FRAME;

    /// For a device of the calling thread's namespace. Nothing is asked for the sending itself but to be called in that namespace.
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

    /// Adds a frame of `length` bytes, given in pieces, to the batch. Returns whether it could: a batch has 256 frames and 256 KiB at
    /// most, a frame 14 to 3,328 bytes.
    #[inline]
    pub fn put<'a>(&mut self, length: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> bool {
        self.tape.put(length, pieces)
    }

    /// Frames in the batch.
    pub fn len(&self) -> u32 {
        self.tape.len()
    }

    /// Whether the batch has no frame.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends the batch, and begins a new one. Returns how many of its frames, from the first on, the kernel took. A device may still lose
    /// them: a veth does, silently, when its other end has neither an XDP program nor receive offload, or is slower.
    ///
    /// # Errors
    /// [`InjectError::DeviceGone`], [`InjectError::Kernel`]: none was taken.
    pub fn send(&mut self) -> Result<u32, InjectError> {
        self.tape.run(self.program.as_fd(), self.ifindex)
    }
}
