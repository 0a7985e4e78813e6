//! Punting of frames to the kernel.

/// Interface that punts frames to the kernel, as if their device had received them.
pub trait HostPath {
    /// Punts `frames` to the kernel as received from the device `ifindex`. Returns the number of accepted
    /// frames. The implementation must not stop at a frame that the kernel refuses.
    fn hand_back(&mut self, ifindex: u32, frames: &[&[u8]]) -> usize;
}

/// Host path of routers without kernel devices, which accepts no frame.
#[derive(Debug)]
pub struct NoHost;

impl HostPath for NoHost {
    fn hand_back(&mut self, _ifindex: u32, _frames: &[&[u8]]) -> usize {
        0
    }
}
