//! Device properties from ethtool: name of the driver, queues in use, VLAN offload, and link speed.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Flag of a device that removes VLAN tags from received frames.
const FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_drvinfo` of <linux/ethtool.h>, with the unused fields as one array.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_cmd`. Only the speed is used: in Mb/s, split into two halves.
#[repr(C)]
#[derive(Default)]
struct Settings {
    command: u32,
    modes: [u32; 2],
    speed: u16,
    ways: [u8; 6],
    limits: [u32; 2],
    speed_high: u16,
    rest: [u8; 14],
}

const _: () = assert!(size_of::<Settings>() == 44);

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`: maximum numbers of channels, then the numbers in use.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// Returns the driver name of `device` (in the calling thread's namespace); `None` if the driver reports
/// none.
pub(crate) fn driver(device: &str) -> Option<String> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    // SAFETY: this command fills a `struct ethtool_drvinfo`.
    unsafe { ask(device, (&raw mut info).cast())? };
    let length = info.driver.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(info.driver.get(..length)?).into_owned())
}

/// Returns the numbers of receive and transmit queues in use. The device may have more queues.
pub(crate) fn queues(device: &str) -> Option<(u32, u32)> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: this command fills a `struct ethtool_channels`.
    unsafe { ask(device, (&raw mut channels).cast())? };
    let [rx, tx] = [channels.rx, channels.tx].map(|own| own.saturating_add(channels.combined));
    (rx > 0).then_some((rx, tx))
}

/// Returns whether `device` (in the calling thread's namespace) removes VLAN tags before an XDP program sees
/// the frame. `None` if the driver does not report it.
#[must_use]
pub fn takes_tags_out(device: &str) -> Option<bool> {
    let mut value = Value { command: ETHTOOL_GFLAGS, data: 0 };
    // SAFETY: this command fills a `struct ethtool_value`.
    unsafe { ask(device, (&raw mut value).cast())? };
    Some(value.data & FLAG_RXVLAN != 0)
}

/// Returns the number of receive queues in use of `device` (in the calling thread's namespace); `None` if the
/// driver does not report it.
#[must_use]
pub fn receive_queues(device: &str) -> Option<u32> {
    queues(device).map(|(rx, _)| rx)
}

/// Returns the link speed of `device` (in the calling thread's namespace) in bits per second. `None` if the
/// driver does not report it, for instance without a carrier. A virtual device may report any speed.
#[must_use]
pub fn link_speed(device: &str) -> Option<u64> {
    let mut settings = Settings { command: ETHTOOL_GSET, ..Settings::default() };
    // SAFETY: this command fills a `struct ethtool_cmd`.
    unsafe { ask(device, (&raw mut settings).cast())? };
    let megabits = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
    (megabits != 0 && megabits != u32::MAX).then(|| u64::from(megabits) * 1_000_000)
}

/// # Safety
/// `buffer` must begin with an ethtool command and have the size of that command's structure.
unsafe fn ask(device: &str, buffer: *mut c_void) -> Option<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    let mut name = [0 as c_char; libc::IFNAMSIZ];
    if device.len() >= name.len() {
        return None;
    }
    name.iter_mut().zip(device.bytes()).for_each(|(to, from)| *to = from as c_char);
    let mut request =
        libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: buffer.cast() } };
    // SAFETY: the caller ensures that the request's buffer is valid; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    (result == 0).then_some(())
}
