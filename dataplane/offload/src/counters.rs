//! What the level-0 program of a port has counted.

use aya::Ebpf;
use aya::maps::{MapError, PerCpuArray};

use crate::OffloadError;
use crate::object::{map_error, missing};

/// Frames since the program was loaded, summed over all processors. `seen` equals the sum of all other frame counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level0Counters {
    /// Frames that reached the program.
    pub seen: u64,
    /// Bytes of those frames, from the Ethernet header on, without FCS.
    pub seen_bytes: u64,
    /// Sent to user space.
    pub redirected: u64,
    /// Kept by the kernel: neither IPv4 nor IPv6 (ARP, LLC, LLDP, MPLS, …), or no whole Ethernet header.
    pub other_ethertype: u64,
    /// Kept by the kernel: destination MAC is another station's.
    pub not_ours: u64,
    /// Kept by the kernel: an address of this router.
    pub local: u64,
    /// Kept by the kernel: broadcast or multicast, by MAC or IP destination.
    pub multicast: u64,
    /// Kept by the kernel: tagged with a VLAN that is no sub-interface of ours.
    pub vlan: u64,
    /// Forwarded in the driver, by the flow cache.
    pub forwarded: u64,
    /// To be forwarded in the driver, but the device to leave by was gone: dropped.
    pub undeliverable: u64,
    /// Dropped so that a flow could move from an overloaded worker into the driver without a packet overtaking another.
    pub made_way: u64,
    /// Dropped in the driver, by the flow cache, because a filter says so.
    pub filtered: u64,
    /// Dropped in the driver, by the flow cache, because more came than the token bucket of a filter lets through.
    pub policed: u64,
    /// Dropped in the driver, by the flow cache, because the form of a plugin says so.
    pub formed: u64,
    /// Meant for user space, but no socket was registered; the kernel forwarded instead (`OnDeath::Kernel`).
    pub fallback_passed: u64,
    /// Meant for user space, but no socket was registered; dropped (`OnDeath::Drop`).
    pub fallback_dropped: u64,
    /// Given back by [`crate::KernelHandback`] and let through; not part of `seen`. Only ports in generic mode and
    /// AF_PACKET ports meet such frames again.
    pub handed_back: u64,
    /// By class, frames for the router itself that the kernel got; among those above. The rest of what it got is not policed.
    pub entered: [u64; CONTROL_CLASSES],
    /// By class, frames for the router itself that were dropped because more came of their class than it bears.
    pub refused: [u64; CONTROL_CLASSES],
}

/// Classes of packets for the router itself: those of `millrace_packet::ControlClass`.
pub const CONTROL_CLASSES: usize = 8;

/// Words of `struct counters` before those of classes.
const PLAIN: usize = 17;

/// `struct counters` of bpf/level0.c.
pub(crate) type Words = [u64; PLAIN + 2 * CONTROL_CLASSES];

impl Level0Counters {
    /// Adds up what each processor has counted.
    pub(crate) fn sum<'a>(processors: impl Iterator<Item = &'a Words>) -> Self {
        let mut sum: Words = [0; PLAIN + 2 * CONTROL_CLASSES];
        processors.for_each(|words| sum.iter_mut().zip(words).for_each(|(sum, word)| *sum += word));
        let by_class = |first: usize| sum.get(first..).and_then(|words| words.first_chunk()).copied();
        let entered = by_class(PLAIN).unwrap_or_default();
        let refused = by_class(PLAIN + CONTROL_CLASSES).unwrap_or_default();
        let [
            seen,
            seen_bytes,
            redirected,
            other_ethertype,
            not_ours,
            local,
            multicast,
            vlan,
            forwarded,
            undeliverable,
            made_way,
            filtered,
            policed,
            formed,
            passed,
            dropped,
            back,
            ..,
        ] = sum;
        Self {
            seen,
            seen_bytes,
            redirected,
            other_ethertype,
            not_ours,
            local,
            multicast,
            vlan,
            forwarded,
            undeliverable,
            made_way,
            filtered,
            policed,
            formed,
            fallback_passed: passed,
            fallback_dropped: dropped,
            handed_back: back,
            entered,
            refused,
        }
    }

    /// Frames that the kernel got, by all reasons but hand-back.
    pub const fn passed(&self) -> u64 {
        self.other_ethertype + self.not_ours + self.local + self.multicast + self.vlan + self.fallback_passed
    }
}

/// Reads the counters of a port's program.
pub(crate) fn read_counters(object: &Ebpf) -> Result<Level0Counters, OffloadError> {
    let failed = |error: MapError| map_error("counters", &error);
    let map = object.map("counters").ok_or_else(|| missing("counters"))?;
    let map = PerCpuArray::<_, Words>::try_from(map).map_err(failed)?;
    Ok(Level0Counters::sum(map.get(&0, 0).map_err(failed)?.iter()))
}
