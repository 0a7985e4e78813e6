//! eBPF variants of plugins: separate programs that the port programs call for packets
//! (include/ebpf_variant.h of the crate `bpf`).
//!
//! Each instance has its own program, and two maps that the instance sees as memory. The settings have two
//! banks, one of them in use. The counters have one or more cache lines for each processor. A flow cache
//! entry names a slot in an array of programs. The port's program calls a function that ends in a tail call
//! to this slot, so the variant returns to the port's program. If the slot is empty, the packet is an upcall.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aya::maps::{Map, ProgramArray};
use aya::{Ebpf, EbpfLoader};

use super::FlowCache;
use super::layout::VARIANTS;
use crate::OffloadError;
use crate::bpf::longest_path::longest_path;
use crate::bpf::mapped_map::MappedMap;
use crate::bpf::object::{self, map_mut};
use crate::bpf::syscall::time_of_run;

/// Programs of an eBPF variant: for frames of one buffer, and for frames of several buffers. The second name
/// of each pair is the map through which port programs call the program.
const PROGRAMS: [(&str, &str); 2] =
    [("millrace_variant", "variants"), ("millrace_variant_sg", "variants_sg")];
const WORD: usize = size_of::<u64>();
/// Number of runs in which the time of a variant is measured, and number of measurements, of which the least counts:
/// other work of the machine only adds to the time.
const RUNS: u32 = 2000;
const MEASUREMENTS: usize = 5;
/// Frames of these runs: UDP packets from port 1 to port 1.
const FRAMES: [[u8; 62]; 2] = {
    let (mut v4, mut v6) = ([0; 62], [0; 62]);
    (v4[12], v4[14], v4[17], v4[23], v4[35], v4[37]) = (0x08, 0x45, 48, 17, 1, 1);
    (v6[12], v6[13], v6[14], v6[19], v6[20], v6[55], v6[57]) = (0x86, 0xdd, 0x60, 8, 17, 1, 1);
    [v4, v6]
};
/// Alignment in bytes of the entries in the counter map.
const LINE: usize = 64;

/// eBPF variant of a plugin, as the plugin's file contains it.
#[derive(Clone, Copy, Debug)]
pub struct VariantObject<'a> {
    /// Object file (ELF).
    pub object: &'a [u8],
    /// Number of words of settings.
    pub settings: usize,
    /// Number of counter words per processor.
    pub counters: usize,
    /// Maximum number of instructions per packet.
    pub most_instructions: u32,
}

/// eBPF variant of one instance's plugin. The kernel has verified it, and the port programs can call it.
pub struct LoadedVariant {
    place: u16,
    instructions: u32,
    time: Duration,
    memory: Arc<VariantMaps>,
    /// Owner of the programs; dropping it unloads them.
    _object: Ebpf,
}

impl fmt::Debug for LoadedVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedVariant").field("place", &self.place).finish_non_exhaustive()
    }
}

impl LoadedVariant {
    /// Returns the number by which flow cache entries refer to the eBPF variant.
    pub fn place(&self) -> u16 {
        self.place
    }

    /// Returns the maximum number of instructions per packet.
    pub fn instructions(&self) -> u32 {
        self.instructions
    }

    /// Returns the processor time for a packet, measured with all settings at their greatest values when the variant was
    /// loaded; zero if the kernel can't measure it.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Returns the memory that the instance shares with the eBPF variant.
    pub fn memory(&self) -> &Arc<VariantMaps> {
        &self.memory
    }
}

/// Memory that an instance shares with its eBPF variant: settings and counters. The memory may outlive the
/// programs.
#[derive(Debug)]
pub struct VariantMaps {
    id: u64,
    settings: MappedMap,
    words: usize,
    counters: MappedMap,
    /// Distance in bytes between the counters of two successive processors.
    stride: usize,
    processors: usize,
}

