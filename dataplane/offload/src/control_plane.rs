//! Control-plane policing: at which rates what is for the router itself gets to the kernel (bpf/control_plane.h).

use aya::Ebpf;
use aya::maps::{Array, MapError};

use crate::object::map_mut;
use crate::{CONTROL_CLASSES, OffloadError, object};

/// Ticks of a second, of which a packet takes some: a tick is a sixteenth of a nanosecond.
const TICKS: u64 = 16_000_000_000;
/// Parts of a tick.
const FRACTION: u64 = 1 << 16;

/// How much of a class gets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassRate {
    /// Packets per second, 1 to 1,000,000,000.
    pub rate: u64,
    /// Packets that may come at once, 1 to 1,000,000,000.
    pub burst: u64,
}

impl ClassRate {
    /// Parts of a tick that a packet takes, and ticks between a full bucket and an empty one.
    fn price(self) -> (u64, u64) {
        let packet = TICKS * FRACTION / self.rate.clamp(1, 1_000_000_000);
        let depth =
            u128::from(packet) * u128::from(self.burst.clamp(1, 1_000_000_000)) / u128::from(FRACTION);
        // More than that is no bound within the life of a router, and the program adds it to the time.
        (packet, u64::try_from(depth).unwrap_or(u64::MAX).min(1 << 62) + 1)
    }
}

/// Sets how much of each class gets through; what is `None` is not policed. Buckets are full then.
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
    fn a_packet_takes_its_part_of_a_second_and_a_bucket_holds_its_burst() {
        let (packet, depth) = ClassRate { rate: 1000, burst: 100 }.price();
        assert_eq!(packet, TICKS / 1000 * FRACTION);
        assert_eq!(depth, TICKS / 10 + 1);
        assert!(ClassRate { rate: 1, burst: 1_000_000_000 }.price().1 <= (1 << 62) + 1);
    }
}
