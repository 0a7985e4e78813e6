//! What keeps flows that a device could send from being redirected to it: a queueing discipline that they would pass by, and another end
//! that takes shorter packets than the port sends.

use crate::device::KernelDevice;
use crate::kernel_queueing::why_passed_by;

impl KernelDevice {
    /// Asks the kernel how long a packet the other end takes. Returns whether it takes all that a port with this MTU sends.
    pub fn fits_far_end(&mut self, mtu: u16) -> bool {
        self.short_of = self.programs.longest_at_far_end().filter(|longest| *longest < u32::from(mtu));
        self.short_of.is_none()
    }

    /// Why nothing is to be redirected to it although it takes redirected frames.
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
