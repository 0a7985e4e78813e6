//! Interface for fuzz targets: dry runs of the programs in the kernel, compared with their twins.

use millrace_packet::OffloadedFlow;

use crate::bpf::object;
use crate::classifier::dry_runs::Programs;
use crate::classifier::twin::{Knowledge, Verdict, classify};
use crate::flow_cache::dry_runs::{Bench, FLOW, OWN, PORT, WAY};
use crate::flow_cache::forward_twin::{forwarded, read};
use crate::{FormObject, KEY_BYTES, LoadedForm};

/// Programs of a port, loaded into the kernel but not attached: without a flow cache, and with one.
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
    /// Reason why this is not possible here: loading needs root.
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

    /// Classifies a frame of 15 bytes or more by all programs and by the twin.
    ///
    /// # Panics
    /// When two of them disagree.
    pub fn check(&self, frame: &[u8]) {
        let programs = &self.classifying;
        let (found, expected) = (programs.verdict(frame), classify(frame, &programs.knowledge));
        assert_eq!(found, expected, "program, twin: {frame:02x?}");
    }

    /// Loads the eBPF variant of a plugin.
    ///
    /// # Panics
    /// When the kernel refuses it.
    pub fn load_form(&mut self, object: FormObject<'_>) -> LoadedForm {
        self.forwarding.cache.load_form(object).expect("the kernel verifies it")
    }

    /// Sends a frame of 15 bytes or more to the port, whose flow cache has an entry for the frame's flow, if
    /// possible. The entry uses the eBPF variant of a plugin. Each program must forward the same bytes as the
    /// twin, unless `drops` tells that the plugin drops the packet. Without the entry, the programs must
    /// forward nothing.
    ///
    /// # Panics
    /// When the two disagree.
    pub fn check_cache(
        &mut self,
        frame: &[u8],
        form: Option<&LoadedForm>,
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
        let flow = OffloadedFlow { form: form.map(LoadedForm::place), ..FLOW };
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
