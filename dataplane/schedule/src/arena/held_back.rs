//! Part of a port's packet memory that is held back for what has a guarantee.
//!
//! Each leaf or flow with a guarantee has a *reserve*: its burst, but at least one largest packet, and one largest
//! packet more. While it holds less than its reserve, the port takes its packets, whatever the other queues hold. The
//! others share the rest of the memory, as if the reserves were always full. So a reserve needs no accounting per
//! packet, and a flood by others never takes it.

use super::Load;

/// Bytes of a largest packet: an Ethernet jumbo frame.
pub(crate) const LARGEST: u32 = 9_216;
/// Bytes for which a reserve has room for one more packet.
const BYTES_PER_PACKET: u32 = 512;

/// Memory that is held back, in packets and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldBack {
    /// Sum of all reserves.
    wanted: (u64, u64),
    /// Sum that is held back: at most half of the memory.
    pub part: Load,
    /// Whether the arriving packet is within a reserve.
    pub is_entitled: bool,
}

/// Returns the reserve for a burst of `bytes`.
pub(crate) fn reserve_for(burst: u64) -> Load {
    // A larger burst exceeds any memory.
    let burst = burst.clamp(LARGEST.into(), (u32::MAX / 2).into());
    let bytes = burst + u64::from(LARGEST);
    Load(bytes.div_ceil(BYTES_PER_PACKET.into()) << 32 | bytes)
}

impl HeldBack {
    /// Changes a reserve from `before` to `after`, in a memory of twice the size `half`.
    pub fn change(&mut self, before: Load, after: Load, half: Load) {
        let (packets, bytes) = &mut self.wanted;
        *packets = *packets + u64::from(after.packets()) - u64::from(before.packets());
        *bytes = *bytes + u64::from(after.bytes()) - u64::from(before.bytes());
        let most = (u64::from(half.packets()), u64::from(half.bytes()));
        self.part = Load((*packets).min(most.0) << 32 | (*bytes).min(most.1));
    }

    /// Returns the part of a reserve that is held back: all of it, unless the reserves together exceed half of the
    /// memory. Then each gets the same part of what it wants.
    pub fn part_of(&self, reserve: Load) -> Load {
        let part = |own: u32, part: u32, all: u64| u64::from(own) * u64::from(part) / all.max(1);
        let packets = part(reserve.packets(), self.part.packets(), self.wanted.0);
        Load(packets << 32 | part(reserve.bytes(), self.part.bytes(), self.wanted.1))
    }
}
