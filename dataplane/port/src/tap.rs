//! Port on a TAP device of its own: the port receives the frames that the kernel sends there, and the kernel
//! receives the frames that the port sends.

use std::fs;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsRawFd, RawFd};

use millrace_packet::{Batch, DropReason, Packet, Pool};
use millrace_units::Instant;
use millrace_wire::MacAddr;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::longest_frame::longest_frame;
use crate::{Capabilities, Mode, Port, PortCounters, PortError};

/// Longest name of a network device, in bytes.
const LONGEST_NAME: usize = 15;
/// Largest MTU that a TAP device accepts.
const LARGEST_MTU: u16 = 65_521;
/// Queue length, in frames, of a catcher: a TAP device that receives the output of another device.
const CATCHER_QUEUE: u32 = 4096;
/// Maximum number of memory frames of a packet that the port passes to the kernel without a copy.
const MOST_SLICES: usize = 64;

/// Port on a TAP device, which the port creates and which disappears with it.
///
/// The port is one end of a wire; the device is the kernel's end. The two ends have different MAC addresses.
/// Each packet costs a system call. The kernel completes checksums before a frame arrives, and leaves VLAN
/// tags in it.
///
/// The port drops packets for these reasons:
///
/// - [`LinkOversize`](DropReason::LinkOversize): beyond the MTU (with an Ethernet header and two VLAN tags),
///   in both directions.
/// - [`PortDown`](DropReason::PortDown): sent while the device is down or deleted.
/// - [`QueueFull`](DropReason::QueueFull): sent while the kernel cannot take it.
/// - [`ReceiveRingFull`](DropReason::ReceiveRingFull): lost by the kernel, because the port did not read it
///   in time.
pub struct Tap {
    device: SyncDevice,
    name: String,
    /// Buffer for one frame, plus one byte to detect longer frames.
    buffer: Box<[u8]>,
    /// Number of frames that the kernel lost before the port was opened.
    lost_before: u64,
    /// Number of frames that the kernel has lost between the opening of the port and the last query. The
    /// kernel can't be queried once the device is deleted.
    lost: u64,
    /// Source address of the frames to ignore, which are the kernel's own traffic on the device.
    passed_over: Option<MacAddr>,
    counters: PortCounters,
    capabilities: Capabilities,
}

impl Tap {
    /// Creates the TAP device `name` in the calling thread's network namespace, and sets the device up. `mtu`
    /// is in bytes of the network-layer packet, 68 to 65,521. The port's MAC address is derived from the
    /// name.
    ///
    /// # Errors
    /// [`PortError`] when the name is invalid, the process lacks CAP_NET_ADMIN, another process uses the
    /// device, or the kernel refuses for another reason.
    pub fn open(name: &str, mtu: u16) -> Result<Self, PortError> {
        check_name(name)?;
        let device = DeviceBuilder::new().name(name).layer(Layer::L2).mtu(mtu).build_sync();
        Self::with_device(name, mtu, device)
    }

    /// Creates a catcher: a TAP device for packets that the kernel sends out of another device, and that a
    /// program redirects to the TAP device. Frames may have any length: the kernel segments GSO packets and
    /// completes checksums on the way. The port ignores the kernel's own traffic on the TAP device (neighbour
    /// discovery), because no host is behind the device. The port sends nothing.
    pub fn open_catcher(name: &str) -> Result<Self, PortError> {
        check_name(name)?;
        let builder = DeviceBuilder::new().name(name).layer(Layer::L2).mtu(LARGEST_MTU).enable(false);
        let device = builder.tx_queue_len(CATCHER_QUEUE).build_sync();
        let mut catcher = Self::with_device(name, LARGEST_MTU, device)?;
        // Without IPv6 the kernel sends no frames of its own. If IPv6 can't be disabled, the port ignores
        // such frames.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let failed = |call| move |source| open_error(name, call, source);
        catcher.device.enabled(true).map_err(failed("setting the TAP device up"))?;
        let own = catcher.device.mac_address().map_err(failed("ioctl(SIOCGIFHWADDR)"))?;
        catcher.passed_over = Some(MacAddr(own));
        Ok(catcher)
    }

    fn with_device(name: &str, mtu: u16, device: io::Result<SyncDevice>) -> Result<Self, PortError> {
        let failed = |call| move |source| open_error(name, call, source);
        let device = device.map_err(failed("making the TAP device"))?;
        device.set_nonblocking(true).map_err(failed("fcntl(O_NONBLOCK)"))?;
        let ifindex = device.if_index().map_err(failed("if_nametoindex"))?;
        let kernel_mac = device.mac_address().map_err(failed("ioctl(SIOCGIFHWADDR)"))?;
        let mac = mac_of(name, MacAddr(kernel_mac));
        let (driver, mode, why, ifindex) = ("tap", Mode::Call, String::new(), Some(ifindex));
        Ok(Self {
            device,
            lost_before: lost_by_kernel(name).unwrap_or(0),
            lost: 0,
            passed_over: None,
            name: name.to_owned(),
            buffer: vec![0; longest_frame(mtu) + 1].into(),
            counters: PortCounters::default(),
            capabilities: Capabilities { driver, mode, why, mac, mtu, ifindex },
        })
    }