impl VariantMaps {
    /// Returns the number of this memory, which isn't 0. No other memory of an eBPF variant in this process
    /// has the same number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Changes the settings of the eBPF variant. Each later packet sees all of the new settings or none of
    /// them. Words that are not given become 0; surplus words are ignored. Only one thread may call this at a
    /// time.
    pub fn configure(&self, words: &[u64]) {
        let bank = self.settings.word64(0);
        let next = 1 - (bank.load(Ordering::Relaxed) & 1);
        let start = WORD * (1 + next as usize * self.words);
        for at in 0..self.words {
            let value = words.get(at).copied().unwrap_or_default();
            self.settings.word64(start + at * WORD).store(value, Ordering::Relaxed);
        }
        bank.store(next, Ordering::Release);
    }

    /// Returns the value of a counter word, summed over all processors.
    pub fn counted(&self, word: usize) -> u64 {
        let on =
            |processor| self.counters.word64(processor * self.stride + word * WORD).load(Ordering::Relaxed);
        (0..self.processors).map(on).fold(0, u64::wrapping_add)
    }

    /// Sets all counter words to 0.
    fn clear(&self) {
        for at in (0..self.processors * self.stride).step_by(WORD) {
            self.counters.word64(at).store(0, Ordering::Relaxed);
        }
    }
}

impl FlowCache {
    /// Loads the eBPF variant of a plugin for an instance. From then on, the XDP programs of ports can call
    /// the variant by its number.
    ///
    /// # Errors
    /// [`OffloadError::Variant`] if the object file is invalid, has a loop or takes too many instructions.
    /// Also if the kernel's verifier refuses the program, or 256 variants are loaded already.
    /// [`OffloadError::Map`] if the kernel refuses the map entry for the variant. After an error, no part of
    /// the variant stays loaded.
    pub fn load_variant(&mut self, variant: VariantObject<'_>) -> Result<LoadedVariant, OffloadError> {
        let instructions = check(variant)?;
        let place = self.variants.iter().position(|taken| !taken);
        let place = place.ok_or_else(|| {
            refused(format!(
                "all {VARIANTS} slots for eBPF variants are in use: remove an instance that has one"
            ))
        })?;
        let (mut object, memory) = make(variant)?;
        for (program, map) in PROGRAMS {
            let loaded = object::load(&mut object, program).map_err(|error| match error {
                OffloadError::Load { detail, .. } => {
                    refused(format!("the kernel refused it: {}", reason(&detail)))
                }
                other => other,
            });
            drop(loaded?);
            let asked = self
                .set_variant(map, place, object.program(program))
                .map_err(|detail| OffloadError::Map { map, detail });
            if let Err(error) = asked {
                self.clear_variant(place);
                return Err(error);
            }
        }
        self.note_variant(place, true);
        // With all options set, no path of a variant is cut short. Neither settings nor counters stay.
        memory.configure(&vec![u64::MAX; variant.settings]);
        let time = time_of(&object);
        memory.configure(&[]);
        memory.clear();
        let memory = Arc::new(memory);
        Ok(LoadedVariant { place: place as u16, instructions, time, memory, _object: object })
    }

    /// Unloads an eBPF variant. From then on, packets of entries that refer to the variant are punted to the
    /// worker. The variant's number may be reused at once, so no entry in use may refer to it.
    pub fn unload_variant(&mut self, variant: LoadedVariant) {
        let place = usize::from(variant.place);
        self.clear_variant(place);
        self.note_variant(place, false);
    }

    fn note_variant(&mut self, place: usize, is_taken: bool) {
        if let Some(variant) = self.variants.get_mut(place) {
            *variant = is_taken;
        }
    }

    fn set_variant(
        &mut self,
        map: &'static str,
        place: usize,
        program: Option<&aya::programs::Program>,
    ) -> Result<(), String> {
        let Some(aya::programs::Program::Xdp(program)) = program else {
            return Err("the program is missing".to_owned());
        };
        let fd = program.fd().map_err(|error| object::chain(&error))?;
        let asked = map_mut(&mut self.object, map).map_err(|error| error.to_string())?;
        let mut asked = ProgramArray::try_from(asked).map_err(|error| object::chain(&error))?;
        asked.set(place as u32, fd, 0).map_err(|error| object::chain(&error))
    }

