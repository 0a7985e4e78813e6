//! Interface for fuzz targets: dry runs of the programs in the kernel, compared with their twins in Rust.

use millrace_packet::OffloadedFlow;

use crate::bpf::object;
use crate::classifier::dry_runs::Programs;
use crate::classifier::twin::{Knowledge, Verdict, classify};
use crate::flow_cache::dry_runs::{Bench, FLOW, OWN, PORT, WAY};
use crate::flow_cache::forward_twin::{forwarded, read};
use crate::{KEY_BYTES, LoadedVariant, VariantObject};

/// Programs of a port, loaded into the kernel but not attached: one set without a flow cache, and one set
/// with a flow cache.
pub struct DryRuns {
    classifying: Programs,
    forwarding: Bench,
}

impl std::fmt::Debug for DryRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DryRuns").finish_non_exhaustive()
    }
}

impl DryRuns {
    /// Loads the programs.
    ///
    /// # Errors
    /// Reason why programs can't be loaded here, such as missing root privileges.
    ///
    /// # Panics
    /// When the kernel refuses a program as root.
    pub fn load() -> Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("not root".to_owned());
        }
        object::level0().map_err(|error| error.to_string())?;
        Ok(Self { classifying: Programs::load(), forwarding: Bench::new(16) })
    }

    /// Classifies a frame of 15 bytes or more, by all programs and by their twin, and compares the results.
    ///
    /// # Panics
    /// When two results differ.
    pub fn check(&self, frame: &[u8]) {
        let programs = &self.classifying;
        let (found, expected) = (programs.verdict(frame), classify(frame, &programs.knowledge));
        assert_eq!(found, expected, "program, twin: {frame:02x?}");
    }

    /// Loads the eBPF variant of a plugin.
    ///
    /// # Panics
    /// When the kernel refuses the variant.
    pub fn load_variant(&mut self, object: VariantObject<'_>) -> LoadedVariant {
        self.forwarding.cache.load_variant(object).expect("the kernel verifies it")
    }

    /// Sends a frame of 15 bytes or more to the port. If the flow cache may hold the frame's flow, the cache
    /// first gets an entry for it, with the eBPF variant of a plugin. Each program must then forward the same
    /// bytes as its twin, or drop the packet if `drops` is set. Without an entry, the programs must forward
    /// nothing.
    ///
    /// # Panics
    /// When a program and its twin disagree.
    pub fn check_cache(
        &mut self,
        frame: &[u8],
        variant: Option<&LoadedVariant>,
        mut drops: impl FnMut(&CachedPacket<'_>) -> bool,
    ) {
        let frame = [&OWN[..], &frame[OWN.len()..]].concat();
        let bench = &mut self.forwarding;
        // Frames for the kernel never reach the flow cache.
        let is_ours = classify(&frame, &Knowledge { mac: OWN, ..Knowledge::default() }) == Verdict::UserSpace;
        let read = read(&frame, PORT).filter(|read| is_ours && read.network_length <= usize::from(WAY.mtu));
        let Some(read) = read else {
            for program in 0..bench.programs.len() {
                assert_eq!(
                    bench.run(program, &frame),
                    None,
                    "program {program}, not to be cached: {frame:02x?}"
                );
            }
            return;
        };
        assert_eq!(bench.run(0, &frame), None, "without an entry: {frame:02x?}");
        let flow = OffloadedFlow { variant: variant.map(LoadedVariant::place), ..FLOW };
        let slot = bench.writer.insert(&read.key, &flow).expect("room for one flow");
        bench.take_up(slot);
        let packet = CachedPacket { key: read.key, frame: &frame[..14 + read.network_length] };
        for program in 0..bench.programs.len() {
            let expected = (!drops(&packet)).then(|| forwarded(&frame, &WAY));
            assert_eq!(bench.run(program, &frame), expected, "program {program}, twin: {frame:02x?}");
        }
        bench.writer.remove(&read.key, slot);
    }
}

/// Packet whose flow the cache may hold.
#[derive(Debug)]
pub struct CachedPacket<'a> {
    key: [u8; KEY_BYTES],
    /// Frame, without padding.
    pub frame: &'a [u8],
}

impl CachedPacket<'_> {
    /// Returns family, protocol, source port and destination port.
    pub fn flow(&self) -> (u8, u8, u16, u16) {
        let word = |at: usize| u16::from_ne_bytes([self.key[at], self.key[at + 1]]);
        (self.key[37], self.key[36], word(32), word(34))
    }
}
