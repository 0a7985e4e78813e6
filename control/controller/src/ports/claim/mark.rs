//! Marks of devices: packet sockets, each bound to a device. Only a process with the capability `CAP_NET_RAW` in the
//! network namespace opens such a socket, so no other process can fake a mark.

use std::os::fd::OwnedFd;
use std::{fs, io};

use millrace_port::af_packet;

/// Protocol of marks: above the lengths of IEEE 802.3, and below the EtherTypes. So no frame has it.
const PROTOCOL: u16 = 0x05e1;
/// List of the packet sockets in the network namespace of the calling thread.
const SOCKETS: &str = "/proc/thread-self/net/packet";

/// Mark of a device. Dropping it removes the mark.
#[derive(Debug)]
pub(super) struct Mark {
    _socket: OwnedFd,
}

impl Mark {
    /// Marks the device with index `ifindex`. A device can have several marks.
    ///
    /// # Errors
    /// The device is gone, or the process may not open packet sockets.
    pub fn set(ifindex: u32) -> io::Result<Self> {
        Ok(Self { _socket: af_packet::open_bound(ifindex, PROTOCOL)? })
    }

    /// Returns the number of marks of the device with index `ifindex`.
    ///
    /// # Errors
    /// The kernel's list of packet sockets can't be read.
    pub fn count(ifindex: u32) -> io::Result<usize> {
        let sockets = fs::read_to_string(SOCKETS)?;
        Ok(sockets.lines().filter(|line| marked(line) == Some(ifindex)).count())
    }
}

/// Returns the device that the socket in a line marks; `None` for other sockets, and for the headings.
fn marked(line: &str) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(3);
    let protocol = u16::from_str_radix(fields.next()?, 16).ok()?;
    let device = fields.next()?.parse().ok()?;
    (protocol == PROTOCOL).then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_with_the_protocol_of_marks_mark_their_device() {
        let list = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                    0000000000000000 3      3    05e1   7     1 0      0      41177 \n\
                    0000000000000000 3      3    0003   8     1 0      0      41178 \n\
                    0000000000000000 3      3    05e1   -1    0 0      0      41179 \n";
        let devices: Vec<_> = list.lines().map(marked).collect();
        assert_eq!(devices, [None, Some(7), None, None]);
    }
}
