//! Counters of a port's offload program.

use aya::Ebpf;
use aya::maps::{MapError, PerCpuArray};

use crate::OffloadError;
use crate::object::{map_error, missing};

/// Frames since the program was loaded, summed over all processors. `seen` equals the sum of the other frame
/// counts, without `handed_back` and `entered`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level0Counters {
    /// Frames that reached the program.
    pub seen: u64,
    /// Bytes of those frames, from the Ethernet header on, without FCS.
    pub seen_bytes: u64,
    /// Frames sent to user space.
    pub redirected: u64,
    /// Frames kept by the kernel: neither IPv4 nor IPv6 (ARP, LLC, LLDP, MPLS, …), or without a whole
    /// Ethernet header.
    pub other_ethertype: u64,
    /// Frames kept by the kernel: the destination MAC address is not the port's.
    pub not_ours: u64,
    /// Frames kept by the kernel: destination is an address of this router.
    pub local: u64,
    /// Frames kept by the kernel: broadcast or multicast, by MAC or IP destination.
    pub multicast: u64,
    /// Frames kept by the kernel: tagged with a VLAN that is no sub-interface of the router.
    pub vlan: u64,
    /// Frames forwarded by the flow cache.
    pub forwarded: u64,
    /// Frames that the flow cache dropped because the output device was gone.
    pub undeliverable: u64,
    /// Frames dropped during the take-over of a flow from an overloaded worker, so that no packet overtakes
    /// another.
    pub made_way: u64,
    /// Frames that the flow cache dropped because of a filter.
    pub filtered: u64,
    /// Frames that the flow cache dropped because they exceeded the token bucket of a filter.
    pub policed: u64,
    /// Frames that the flow cache dropped because of the eBPF variant of a plugin.
    pub formed: u64,
    /// Frames for user space, forwarded by the kernel because no socket was registered (`OnDeath::Kernel`).
    pub fallback_passed: u64,
    /// Frames for user space, dropped because no socket was registered (`OnDeath::Drop`).
    pub fallback_dropped: u64,
    /// Frames from [`crate::KernelHandback`] that the program let through; not part of `seen`. Only ports in
    /// generic mode and AF_PACKET ports see such frames again.
    pub handed_back: u64,
    /// Policed frames for the router itself that reached the kernel, by class. The counters above include
    /// them. Other frames of the kernel are not policed.
    pub entered: [u64; CONTROL_CLASSES],
    /// Frames for the router itself dropped above the rate limit of their class, by class.
    pub refused: [u64; CONTROL_CLASSES],
}

/// Number of classes of packets for the router itself: those of `millrace_packet::ControlClass`.
pub const CONTROL_CLASSES: usize = 8;

/// Number of words of `struct counters` before the counters by class.
const PLAIN: usize = 17;

/// `struct counters` of bpf/level0.c.
pub(crate) type Words = [u64; PLAIN + 2 * CONTROL_CLASSES];

impl Level0Counters {
    /// Adds up the counters of all processors.
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

    /// Returns the number of frames that the kernel got, without handed-back frames.
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
