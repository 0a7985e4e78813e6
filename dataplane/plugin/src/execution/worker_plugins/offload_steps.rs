//! Offloaded flows: steps of their paths that the XDP program executes, and their accounting.

use std::time::Duration;

use millrace_plugin_abi::Position;
use millrace_units::{Amount, PathId, QueueId};

use super::WorkerPlugins;
use crate::execution::calls::DriverCharge;
use crate::execution::health::Health;
use crate::execution::instances::{ContextKey, Instances};
use crate::offload_steps::{LoadedVariant, OffloadRefusal, OffloadStep, OffloadSteps};
use crate::path::{Refusal, Step};
use crate::slab::Key;
use crate::{Action, BindingTable};

impl<T: BindingTable> WorkerPlugins<T> {
    /// Returns the steps that the XDP program executes for the packets of a path.
    pub fn offload_steps(&self, path: PathId) -> Result<OffloadSteps, OffloadRefusal> {
        let mut steps = OffloadSteps::default();
        for stage in self.paths.stages(path) {
            let Some(binding) = self.bindings.get(stage.binding) else { continue };
            if steps.drops() && stage.position == Position::Queue {
                // The flow's packets are dropped, and reach no queue.
                break;
            }
            match (stage.position, stage.step) {
                // The XDP program tracks no connections.
                (_, Step::Instance(_)) if stage.tracks => return Err(OffloadRefusal::Instance),
                (Position::Early | Position::Late, Step::Instance(key)) => {
                    let loaded = callable_variant(&self.calls.instances, key)?;
                    steps.add(stage, OffloadStep::Variant(loaded.instructions))?;
                    steps.variant = (loaded.place, loaded.instructions);
                    let time = u32::try_from(loaded.time.as_nanos()).unwrap_or(u32::MAX);
                    let payer = self.bindings.payer(stage).filter(|_| time > 0);
                    steps.paid = payer.map(|payer| (payer, time));
                    if self.is_ahead(&steps) {
                        return Err(OffloadRefusal::Ahead);
                    }
                }
                (_, Step::Instance(_) | Step::HandOver(_)) => return Err(OffloadRefusal::Instance),
                (Position::Copy, _) => return Err(OffloadRefusal::Copy),
                (_, Step::Principal(QueueId(0))) => steps.add(stage, OffloadStep::Count)?,
                (_, Step::Queue(_) | Step::Principal(_)) => return Err(OffloadRefusal::Queue),
                (_, Step::Refuse(Refusal::Reject)) => return Err(OffloadRefusal::Reject),
                (_, Step::Refuse(Refusal::Drop)) => {
                    // After this step, later stages get no packets.
                    steps.add(stage, OffloadStep::Drop)?;
                    break;
                }
                (_, Step::Police) => steps.add(stage, OffloadStep::Police)?,
                (_, Step::Count) => match binding.action {
                    Action::Drop => steps.add(stage, OffloadStep::Drop)?,
                    Action::Reject => return Err(OffloadRefusal::Reject),
                    _ => steps.add(stage, OffloadStep::Count)?,
                },
            }
        }
        Ok(steps)
    }

    /// Whether the principal that pays for the eBPF variant of these steps is ahead of its share, or beyond its limit.
    pub fn is_ahead(&self, steps: &OffloadSteps) -> bool {
        steps.paid.is_some_and(|(payer, _)| self.calls.in_line.holds_back(payer))
    }

    /// Adds packets that the XDP program forwarded or dropped to the counts of the path's bindings.
    pub fn count_offloaded(&mut self, steps: &OffloadSteps, sent: Amount, dropped: Amount) {
        if let Some((payer, time)) = steps.paid.filter(|_| self.calls.is_scheduled) {
            let packets = sent.packets + dropped.packets;
            let time = Duration::from_nanos(packets.saturating_mul(time.into()));
            self.calls.in_line.add_in_driver(DriverCharge { payer, time });
        }
        let first_behind = steps.polices_at.or(steps.variant_at).map_or(u8::MAX, |at| at + 1);
        for (at, word) in (0..steps.count).zip(steps.bindings) {
            let Some(binding) = self.bindings.get_mut(Key::from_word(word)) else { continue };
            let counts = &mut binding.counts;
            let beyond = if at < first_behind { dropped } else { Amount::default() };
            counts.packets += sent.packets + beyond.packets;
            counts.bytes += sent.bytes + beyond.bytes;
            if [steps.drops_at, steps.polices_at, steps.variant_at].contains(&Some(at)) {
                counts.drops += dropped.packets;
            }
            counts.queues.queued += sent;
            if let Some(Step::Instance(key)) = binding.step.filter(|_| dropped.packets > 0)
                && let Some((hosted, _)) = self.calls.instances.get_mut(ContextKey::first(key))
            {
                // The eBPF variant has no drop reasons of its own.
                hosted.counts.dropped(0, dropped.packets);
            }
        }
    }
}

/// Returns the eBPF variant of an instance; as error, the reason that the XDP program may not call the variant.
fn callable_variant(instances: &Instances, key: Key) -> Result<&LoadedVariant, OffloadRefusal> {
    let contexts = instances.get(key).ok_or(OffloadRefusal::Instance)?;
    let variant = contexts.first().variant.as_ref().ok_or(OffloadRefusal::Instance)?;
    if contexts.iter().any(|hosted| hosted.record.health != Health::Well || hosted.shadow.is_some()) {
        return Err(OffloadRefusal::Unwell);
    }
    if variant.is_asked { Ok(variant) } else { Err(OffloadRefusal::Placed) }
}