    /// Takes the first `length` bytes of the buffer as a frame that arrived.
    fn arrived(&mut self, pool: &Pool, length: usize, batch: &mut Batch) {
        const SOURCE: std::ops::Range<usize> = 6..12;
        if let Some(own) = self.passed_over
            && self.buffer.get(..length).and_then(|frame| frame.get(SOURCE)) == Some(&own.0[..])
        {
            return;
        }
        self.counters.received += 1;
        self.counters.received_bytes += length as u64;
        if length == self.buffer.len() {
            self.counters.drops.add(DropReason::LinkOversize, 1);
            return;
        }
        match pool.packet_from(self.buffer.get(..length).unwrap_or_default()) {
            // The caller ensures that `batch` has room.
            Some(packet) => drop(batch.push(packet)),
            None => self.counters.drops.add(DropReason::NoMemory, 1),
        }
    }

    fn send(&mut self, packet: &Packet) {
        let length = packet.len();
        if length >= self.buffer.len() {
            self.counters.drops.add(DropReason::LinkOversize, 1);
            return;
        }
        match self.write(packet) {
            Ok(_) => {
                self.counters.transmitted += 1;
                self.counters.transmitted_bytes += length as u64;
            }
            Err(error) => self.counters.drops.add(reason(&error), 1),
        }
    }

    fn write(&self, packet: &Packet) -> io::Result<usize> {
        if packet.is_linear() {
            return self.device.send(packet.data());
        }
        let mut slices = [IoSlice::new(&[]); MOST_SLICES];
        let mut count = 0;
        for frame in packet.frames() {
            let Some(slice) = slices.get_mut(count) else { return self.device.send(&packet.to_vec()) };
            *slice = IoSlice::new(frame);
            count += 1;
        }
        self.device.send_vectored(slices.get(..count).unwrap_or(&slices))
    }
}

impl Port for Tap {
    fn receive(&mut self, pool: &Pool, _now: Instant, batch: &mut Batch) {
        while batch.room() > 0 {
            // An error means that no frame waits or the device is gone, so no frame is lost.
            match self.device.recv(&mut self.buffer) {
                Ok(length) => self.arrived(pool, length, batch),
                Err(_) => return,
            }
        }
    }

    fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        for packet in batch.drain() {
            self.send(&packet);
        }
    }

    fn flush(&mut self, _pool: &Pool, _now: Instant) {}

    fn counters(&mut self) -> PortCounters {
        if let Some(lost) = lost_by_kernel(&self.name) {
            self.lost = lost.saturating_sub(self.lost_before);
        }
        let mut counters = self.counters.clone();
        counters.received += self.lost;
        counters.drops.add(DropReason::ReceiveRingFull, self.lost);
        counters
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.device.as_raw_fd())
    }
}

fn check_name(name: &str) -> Result<(), PortError> {
    let bad = |c: char| c.is_whitespace() || matches!(c, '/' | ':' | '%');
    if (1..=LONGEST_NAME).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(bad) {
        return Ok(());
    }
    Err(PortError::NotSupported {
        device: format!("\"{name}\""),
        what: "a TAP device of this name",
        instead: format!("give 1 to {LONGEST_NAME} bytes without spaces, slashes, colons and percent signs"),
    })
}

fn open_error(name: &str, call: &'static str, source: io::Error) -> PortError {
    let device = name.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            PortError::Permission { device, what: call, capability: "CAP_NET_ADMIN" }
        }
        Some(libc::EBUSY) => {
            let holder =
                "another program has this TAP device open; stop the program, or use another name".to_owned();
            PortError::Busy { device, holder }
        }
        Some(libc::EINVAL) if call.starts_with("making") => PortError::NotSupported {
            device,
            what: "TAP at this MTU",
            instead: "use a name that no other device has, and an MTU of 68 to 65521".to_owned(),
        },
        _ => PortError::Kernel { device, call, source },
    }
}

/// Returns the drop reason of a frame that the kernel refused.
fn reason(error: &io::Error) -> DropReason {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::WouldBlock, _) => DropReason::QueueFull,
        (_, Some(libc::EIO | libc::EBADFD)) => DropReason::PortDown,
        _ => DropReason::TransmitFailed,
    }
}

/// Returns a locally administered address derived from the name (its FNV-1a hash), different from the
/// kernel's address.
fn mac_of(name: &str, kernel: MacAddr) -> MacAddr {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [a, b, c, d, e, ..] = hash.to_be_bytes();
    let mac = MacAddr([0x02, a, b, c, d, e]);
    if mac == kernel { MacAddr([0x02, a, b, c, d, !e]) } else { mac }
}

/// Returns the number of frames that the kernel lost on the way to the port, since the device was created.
/// `None` when this thread's network namespace does not show the device.
fn lost_by_kernel(name: &str) -> Option<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    // Eight columns of the device's reception come first, then bytes, packets, errors and drops of its
    // transmission.
    line.split_whitespace().nth(8 + 3)?.parse().ok()
}

#[cfg(test)]
mod tests;
