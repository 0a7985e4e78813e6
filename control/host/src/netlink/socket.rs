//! Netlink sockets, and parsing of received buffers.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::{Socket as RawSocket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use super::request::Request;
use crate::HostError;

const ANSWER_SECONDS: u64 = 10;
/// Size of the receive buffer; the kernel fills at most 32 KiB per read of a dump.
const BUFFER: usize = 64 << 10;

const NOOP: u16 = libc::NLMSG_NOOP as u16;
const ERROR: u16 = libc::NLMSG_ERROR as u16;
const DONE: u16 = libc::NLMSG_DONE as u16;
const DUMP_INTERRUPTED: u16 = libc::NLM_F_DUMP_INTR as u16;

/// One message of a received buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received<'a> {
    /// A notification or an entry of a dump.
    Message { kind: u16, flags: u16, payload: &'a [u8] },
    /// End of a dump, or acknowledgement, with the error number; 0 for success.
    End { errno: i32 },
}

/// Message with the sequence number and port of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'a> {
    pub sequence: u32,
    pub port: u32,
    /// Whether a change interrupted the dump, so that it may have skipped entries.
    pub interrupted: bool,
    pub content: Received<'a>,
}

/// Splits a received buffer into its messages; ends at the first malformed message.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Envelope<'_>> {
    std::iter::from_fn(move || {
        loop {
            let message = NetlinkBuffer::new_checked(bytes).ok()?;
            let length = message.length() as usize;
            let (whole, rest) = bytes.split_at(length);
            bytes = rest.get(length.next_multiple_of(4) - length..).unwrap_or_default();
            if message.message_type() == NOOP {
                continue;
            }
            return Some(Envelope {
                sequence: message.sequence_number(),
                port: message.port_number(),
                interrupted: message.flags() & DUMP_INTERRUPTED != 0,
                content: content(message.message_type(), message.flags(), &whole[16..]),
            });
        }
    })
}

fn content(kind: u16, flags: u16, payload: &[u8]) -> Received<'_> {
    match kind {
        ERROR | DONE => {
            let code = super::attribute::word(payload, 0).unwrap_or(0) as i32;
            Received::End { errno: code.saturating_neg() }
        }
        _ => Received::Message { kind, flags, payload },
    }
}

/// Bound netlink socket, connected to the kernel.
#[derive(Debug)]
pub(crate) struct Socket {
    raw: RawSocket,
    /// Port number of this socket. The kernel's answers carry it, notifications don't.
    pub port: u32,
    sequence: u32,
}

impl Socket {
    /// Opens a blocking socket in the calling thread's network namespace; the receive timeout is 10 s.
    pub fn open(protocol: isize) -> Result<Self, HostError> {
        let socket = Self::open_raw(protocol)?;
        let timeout = TimeVal::new(ANSWER_SECONDS as i64, 0);
        setsockopt(&socket.raw, sockopt::ReceiveTimeout, &timeout)
            .map_err(|errno| failed("setting the receive timeout", errno.into()))?;
        Ok(socket)
    }

    /// Opens a non-blocking socket for an event loop.
    pub fn open_nonblocking(protocol: isize) -> Result<Self, HostError> {
        let socket = Self::open_raw(protocol)?;
        let set = socket.raw.set_non_blocking(true);
        set.map_err(|error| failed("setting the socket non-blocking", error))?;
        Ok(socket)
    }

    fn open_raw(protocol: isize) -> Result<Self, HostError> {
        let mut raw = RawSocket::new(protocol).map_err(|error| failed("opening the socket", error))?;
        let address = raw.bind_auto().map_err(|error| failed("binding the socket", error))?;
        raw.connect(&SocketAddr::new(0, 0)).map_err(|error| failed("connecting to the kernel", error))?;
        // The kernel applies the filters of dump requests only with strict checking. Old kernels have neither
        // filters nor strict checking.
        let _ = raw.set_netlink_get_strict_chk(true);
        // Lets the kernel omit the copy of the request in acknowledgements.
        let _ = raw.set_cap_ack(true);
        Ok(Self { raw, port: address.port_number(), sequence: 0 })
    }

    /// Sets the size of the receive buffer. Exceeds the system's limit if the process is permitted to.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<(), HostError> {
        if setsockopt(&self.raw, sockopt::RcvBufForce, &bytes).is_ok() {
            return Ok(());
        }
        setsockopt(&self.raw, sockopt::RcvBuf, &bytes)
            .map_err(|errno| failed("setting the receive buffer", errno.into()))
    }

    /// Subscribes to a multicast group; a group unknown to the kernel is no error.
    pub fn subscribe(&mut self, group: u32) -> Result<(), HostError> {
        match self.raw.add_membership(group) {
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err(failed("subscribing", error)),
            _ => Ok(()),
        }
    }

    /// Sends a request; returns its sequence number.
    pub fn send(&mut self, request: Request) -> Result<u32, HostError> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let bytes = request.finish(self.sequence);
        self.raw.send(&bytes, 0).map_err(|error| failed("sending a request", error))?;
        Ok(self.sequence)
    }

    /// Receives once into `buffer`, after clearing it.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        buffer.reserve(BUFFER);
        self.raw.recv(buffer, 0).map(drop)
    }

    /// Sends a request and waits for its acknowledgement.
    pub fn request(&mut self, request: Request, what: impl FnOnce() -> String) -> Result<(), HostError> {
        self.exchange(request, what, |_, _| {})
    }

    /// Sends a list request and passes the type and payload of each entry to `each`.
    pub fn dump(
        &mut self,
        request: Request,
        what: &str,
        each: impl FnMut(u16, &[u8]),
    ) -> Result<(), HostError> {
        self.exchange(request, || format!("list {what}"), each)
    }

    fn exchange(
        &mut self,
        request: Request,
        what: impl FnOnce() -> String,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), HostError> {
        let sequence = self.send(request)?;
        match self.collect(sequence, &mut each) {
            Ok(0) => Ok(()),
            Ok(errno) => {
                Err(HostError::Refused { what: what(), source: io::Error::from_raw_os_error(errno) })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(HostError::Silent { what: what(), seconds: ANSWER_SECONDS })
            }
            Err(error) => Err(failed("receiving an answer", error)),
        }
    }

    fn collect(&self, sequence: u32, each: &mut dyn FnMut(u16, &[u8])) -> io::Result<i32> {
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            self.receive(&mut buffer)?;
            for envelope in messages(&buffer) {
                if envelope.sequence != sequence {
                    continue;
                }
                match envelope.content {
                    Received::End { errno } => return Ok(errno),
                    Received::Message { kind, payload, .. } => each(kind, payload),
                }
            }
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.raw.as_raw_fd()
    }
}

fn failed(what: &'static str, source: io::Error) -> HostError {
    HostError::Socket { what, source }
}
