//! The way back to the kernel.

/// Gives the kernel frames as if its device had received them.
pub trait HostPath {
    /// Gives the kernel `frames` as received from the device `ifindex`; returns how many it took. A frame that it can't
    /// take keeps no other back.
    fn hand_back(&mut self, ifindex: u32, frames: &[&[u8]]) -> usize;
}

/// For routers without kernel devices: there is no way back, so nothing is taken.
#[derive(Debug)]
pub struct NoHost;

impl HostPath for NoHost {
    fn hand_back(&mut self, _ifindex: u32, _frames: &[&[u8]]) -> usize {
        0
    }
}
