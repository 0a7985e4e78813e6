//! Sending and receiving of whole frames at a device.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::namespace::Namespace;

/// Size of the receive buffer in bytes.
const WAITING: usize = 16 << 20;

/// Socket that sends and receives whole Ethernet frames at a device (`packet(7)`). The kernel removes the
/// VLAN tag of received frames; this socket inserts it again.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
}

impl RawSocket {
    /// Opens a socket at a device of a namespace.
    ///
    /// # Panics
    /// No such device exists.
    pub fn open(namespace: &Namespace, device: &str) -> Self {
        let index = namespace.index_of(device);
        let opened = namespace.within(|| open(index));
        let socket = opened.unwrap_or_else(|error| panic!("raw socket at {device}: {error}"));
        Self { socket }
    }

    /// Sends a frame unchanged. Waits while the device's buffers are full.
    ///
    /// # Errors
    /// The device rejects the frame, for example as too short or too long.
    pub fn try_send(&self, frame: &[u8]) -> io::Result<()> {
        loop {
            // SAFETY: pointer and length come from a slice that outlives the call.
            let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR) => {
                    std::thread::sleep(Duration::from_micros(50));
                }
                _ => return Err(error),
            }
        }
    }

    /// Sends a frame unchanged.
    ///
    /// # Panics
    /// The device rejects the frame.
    pub fn send(&self, frame: &[u8]) {
        self.try_send(frame).unwrap_or_else(|error| panic!("send {} bytes: {error}", frame.len()));
    }

    /// Returns the first frame that `wanted` accepts; `None` if none arrives within `patience`. Skips frames
    /// that the device sent.
    pub fn receive(&self, patience: Duration, mut wanted: impl FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(frame) = receive(&self.socket).filter(|frame| wanted(frame)) {
                return Some(frame);
            }
        }
    }
}

fn open(index: u32) -> io::Result<OwnedFd> {
    let every = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: the call takes no pointers. Its result is checked before use.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, every.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // Request a large buffer, to hold frames until the test reads them.
    setsockopt(&socket, RcvBufForce, &WAITING).map_err(io::Error::from)?;
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int that outlives the call.
    let set = unsafe {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, (&raw const on).cast(), size)
    };
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = every;
    address.sll_ifindex = index as i32;
    // SAFETY: the address has the given size and outlives the call.
    let bound = unsafe {
        libc::bind(fd, (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    if set < 0 || bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// Receives the next frame; returns `None` for a frame that the device itself sent.
fn receive(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; 65_536];
    let mut control = [0_u64; 16];
    // SAFETY: all-zero bytes are valid for both structures.
    let (mut address, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    message.msg_name = (&raw mut address).cast();
    message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message points to buffers of the sizes that it states. All buffers outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).ok()?;
    if address.sll_pkttype == libc::PACKET_OUTGOING {
        return None;
    }
    bytes.truncate(length);
    if let Some((protocol, control)) = tag(&message)
        && bytes.len() >= 12
    {
        bytes.splice(12..12, [protocol.to_be_bytes(), control.to_be_bytes()].concat());
    }
    Some(bytes)
}

/// Returns the EtherType and the control field of the VLAN tag that the kernel removed from a frame.
fn tag(message: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: recvmsg has filled the message, and the message's control buffer still exists.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: a non-null header is inside the control buffer.
    let header_read = unsafe { header.as_ref() }?;
    if header_read.cmsg_level != libc::SOL_PACKET || header_read.cmsg_type != libc::PACKET_AUXDATA {
        return None;
    }
    // SAFETY: a control message of this kind holds a tpacket_auxdata; it may be unaligned, so it is read as
    // such.
    let data = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
    let has = |flag: u32| data.tp_status & flag != 0;
    let protocol = if has(libc::TP_STATUS_VLAN_TPID_VALID) { data.tp_vlan_tpid } else { 0x8100 };
    has(libc::TP_STATUS_VLAN_VALID).then_some((protocol, data.tp_vlan_tci))
}
