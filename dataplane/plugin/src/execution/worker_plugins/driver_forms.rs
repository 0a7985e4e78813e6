//! Offloaded flows: the part of their paths that the XDP program executes, and its accounting.

use millrace_plugin_abi::Position;
use millrace_units::{Amount, PathId};

use super::WorkerPlugins;
use crate::driver_form::{DriverForm, DriverRefusal, DriverStep, LoadedForm};
use crate::execution::health::Health;
use crate::path::{Refusal, Step};
use crate::slab::Key;
use crate::{Action, BindingTable};

impl<T: BindingTable> WorkerPlugins<T> {
    /// Returns the steps that the XDP program executes for the packets of a path.
    ///
    /// # Errors
    /// The reason that the packets stay at the worker.
    pub fn driver_form(&self, path: PathId) -> Result<DriverForm, DriverRefusal> {
        let mut form = DriverForm::default();
        for stage in self.paths.stages(path) {
            let Some(binding) = self.bindings.get(stage.binding) else { continue };
            if form.drops() && stage.position == Position::Queue {
                // Dropped packets reach no queue.
                break;
            }
            match (stage.position, stage.step) {
                (Position::Early | Position::Late, Step::Instance(key)) => {
                    let loaded = self.asked_form(key)?;
                    form.add(stage, DriverStep::Ask(loaded.instructions))?;
                    form.asked = (loaded.place, loaded.instructions);
                }
                (_, Step::Instance(_)) => return Err(DriverRefusal::Instance),
                (Position::Copy, _) => return Err(DriverRefusal::Copy),
                (_, Step::Queue(_)) => return Err(DriverRefusal::Queue),
                (_, Step::Refuse(Refusal::Reject)) => return Err(DriverRefusal::Reject),
                (_, Step::Refuse(Refusal::Drop)) => {
                    // No later stage gets the packets.
                    form.add(stage, DriverStep::Drop)?;
                    break;
                }
                (_, Step::Police) => form.add(stage, DriverStep::Police)?,
                (_, Step::Count) => match binding.action {
                    Action::Drop => form.add(stage, DriverStep::Drop)?,
                    Action::Reject => return Err(DriverRefusal::Reject),
                    _ => form.add(stage, DriverStep::Count)?,
                },
            }
        }
        Ok(form)
    }

    /// Returns the eBPF variant of an instance if the XDP program may call it.
    fn asked_form(&self, key: Key) -> Result<&LoadedForm, DriverRefusal> {
        let hosted = self.calls.instances.get(key).ok_or(DriverRefusal::Instance)?;
        let form = hosted.form.as_ref().ok_or(DriverRefusal::Instance)?;
        if hosted.record.health != Health::Well || hosted.shadow.is_some() {
            return Err(DriverRefusal::Unwell);
        }
        if form.is_asked { Ok(form) } else { Err(DriverRefusal::Placed) }
    }

    /// Adds packets that the XDP program forwarded or dropped to the counts of the form's bindings.
    pub fn driver_did(&mut self, form: &DriverForm, sent: Amount, dropped: Amount) {
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
