//! Prefetching of packets.

use super::Packet;

impl Packet {
    /// Prefetches the packet's first bytes.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing; any address is allowed.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(
                self.chain.head().buffer.as_ptr().add(self.chain.head().places.offset.into()).cast(),
            );
        }
    }
}
