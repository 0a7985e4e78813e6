//! The two sockets of an AF_PACKET port: one for receiving, one for sending.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::options::Options;
use super::ring::{ReceiveRing, RingSize};
use crate::{PortError, socket_option};

/// Size in bytes of the receive buffer, which holds frames that do not fit a slot of the ring.
const RECEIVE_BUFFER: i32 = 16 << 20;
/// Size of the send buffer in bytes.
const SEND_BUFFER: i32 = 16 << 20;

/// Both sockets of a port, bound to its device, and the ring of the receiving socket.
#[derive(Debug)]
pub(super) struct Both {
    pub(super) receiver: OwnedFd,
    pub(super) sender: OwnedFd,
    ring: RingSize,
}

/// Creates both sockets with large buffers, configures and binds them. From then on the ring collects frames.
pub(super) fn create_both(options: &Options) -> Result<Both, PortError> {
    let failed = |error| explain(options, "socket(AF_PACKET)", error);
    let [receiver, sender] = [create().map_err(failed)?, create().map_err(failed)?];
    // Frames longer than a slot wait in the socket's queue, whose capacity the buffer size limits.
    for (fd, name, bytes) in
        [(&receiver, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER), (&sender, libc::SO_SNDBUFFORCE, SEND_BUFFER)]
    {
        // Without CAP_NET_ADMIN the kernel may refuse the size; the port works nevertheless.
        let _ = socket_option::set(fd.as_fd(), libc::SOL_SOCKET, name, &bytes);
    }
    let ring = bind_receiver(receiver.as_fd(), options)?;
    bind_sender(sender.as_fd(), options)?;
    Ok(Both { receiver, sender, ring })
}

impl Both {
    /// Maps the ring of the receiving socket.
    pub(super) fn map_ring(&self, options: &Options) -> Result<ReceiveRing, PortError> {
        ReceiveRing::map(self.receiver.as_fd(), self.ring)
            .map_err(|error| explain(options, "mapping the receive ring", error))
    }
}

/// Configures and binds the receiving socket. From then on its ring collects frames.
fn bind_receiver(fd: BorrowedFd<'_>, options: &Options) -> Result<RingSize, PortError> {
    let explain = |call| move |error| explain(options, call, error);
    let set = |level, name, value: i32| socket_option::set(fd, level, name, &value);
    set(libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)
        .map_err(explain("PACKET_VERSION"))?;
    set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).map_err(explain("PACKET_VNET_HDR"))?;
    set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1).map_err(explain("PACKET_IGNORE_OUTGOING"))?;
    set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1).map_err(explain("PACKET_COPY_THRESH"))?;
    if let Some(filter) = &options.filter {
        set(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, filter.as_raw_fd()).map_err(explain("SO_ATTACH_BPF"))?;
    }
    let frame = usize::from(options.mtu) + super::MAX_LINK_HEADER;
    let ring = RingSize::set(fd, options.ring_size, frame).map_err(explain("the receive ring"))?;
    // Binding comes last, because frames may arrive only after all options are set.
    bind(fd, options.ifindex, libc::ETH_P_ALL as u16).map_err(explain("bind"))?;
    Ok(ring)
}

/// Configures and binds the sending socket. The socket is bound to no protocol, so it receives nothing.
fn bind_sender(fd: BorrowedFd<'_>, options: &Options) -> Result<(), PortError> {
    let explain = |call| move |error| explain(options, call, error);
    // The bypass skips tcx egress as well. Otherwise the program there would redirect the router's frames as
    // host output.
    socket_option::set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)
        .map_err(explain("PACKET_QDISC_BYPASS"))?;
    bind(fd, options.ifindex, 0).map_err(explain("bind"))
}

/// Opens a packet socket, and binds it to a device and a protocol. It gets the device's frames of this protocol.
///
/// # Errors
/// The device is gone, or the process lacks the capability `CAP_NET_RAW`.
pub fn open_bound(ifindex: u32, protocol: u16) -> io::Result<OwnedFd> {
    let socket = create()?;
    bind(socket.as_fd(), ifindex, protocol)?;
    Ok(socket)
}

fn create() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just created, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bind(fd: BorrowedFd<'_>, ifindex: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: ifindex as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let pointer: *const libc::sockaddr_ll = &address;
    // SAFETY: `address` is readable for the given size.
    let answer = unsafe { libc::bind(fd.as_raw_fd(), pointer.cast(), size_of::<libc::sockaddr_ll>() as u32) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a frame, preceded by its virtio header, from the receiving socket's queue into `into`. Returns the
/// number of bytes read; 0 without a frame.
pub(super) fn read_copy(fd: BorrowedFd<'_>, into: &mut [u8]) -> usize {
    let mut read = || {
        // SAFETY: `into` is writable for its length.
        unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) }
    };
    // An earlier error of the socket, such as that of a link that was down, comes before the frames, and once.
    usize::try_from(read()).or_else(|_| usize::try_from(read())).unwrap_or(0)
}

fn explain(options: &Options, call: &'static str, source: io::Error) -> PortError {
    let device = options.device.clone();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            PortError::Permission { device, what: "an AF_PACKET socket", capability: "CAP_NET_RAW" }
        }
        Some(libc::ENODEV | libc::ENXIO) => PortError::UnknownDevice { device },
        Some(libc::ENETDOWN) => PortError::DeviceDown { device },
        Some(libc::ENOMEM | libc::ENOBUFS) => PortError::Memory { device, what: call, source },
        _ => PortError::Kernel { device, call, source },
    }
}
