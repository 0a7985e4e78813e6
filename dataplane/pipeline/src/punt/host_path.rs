//! Punting of frames to the kernel.

/// Path by which frames are punted to the kernel, as if their device had received them.
pub trait HostPath {
    /// Punts `frames` to the kernel as received from the device with kernel index `ifindex`. Returns the
    /// number of accepted frames. If the kernel refuses a frame, the implementation must go on with the next
    /// one.
    fn hand_back(&mut self, ifindex: u32, frames: &[&[u8]]) -> usize;
}

/// Host path of a router without kernel devices. It accepts no frame.
#[derive(Debug)]
pub struct NoHost;

impl HostPath for NoHost {
    fn hand_back(&mut self, _ifindex: u32, _frames: &[&[u8]]) -> usize {
        0
    }
}
