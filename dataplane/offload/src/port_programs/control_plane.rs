//! Control-plane policing (CoPP): rate limits of packets for the router itself, by class
//! (bpf/control_plane.h).

use aya::Ebpf;
use aya::maps::{Array, MapError};

use crate::bpf::object::{self, map_mut};
use crate::{CONTROL_CLASSES, OffloadError};

/// Ticks per second. A tick is a sixteenth of a nanosecond; the bucket counts the cost of a packet in ticks.
const TICKS: u64 = 16_000_000_000;
/// Fractions per tick: costs are counted in 65,536ths of a tick.
const FRACTION: u64 = 1 << 16;

/// Rate limit of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassRate {
    /// Rate in packets per second, 1 to 1,000,000,000.
    pub rate: u64,
    /// Burst in packets, 1 to 1,000,000,000.
    pub burst: u64,
}

impl ClassRate {
    /// Returns the cost of a packet in 65,536ths of a tick, and the depth of the bucket in ticks.
    fn price(self) -> (u64, u64) {
        let packet = TICKS * FRACTION / self.rate.clamp(1, 1_000_000_000);
        let depth =
            u128::from(packet) * u128::from(self.burst.clamp(1, 1_000_000_000)) / u128::from(FRACTION);
        // A greater depth would not limit anything in the life of a router, and the program's sum of depth
        // and time could overflow.
        (packet, u64::try_from(depth).unwrap_or(u64::MAX).min(1 << 62) + 1)
    }
}

/// Sets the rate limit of each class, and fills its bucket. A class with `None` is not policed.
pub(crate) fn set(
    object: &mut Ebpf,
    rates: &[Option<ClassRate>; CONTROL_CLASSES],
) -> Result<(), OffloadError> {
    let failed = |error: MapError| OffloadError::Map { map: "control_plane", detail: object::chain(&error) };
    let mut map = Array::<_, [u64; 8]>::try_from(map_mut(object, "control_plane")?).map_err(failed)?;
    for (class, rate) in (0..).zip(rates) {
        let (packet, depth) = rate.map_or((0, 0), ClassRate::price);
        map.set(class, [0, packet, depth, 0, 0, 0, 0, 0], 0).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_uses_its_share_of_a_second_and_a_bucket_holds_its_burst() {
        let (packet, depth) = ClassRate { rate: 1000, burst: 100 }.price();
        assert_eq!(packet, TICKS / 1000 * FRACTION);
        assert_eq!(depth, TICKS / 10 + 1);
        assert!(ClassRate { rate: 1, burst: 1_000_000_000 }.price().1 <= (1 << 62) + 1);
    }
}
