//! The name of a device's driver.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GDRVINFO: u32 = 3;

/// `struct ethtool_drvinfo` of <linux/ethtool.h>, as far as it matters.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// Asks the driver of `device` (in the calling thread's namespace) for its name; None when it keeps silent.
pub(crate) fn driver(device: &str) -> Option<String> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    let mut name = [0 as c_char; libc::IFNAMSIZ];
    if device.len() >= name.len() {
        return None;
    }
    name.iter_mut().zip(device.bytes()).for_each(|(to, from)| *to = from.cast_signed());
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut info).cast() },
    };
    // SAFETY: the request names a buffer of the size that this command fills; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    let length = info.driver.iter().position(|byte| *byte == 0)?;
    (result == 0).then(|| String::from_utf8_lossy(&info.driver[..length]).into_owned())
}
