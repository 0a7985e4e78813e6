//! Reasons against redirecting flows to a device: a queueing discipline that redirected packets would bypass,
//! and a far end that takes shorter packets than the port sends.

use crate::follow::kernel_queueing::why_passed_by;
use crate::ports::device::KernelDevice;

impl KernelDevice {
    /// Asks the kernel for the longest packet that the far end takes. Returns whether it takes all packets of
    /// a port with this MTU.
    pub fn fits_far_end(&mut self, mtu: u16) -> bool {
        self.short_of = self.programs.longest_at_far_end().filter(|longest| *longest < u32::from(mtu));
        self.short_of.is_none()
    }

    /// Returns the reason why no flows are redirected to the device although it takes redirected frames.
    pub fn why_kept_up(&self) -> Option<String> {
        let short = |longest: u32| {
            format!(
                "its other end takes packets of {longest} bytes at most, fewer than the port's MTU, and with a longer one loses those \
                 behind it: give both ends the same MTU"
            )
        };
        self.queueing.as_deref().map(why_passed_by).or_else(|| self.short_of.map(short))
    }
}
