//! Netlink messages: requests, attributes, and error answers of the kernel.

use std::{fmt, io};

use netlink_sys::{Socket, SocketAddr};

const NLM_F_REQUEST: u16 = 1;
/// Type of an attribute without its flags.
const NLA_TYPE_MASK: u16 = 0x3fff;
/// Attribute of `NLMSG_ERR_ATTRS` with the kernel's message.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Error of a netlink request: code of the kernel, and its message if there is one.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: io::Error,
    pub(crate) words: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words.is_empty() {
            true => self.error.fmt(f),
            false => write!(f, "{} ({})", self.words, self.error),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self { error, words: String::new() }
    }
}

/// Opens a socket of a netlink protocol, connected to the kernel.
pub(crate) fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // Requests the kernel's messages in errors; an old kernel does not support that.
    let _ = socket.set_ext_ack(true);
    Ok(socket)
}

/// Netlink request, without its length.
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// Creates a request with the family's own header, `head`.
    pub(crate) fn new(kind: u16, flags: u16, head: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend([0; 4]);
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        // Sequence number and port.
        bytes.extend([0; 8]);
        bytes.extend(head);
        Self(bytes)
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        push_attribute(&mut self.0, kind, value);
        self
    }

    /// Returns the request with its length.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() as u32).to_ne_bytes();
        self.0.splice(..length.len(), length);
        self.0
    }

    /// Sends the request, and returns the kernel's answer.
    pub(crate) fn exchange(self, socket: &Socket) -> Result<Vec<u8>, Refusal> {
        socket.send(&self.finish(), 0)?;
        let (answer, _) = socket.recv_from_full()?;
        match refusal(&answer) {
            Some(refusal) => Err(refusal),
            None => Ok(answer),
        }
    }
}

pub(crate) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Reads `struct nlmsgerr`: error code, the repeated request (only its header in a capped acknowledgement),
/// then attributes. One attribute is the kernel's message (<linux/netlink.h>).
fn refusal(answer: &[u8]) -> Option<Refusal> {
    const NLMSG_ERROR: u16 = 2;
    const NLM_F_CAPPED: u16 = 0x100;
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if half(4)? != NLMSG_ERROR {
        return None;
    }
    let code = word(16)?.cast_signed();
    if code == 0 {
        return None;
    }
    let capped = half(6)? & NLM_F_CAPPED != 0;
    let request = if capped { 16 } else { word(20)? as usize };
    let words = attribute(answer, 20 + request.next_multiple_of(4), NLMSGERR_ATTR_MSG).unwrap_or_default();
    Some(Refusal { error: io::Error::from_raw_os_error(code.saturating_neg()), words: text(words) })
}

/// Returns the payload of the first attribute of a kind, from the offset `at` on.
pub(crate) fn attribute(bytes: &[u8], mut at: usize, kind: u16) -> Option<&[u8]> {
    while let Some([length @ .., kind_low, kind_high]) = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>) {
        let length = usize::from(u16::from_ne_bytes(*length));
        let payload = bytes.get(at + 4..at + length)?;
        if u16::from_ne_bytes([*kind_low, *kind_high]) & NLA_TYPE_MASK == kind {
            return Some(payload);
        }
        at += length.next_multiple_of(4);
    }
    None
}

/// Returns the first attribute of a kind as a number of four bytes.
pub(crate) fn number(attributes: &[u8], kind: u16) -> Option<u32> {
    attribute(attributes, 0, kind)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns text without its terminating zero.
pub(crate) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer with an error code, and the length of the request that it repeats.
    fn answer(code: i32, request: u32) -> Vec<u8> {
        let kind = u32::from_ne_bytes([2, 0, 0, 0]);
        [36, kind, 1, 0, code.cast_unsigned(), request, 0, 0, 0].map(u32::to_ne_bytes).concat()
    }

    #[test]
    fn answer_of_any_code_and_length_is_read() {
        for request in [0, 16, 17, u32::MAX] {
            let code = |code| refusal(&answer(code, request)).map(|refusal| refusal.error.raw_os_error());
            assert_eq!(code(0), None, "an acknowledgement");
            assert_eq!(code(-libc::EPERM), Some(Some(libc::EPERM)));
            assert_eq!(code(i32::MIN), Some(Some(i32::MAX)));
        }
    }
}
