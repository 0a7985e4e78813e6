//! Options of an AF_XDP port.

use millrace_wire::MacAddr;

use crate::PortError;

/// Requested transfer mode: copy or zero-copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bind {
    /// Zero-copy if the driver supports it, otherwise copy mode.
    #[default]
    Auto,
    /// Zero-copy; an error if the driver doesn't support it.
    ZeroCopy,
    /// Copy by the kernel, which every driver supports.
    Copy,
}

/// Mode of the XDP program that redirects frames to the sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProgramMode {
    /// In the driver.
    #[default]
    Native,
    /// In the kernel's generic hook; sockets can then only use copy mode.
    Generic,
}

/// Number of entries of each socket's rings: powers of two, 64 to 32,768; 2,048 each by default.
///
/// The receive ring and the fill ring limit the number of frames that can arrive while the worker is busy.
/// Each entry of the fill ring holds a memory frame of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSizes {
    /// Entries for received pieces of frames that the port has not read yet.
    pub receive: u32,
    /// Entries for pieces of frames to send.
    pub transmit: u32,
    /// Entries for empty memory frames, for reception.
    pub fill: u32,
    /// Entries for memory frames that have been sent.
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

/// Busy polling: the worker's own system calls drive reception instead of interrupts (`SO_PREFER_BUSY_POLL`).
///
/// Busy polling costs one system call per batch, and avoids interrupts while the worker polls. So it pays if
/// the NIC's interrupts would disturb the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusyPoll {
    /// Maximum time for which a call polls the device, in microseconds; 20 is usual.
    pub microseconds: u32,
    /// Maximum number of frames per call, 1 to 65,535; 64 is usual.
    pub budget: u16,
}

/// Options of an AF_XDP port.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the device, for messages.
    pub device: String,
    /// Index of the device in the calling thread's network namespace.
    pub ifindex: u32,
    /// Receive queues of the device that this port reads. The port does not see frames of other queues.
    /// Default: queue 0.
    pub queues: Vec<u32>,
    /// MAC address of the device.
    pub mac: MacAddr,
    /// MTU of the device: largest network-layer packet, in bytes.
    pub mtu: u16,
    /// Maximum length of the segments of a GSO packet (a frame longer than the MTU), in network-layer bytes.
    /// Default: the MTU. If this is the smallest MTU of all ports, senders get no "packet too big" errors.
    pub segment_mtu: u16,
    /// Numbers of ring entries of each socket.
    pub rings: RingSizes,
    /// Copy or zero-copy mode. Default: [`Bind::Auto`].
    pub bind: Bind,
    /// Whether packets may consist of several memory frames. An MTU above the capacity of one memory frame
    /// (1,770 bytes with two VLAN tags) needs this. It requires Linux 6.6, and in native mode an XDP program
    /// with `xdp.frags`. If the program runs in the generic hook, the port always tries to use several memory
    /// frames, because hosts on virtual links then send GSO packets. Default: yes if the MTU needs it.
    pub scatter: bool,
    /// Mode of the XDP program. Default: [`ProgramMode::Native`].
    pub program: ProgramMode,
    /// Reason why the XDP program runs in no better mode, for
    /// [`Capabilities::why`](crate::Capabilities::why).
    pub why: String,
    /// Whether the port completes partial transport checksums: see
    /// [`partial_checksum`](crate::partial_checksum). Default: yes.
    pub partial_checksums: bool,
    /// Busy polling. Default: off.
    pub busy_poll: Option<BusyPoll>,
}

impl Options {
    /// Returns the default options for a device.
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
