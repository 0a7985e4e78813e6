//! How an AF_XDP port is to be opened.

use millrace_wire::MacAddr;

use crate::PortError;

/// Whether the driver is to put frames into the packet memory itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bind {
    /// Without a copy where the driver can, else with one.
    #[default]
    Auto,
    /// Without a copy, or not at all.
    ZeroCopy,
    /// With a copy by the kernel: every driver can.
    Copy,
}

/// Where the XDP program that redirects to the sockets runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProgramMode {
    /// In the driver.
    #[default]
    Native,
    /// In the kernel's generic hook; sockets can then only copy.
    Generic,
}

/// Entries of the rings of each socket: powers of two, 64 to 32,768; 2,048 each by default.
///
/// Receive and fill ring bound what can arrive while the worker is elsewhere, and hold that many frames of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSizes {
    /// Pieces of frames that arrived and were not yet read.
    pub receive: u32,
    /// Pieces of frames to send.
    pub transmit: u32,
    /// Empty frames for what arrives.
    pub fill: u32,
    /// Frames that were sent.
    pub completion: u32,
}

impl Default for RingSizes {
    fn default() -> Self {
        Self { receive: 2048, transmit: 2048, fill: 2048, completion: 2048 }
    }
}

impl RingSizes {
    const MIN: u32 = 64;
    const MAX: u32 = 1 << 15;

    pub(super) fn check(&self, device: &str) -> Result<(), PortError> {
        let rings = [
            ("receive", self.receive),
            ("transmit", self.transmit),
            ("fill", self.fill),
            ("completion", self.completion),
        ];
        match rings.into_iter().find(|(_, size)| !Self::allows(*size)) {
            None => Ok(()),
            Some((ring, size)) => Err(PortError::RingSize {
                device: device.to_owned(),
                ring,
                size,
                min: Self::MIN,
                max: Self::MAX,
            }),
        }
    }

    fn allows(size: u32) -> bool {
        size.is_power_of_two() && (Self::MIN..=Self::MAX).contains(&size)
    }
}

/// Receiving by the worker's own system calls instead of interrupts (`SO_PREFER_BUSY_POLL`).
///
/// It pays where the card's interrupts would disturb the worker: one call per batch, no interrupts while it polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusyPoll {
    /// Microseconds that a call may wait for frames; 20 is usual.
    pub microseconds: u32,
    /// Frames per call, 1 to 65,535; 64 is usual.
    pub budget: u16,
}

/// How an AF_XDP port is to be opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device's name, for messages.
    pub device: String,
    /// The device's index in the calling thread's network namespace.
    pub ifindex: u32,
    /// The device's receive queues that this port reads; frames of others are not seen. Default: queue 0.
    pub queues: Vec<u32>,
    /// The device's MAC address.
    pub mac: MacAddr,
    /// The device's MTU: largest network-layer packet, in bytes.
    pub mtu: u16,
    /// Network-layer bytes of the segments that a super-frame (longer than the MTU) is cut into. Default: the MTU; the
    /// smallest MTU of all ports spares the sender a detour by "packet too big".
    pub segment_mtu: u16,
    /// Entries of the rings.
    pub rings: RingSizes,
    /// With or without a copy. Default: [`Bind::Auto`].
    pub bind: Bind,
    /// Whether packets may stand in several frames: needed when the MTU exceeds what one frame holds, 1,770 bytes with
    /// two VLAN tags. Needs Linux 6.6, and in the driver an XDP program with `xdp.frags`. Under a program in the generic
    /// hook it is always tried: hosts on virtual links send super-frames then. Default: as the MTU needs it.
    pub scatter: bool,
    /// Where the XDP program runs. Default: [`ProgramMode::Native`].
    pub program: ProgramMode,
    /// Why the program runs in no better mode, in words; for [`Capabilities::why`](crate::Capabilities::why).
    pub why: String,
    /// Whether transport checksums that the sender left to its card are completed: see
    /// [`partial_checksum`](crate::partial_checksum). Default: yes.
    pub partial_checksums: bool,
    /// Receiving by busy polling. Default: off.
    pub busy_poll: Option<BusyPoll>,
}

impl Options {
    /// The defaults for a device.
    pub fn new(device: impl Into<String>, ifindex: u32, mac: MacAddr, mtu: u16) -> Self {
        Self {
            device: device.into(),
            ifindex,
            queues: vec![0],
            mac,
            mtu,
            segment_mtu: mtu,
            rings: RingSizes::default(),
            bind: Bind::default(),
            scatter: mtu > super::SINGLE_FRAME_MTU,
            program: ProgramMode::default(),
            why: String::new(),
            partial_checksums: true,
            busy_poll: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_are_powers_of_two_in_range() {
        assert!(RingSizes::default().check("eth0").is_ok());
        for size in [0, 32, 1000, 1 << 16] {
            let sizes = RingSizes { transmit: size, ..RingSizes::default() };
            let message = sizes.check("eth0").unwrap_err().to_string();
            assert!(message.contains("eth0") && message.contains("transmit"), "{message}");
        }
    }
}