    fn clear_variant(&mut self, place: usize) {
        for (_, map) in PROGRAMS {
            let Ok(asked) = map_mut(&mut self.object, map) else { continue };
            if let Ok(mut asked) = ProgramArray::try_from(asked) {
                // The slot may be empty already.
                let _ = asked.clear_index(&(place as u32));
            }
        }
    }
}

/// Measures the time of a loaded variant for a packet; zero if the kernel refuses.
fn time_of(object: &Ebpf) -> Duration {
    let [(name, _), _] = PROGRAMS;
    let Some(aya::programs::Program::Xdp(program)) = object.program(name) else { return Duration::ZERO };
    let Ok(fd) = program.fd() else { return Duration::ZERO };
    let least = |frame: &[u8]| {
        let measured = (0..MEASUREMENTS).filter_map(|_| time_of_run(fd.as_fd(), frame, RUNS).ok());
        measured.min().unwrap_or_default()
    };
    FRAMES.iter().map(|frame| least(frame)).max().unwrap_or_default()
}

fn refused(detail: String) -> OffloadError {
    OffloadError::Variant { detail }
}

/// Returns the verifier's objection: the log lines between the last instruction and the statistics.
fn reason(said: &str) -> String {
    const FIGURES: [&str; 3] = ["verification time", "stack depth", "processed "];
    let is_figure = |line: &&str| FIGURES.iter().any(|figure| line.starts_with(figure));
    let is_instruction = |line: &&str| line.starts_with(|first: char| first == ';' || first.is_ascii_digit());
    let lines: Vec<_> = said.lines().map(str::trim).take_while(|line| !is_figure(line)).collect();
    let last = lines.iter().rposition(is_instruction).map_or(0, |at| at + 1);
    let objection = lines.get(last..).unwrap_or_default().join(", ");
    if objection.is_empty() { said.to_owned() } else { objection }
}

/// Checks an eBPF variant against its limits. Returns its number of instructions.
fn check(variant: VariantObject<'_>) -> Result<u32, OffloadError> {
    let mut most = 0;
    for (program, _) in PROGRAMS {
        let longest = longest_path(variant.object, program);
        let (instructions, loops) = longest.ok_or_else(|| {
            refused(format!(
                "program {program} is missing from the object file, or none of its paths reaches an exit"
            ))
        })?;
        if loops > 0 {
            return Err(refused(format!(
                "program {program} has a loop: unroll the loop, so that its instructions can be counted"
            )));
        }
        most = most.max(instructions);
    }
    if most > variant.most_instructions {
        let allowed = variant.most_instructions;
        return Err(refused(format!(
            "it takes up to {most} instructions per packet; the limit is {allowed}"
        )));
    }
    Ok(most)
}

/// Creates the maps of an eBPF variant.
fn make(variant: VariantObject<'_>) -> Result<(Ebpf, VariantMaps), OffloadError> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let processors = aya::util::nr_cpus().map_err(|(what, error)| refused(format!("{what}: {error}")))?;
    let mut loader = EbpfLoader::new();
    loader.btf(None).map_max_entries("counters", processors as u32);
    // The loader reads the object in words, which needs alignment. A vector is aligned; bytes inside a
    // program may not be.
    let object = Vec::from(variant.object);
    let loaded = loader.load(&object);
    let mut object = loaded
        .map_err(|error| refused(format!("the object file can't be loaded: {}", object::chain(&error))))?;
    let settings = WORD * (1 + 2 * variant.settings);
    let stride = (variant.counters * WORD).next_multiple_of(LINE);
    for (map, size) in [("settings", settings), ("counters", stride)] {
        if value_size(&object, map) != Some(size) {
            return Err(refused(format!(
                "its map {map} must have values of {size} bytes, as the plugin declares"
            )));
        }
    }
    let memory = VariantMaps {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        settings: MappedMap::new(&mut object, "settings", 1, settings)?,
        words: variant.settings,
        counters: MappedMap::new(&mut object, "counters", processors, stride)?,
        stride,
        processors,
    };
    Ok((object, memory))
}

fn value_size(object: &Ebpf, map: &str) -> Option<usize> {
    let Map::Array(data) = object.map(map)? else { return None };
    data.info().ok().map(|info| info.value_size() as usize)
}
