//! Steps of a path that the XDP program executes for the packets of an offloaded flow.
//!
//! The XDP program can count packets for bindings whose action is `accept`, or drop packets. It can also use
//! one token bucket, or call one eBPF variant of a plugin. Workers later add the program's counts to the
//! bindings, so offloaded packets count like packets at a worker.

use std::sync::Arc;
use std::time::Duration;

use millrace_plugin_abi::VariantMemory;
use millrace_units::PrincipalId;

use crate::path::Stage;

/// Maximum number of bindings on the path of an offloaded flow.
pub const MOST_OFFLOAD_STEPS: usize = 4;

/// Loaded eBPF variant of an instance.
#[derive(Clone, Debug)]
pub struct LoadedVariant {
    /// Slot of the eBPF variant in the program array.
    pub place: u16,
    /// Maximum number of instructions that the variant executes for a packet.
    pub instructions: u32,
    /// Processor time for a packet that a principal pays for; zero for none.
    pub time: Duration,
    /// Memory that the instance shares with the eBPF variant.
    pub memory: Arc<dyn VariantMemory>,
    /// Whether the XDP program may call the variant. If not, the packets that the instance handles stay at
    /// the worker.
    pub is_asked: bool,
}

/// Steps that the XDP program executes for the packets of a flow, besides forwarding them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadSteps {
    /// Keys of the bindings that count the packets, as numbers, in the order in which packets pass them.
    pub(crate) bindings: [u64; MOST_OFFLOAD_STEPS],
    pub(crate) count: u8,
    /// Index of the binding whose token bucket drops excess packets; `None` without one.
    pub(crate) polices_at: Option<u8>,
    /// Index of the binding whose eBPF variant is called; `None` without one.
    pub(crate) variant_at: Option<u8>,
    /// Slot and number of instructions of the eBPF variant at `variant_at`.
    pub(crate) variant: (u16, u32),
    /// Principal that pays for the eBPF variant, and the variant's time for a packet in nanoseconds.
    pub(crate) paid: Option<(PrincipalId, u32)>,
    /// Index of the binding that drops all packets; `None` without one.
    pub(crate) drops_at: Option<u8>,
}

/// Step of an [`OffloadSteps`], for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadStep {
    /// The program counts the packets.
    Count,
    /// A token bucket drops excess packets.
    Police,
    /// The eBPF variant of a plugin handles the packets, in at most this number of instructions.
    Variant(u32),
    /// The program drops the packets.
    Drop,
}

/// Reason that the packets of a path stay at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadRefusal {
    /// An instance without an eBPF variant handles the packets.
    Instance,
    /// The instance that handles the packets is pinned to the workers, or its eBPF variant is not loaded.
    Placed,
    /// The instance that handles the packets pauses, is in quarantine, or has a shadow.
    Unwell,
    /// The path rejects the packets with an ICMP error.
    Reject,
    /// A filter selects a queue for the packets.
    Queue,
    /// A filter or instance at a copy gate gets copies of the packets.
    Copy,
    /// The path has more than [`MOST_OFFLOAD_STEPS`] bindings.
    Steps,
    /// The principal that pays for the eBPF variant is ahead of its share, or beyond its limit.
    Ahead,
    /// More than one step may drop packets: a token bucket, an eBPF variant, or a filter that drops.
    Policers,
}

impl OffloadSteps {
    /// Whether the XDP program drops all packets.
    pub fn drops(&self) -> bool {
        self.drops_at.is_some()
    }

    /// Returns the slot of the eBPF variant that the XDP program calls; `None` if it calls none.
    pub fn variant(&self) -> Option<u16> {
        self.variant_at.map(|_| self.variant.0)
    }

    /// Returns the steps in the order in which packets pass them.
    pub fn in_order(&self) -> impl Iterator<Item = OffloadStep> + '_ {
        (0..self.count).map(|step| match step {
            step if self.drops_at == Some(step) => OffloadStep::Drop,
            step if self.polices_at == Some(step) => OffloadStep::Police,
            step if self.variant_at == Some(step) => OffloadStep::Variant(self.variant.1),
            _ => OffloadStep::Count,
        })
    }

    pub(crate) fn add(&mut self, stage: &Stage, step: OffloadStep) -> Result<(), OffloadRefusal> {
        let at = self.count;
        let place = self.bindings.get_mut(usize::from(at)).ok_or(OffloadRefusal::Steps)?;
        *place = stage.binding.to_word();
        self.count += 1;
        let one = match step {
            OffloadStep::Count => return Ok(()),
            OffloadStep::Police => &mut self.polices_at,
            OffloadStep::Variant(_) => &mut self.variant_at,
            OffloadStep::Drop => &mut self.drops_at,
        };
        let is_first = one.is_none();
        *one = Some(at);
        // The XDP program counts all drops in one counter, so only one step may drop.
        let drop = [self.polices_at, self.variant_at, self.drops_at];
        let is_only = drop.iter().flatten().count() == 1;
        if is_first && is_only { Ok(()) } else { Err(OffloadRefusal::Policers) }
    }
}
