//! The beginning of a packet, to be read and written in one go.

use crate::Annotations;
use crate::frame::Frame;
use crate::places::Places;

/// What [`Packet::start_mut`](crate::Packet::start_mut) gives.
#[derive(Debug)]
pub struct Start<'a, const COUNT: usize> {
    /// The first bytes.
    pub bytes: &'a mut [u8; COUNT],
    /// What is noted on the packet.
    pub annotations: &'a mut Annotations,
    /// The length of the packet.
    pub length: usize,
}

/// What [`Packet::open`](crate::Packet::open) gives.
#[derive(Debug)]
pub struct Opened<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) head: &'a mut Frame,
}

impl<'a> Opened<'a> {
    /// The bytes of the first frame.
    #[inline(always)]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Whether the packet stands in one frame.
    #[inline(always)]
    pub fn is_linear(&self) -> bool {
        self.head.next.is_null()
    }

    /// Notes where the headers of a packet that stands in one frame begin, in bytes behind the first: the network header, and the transport
    /// header. Shortens it to `length` bytes, if it has more. Returns the annotations.
    #[inline(always)]
    pub fn note(self, length: usize, network: u16, transport: u16) -> &'a mut Annotations {
        let Self { data, head } = self;
        let length = length.min(data.len()) as u16;
        // All four at once: what lies beside each other is written as one word.
        let behind = u64::from(length) << 16 | u64::from(network) << 32 | u64::from(transport) << 48;
        let offsets = u64::from(head.places.offset).wrapping_mul(0x1_0001_0000_0001);
        head.places = Places::of_word(offsets.wrapping_add(behind));
        &mut head.annotations
    }
}
