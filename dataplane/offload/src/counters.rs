//! Counters of a port's offload program.

use aya::Ebpf;
use aya::maps::{MapError, PerCpuArray};
use millrace_packet::{CONTROL_CLASSES, ClassCounts};

use crate::OffloadError;
use crate::bpf::object::{map_error, missing};

/// Frames since the program was loaded, summed over all processors. `seen` equals the sum of `redirected`,
/// `kept`, `cache`, `fallback` and the frames that `control` counts as dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramCounters {
    /// Frames that reached the program.
    pub seen: u64,
    /// Bytes of the frames in `seen`, from the Ethernet header on, without FCS.
    pub seen_bytes: u64,
    /// Frames sent to user space.
    pub redirected: u64,
    /// Frames kept by the kernel.
    pub kept: KeptCounters,
    /// Frames that the flow cache forwarded or dropped.
    pub cache: CacheCounters,
    /// Frames meant for user space that arrived while no socket was registered.
    pub fallback: FallbackCounters,
    /// Frames from [`crate::KernelHandback`] that the program let through; not part of `seen`. Only ports in
    /// generic mode and AF_PACKET ports see handed-back frames.
    pub handed_back: u64,
    /// Policed frames for the router itself, by class. `kept` and `fallback` include the frames that passed.
    /// Other frames for the kernel are not policed.
    pub control: ClassCounts,
}

/// Frames kept by the kernel, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeptCounters {
    /// Neither IPv4 nor IPv6 (ARP, LLC, LLDP, MPLS, …), or no whole Ethernet header.
    pub other_ethertype: u64,
    /// The destination MAC address is not the port's.
    pub not_ours: u64,
    /// The destination is an address of this router.
    pub local: u64,
    /// Broadcast or multicast, by MAC or IP destination.
    pub multicast: u64,
    /// Tagged with a VLAN for which the router has no sub-interface.
    pub vlan: u64,
}

impl KeptCounters {
    const fn sum(&self) -> u64 {
        self.other_ethertype + self.not_ours + self.local + self.multicast + self.vlan
    }
}

/// Frames that the flow cache handled, by their fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Forwarded.
    pub forwarded: u64,
    /// Dropped because the output device was gone.
    pub undeliverable: u64,
    /// Dropped because upcalls of the frame's flow were in flight to an overloaded worker: a forwarded frame
    /// would have overtaken them.
    pub made_way: u64,
    /// Dropped because of a filter.
    pub filtered: u64,
    /// Dropped because they exceeded the token bucket of a filter.
    pub policed: u64,
    /// Dropped because of the eBPF variant of a plugin.
    pub variant_dropped: u64,
}

/// Frames meant for user space that arrived while no socket was registered, by their fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FallbackCounters {
    /// Forwarded by the kernel ([`OnDeath::Kernel`](crate::OnDeath::Kernel)).
    pub passed: u64,
    /// Dropped ([`OnDeath::Drop`](crate::OnDeath::Drop)).
    pub dropped: u64,
}

/// Number of words of `struct counters` before the class counters.
const PLAIN: usize = 17;

/// `struct counters` of bpf/level0.c.
pub(crate) type Words = [u64; PLAIN + 2 * CONTROL_CLASSES];

impl ProgramCounters {
    /// Returns the counters in a `struct counters`.
    pub(crate) fn of_words(words: &Words) -> Self {
        let by_class = |first: usize| words.get(first..).and_then(|words| words.first_chunk()).copied();
        let passed = by_class(PLAIN).unwrap_or_default();
        let dropped = by_class(PLAIN + CONTROL_CLASSES).unwrap_or_default();
        let [seen, seen_bytes, redirected, other_ethertype, not_ours, local, multicast, vlan, rest @ ..] =
            *words;
        let [forwarded, undeliverable, made_way, filtered, policed, variant_dropped, rest @ ..] = rest;
        let [fallback_passed, fallback_dropped, handed_back, ..] = rest;
        Self {
            seen,
            seen_bytes,
            redirected,
            kept: KeptCounters { other_ethertype, not_ours, local, multicast, vlan },
            cache: CacheCounters { forwarded, undeliverable, made_way, filtered, policed, variant_dropped },
            fallback: FallbackCounters { passed: fallback_passed, dropped: fallback_dropped },
            handed_back,
            control: ClassCounts { passed, dropped },
        }
    }

    /// Returns the number of frames that the kernel received, without handed-back frames.
    pub const fn passed(&self) -> u64 {
        self.kept.sum() + self.fallback.passed
    }
}

/// Reads the words of a port's program, summed over all processors.
pub(crate) fn read_words(object: &Ebpf) -> Result<Words, OffloadError> {
    let failed = |error: MapError| map_error("counters", &error);
    let map = object.map("counters").ok_or_else(|| missing("counters"))?;
    let map = PerCpuArray::<_, Words>::try_from(map).map_err(failed)?;
    let mut sum: Words = [0; PLAIN + 2 * CONTROL_CLASSES];
    for words in map.get(&0, 0).map_err(failed)?.iter() {
        sum.iter_mut().zip(words).for_each(|(sum, word)| *sum += word);
    }
    Ok(sum)
}

/// Reads the counters of a port's program.
pub(crate) fn read_counters(object: &Ebpf) -> Result<ProgramCounters, OffloadError> {
    Ok(ProgramCounters::of_words(&read_words(object)?))
}
