//! Offsets of a packet's bytes and headers.

/// Offset and length of a packet's bytes in a memory frame, and offsets of its headers: four 16-bit fields
/// that fill one word.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub offset: u16,
    pub length: u16,
    pub network: u16,
    pub transport: u16,
}

impl Places {
    pub const NONE: Self = Self { offset: 0, length: 0, network: 0, transport: 0 };

    /// Unpacks a word whose lowest 16 bits are the offset.
    #[inline(always)]
    pub fn of_word(word: u64) -> Self {
        // SAFETY: any two bytes are a valid number, and there is no padding between the fields.
        unsafe { std::mem::transmute::<[u8; 8], Self>(word.to_ne_bytes()) }.in_order()
    }

    /// Puts the fields into their order in a word, which depends on the machine's byte order.
    #[inline(always)]
    const fn in_order(self) -> Self {
        let Self { offset, length, network, transport } = self;
        match cfg!(target_endian = "big") {
            true => Self { offset: transport, length: network, network: length, transport: offset },
            false => self,
        }
    }
}
