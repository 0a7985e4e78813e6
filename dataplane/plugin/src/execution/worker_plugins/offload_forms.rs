//! Offloaded flows: the part of their paths that the XDP program executes, and its accounting.

use millrace_plugin_abi::Position;
use millrace_units::{Amount, PathId};

use super::WorkerPlugins;
use crate::execution::health::Health;
use crate::offload_form::{LoadedForm, OffloadForm, OffloadRefusal, OffloadStep};
use crate::path::{Refusal, Step};
use crate::slab::Key;
use crate::{Action, BindingTable};

impl<T: BindingTable> WorkerPlugins<T> {
    /// Returns the steps that the XDP program executes for the packets of a path.
    pub fn offload_form(&self, path: PathId) -> Result<OffloadForm, OffloadRefusal> {
        let mut form = OffloadForm::default();
        for stage in self.paths.stages(path) {
            let Some(binding) = self.bindings.get(stage.binding) else { continue };
            if form.drops() && stage.position == Position::Queue {
                // Dropped packets reach no queue.
                break;
            }
            match (stage.position, stage.step) {
                (Position::Early | Position::Late, Step::Instance(key)) => {
                    let loaded = self.asked_form(key)?;
                    form.add(stage, OffloadStep::Ask(loaded.instructions))?;
                    form.asked = (loaded.place, loaded.instructions);
                }
                (_, Step::Instance(_)) => return Err(OffloadRefusal::Instance),
                (Position::Copy, _) => return Err(OffloadRefusal::Copy),
                (_, Step::Queue(_)) => return Err(OffloadRefusal::Queue),
                (_, Step::Refuse(Refusal::Reject)) => return Err(OffloadRefusal::Reject),
                (_, Step::Refuse(Refusal::Drop)) => {
                    // No later stage gets the packets.
                    form.add(stage, OffloadStep::Drop)?;
                    break;
                }
                (_, Step::Police) => form.add(stage, OffloadStep::Police)?,
                (_, Step::Count) => match binding.action {
                    Action::Drop => form.add(stage, OffloadStep::Drop)?,
                    Action::Reject => return Err(OffloadRefusal::Reject),
                    _ => form.add(stage, OffloadStep::Count)?,
                },
            }
        }
        Ok(form)
    }

    /// Returns the eBPF variant of an instance if the XDP program may call it.
    fn asked_form(&self, key: Key) -> Result<&LoadedForm, OffloadRefusal> {
        let hosted = self.calls.instances.get(key).ok_or(OffloadRefusal::Instance)?;
        let form = hosted.form.as_ref().ok_or(OffloadRefusal::Instance)?;
        if hosted.record.health != Health::Well || hosted.shadow.is_some() {
            return Err(OffloadRefusal::Unwell);
        }
        if form.is_asked { Ok(form) } else { Err(OffloadRefusal::Placed) }
    }

    /// Adds packets that the XDP program forwarded or dropped to the counts of the form's bindings.
    pub fn count_offloaded(&mut self, form: &OffloadForm, sent: Amount, dropped: Amount) {
        let first_behind = form.polices_at.or(form.asks_at).map_or(u8::MAX, |at| at + 1);
        for (at, word) in (0..form.count).zip(form.bindings) {
            let Some(binding) = self.bindings.get_mut(Key::from_word(word)) else { continue };
            let counts = &mut binding.counts;
            let beyond = if at < first_behind { dropped } else { Amount::default() };
            counts.packets += sent.packets + beyond.packets;
            counts.bytes += sent.bytes + beyond.bytes;
            if [form.drops_at, form.polices_at, form.asks_at].contains(&Some(at)) {
                counts.drops += dropped.packets;
            }
            counts.queues.queued += sent;
            if let Some(Step::Instance(key)) = binding.step.filter(|_| dropped.packets > 0)
                && let Some((hosted, _)) = self.calls.instances.get_mut(key)
            {
                // The eBPF variant has no drop reasons of its own.
                hosted.counts.dropped(0, dropped.packets);
            }
        }
    }
}
