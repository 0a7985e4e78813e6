//! Reasons not to redirect flows to a device. The device may have a queueing discipline, which redirected
//! packets would bypass. Or the device's peer may accept only shorter packets than the port sends.

use crate::ports::device::KernelDevice;

/// Returns the reason why no offloaded flow leaves by a port with this queueing discipline, and the remedy.
pub(crate) fn why_bypassed(discipline: &str) -> String {
    format!(
        "the device has the queueing discipline {discipline} of the kernel, which packets of the router bypass: to shape and order \
         packets, use a scheduler of the router (`millrace scheduler`, [port.scheduler])"
    )
}

impl KernelDevice {
    /// Asks the kernel for the length of the longest packet that the peer device accepts. Returns whether the
    /// peer accepts packets of length `mtu`.
    pub fn fits_far_end(&mut self, mtu: u16) -> bool {
        self.short_of = self.programs.longest_at_far_end().filter(|longest| *longest < u32::from(mtu));
        self.short_of.is_none()
    }

    /// Returns the reason why no flows are redirected to the device, although the device accepts redirected
    /// frames. Returns `None` if flows are redirected.
    pub fn why_kept_up(&self) -> Option<String> {
        let short = |longest: u32| {
            format!(
                "the peer of the veth accepts packets of at most {longest} bytes, less than the port's MTU; a longer packet is lost, \
                 together with packets behind it: set the same MTU at both ends"
            )
        };
        self.queueing.as_deref().map(why_bypassed).or_else(|| self.short_of.map(short))
    }
}
