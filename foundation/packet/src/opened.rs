//! Views of a packet's first bytes that the receive and forward code of the fast path uses.

use crate::Annotations;
use crate::frame::Frame;
use crate::places::Places;

/// First bytes, annotations and length of a packet: result of
/// [`Packet::start_mut`](crate::Packet::start_mut).
#[derive(Debug)]
pub struct Start<'a, const COUNT: usize> {
    /// First bytes of the packet.
    pub bytes: &'a mut [u8; COUNT],
    /// Annotations of the packet.
    pub annotations: &'a mut Annotations,
    /// Length of the packet in bytes.
    pub length: usize,
}

/// Packet whose first frame can be read, until one write sets its header offsets. Result of
/// [`Packet::open`](crate::Packet::open).
#[derive(Debug)]
pub struct Opened<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) head: &'a mut Frame,
}

impl<'a> Opened<'a> {
    /// Returns the bytes of the first frame.
    #[inline(always)]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Returns whether the packet consists of one frame.
    #[inline(always)]
    pub fn is_linear(&self) -> bool {
        self.head.next.is_null()
    }

    /// Sets the offsets of the network and the transport header, in bytes from the first byte of the packet.
    /// If the packet is longer than `length` bytes, shortens it. The packet must be a single frame. Returns
    /// the annotations.
    #[inline(always)]
    pub fn note(self, length: usize, network: u16, transport: u16) -> &'a mut Annotations {
        let Self { data, head } = self;
        let length = length.min(data.len()) as u16;
        // The four fields are adjacent in one word, so one write sets them all.
        let behind = u64::from(length) << 16 | u64::from(network) << 32 | u64::from(transport) << 48;
        let offsets = u64::from(head.places.offset).wrapping_mul(0x1_0001_0000_0001);
        head.places = Places::of_word(offsets.wrapping_add(behind));
        &mut head.annotations
    }
}
