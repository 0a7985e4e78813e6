//! What of a path a program in the driver can do by itself, for the packets of one flow.
//!
//! That is: nothing; counting them for filters whose action is no more than that; dropping them; and taking from one token bucket, or
//! asking the form of one plugin. What the program has done is told to the bindings later, so that it is counted where a worker would
//! have counted it.

use std::sync::Arc;

use millrace_plugin_abi::{DriverMemory, Position};
use millrace_units::{Amount, InstanceId, PathId};

use crate::health::Health;
use crate::path::{Refusal, Stage, Step};
use crate::policer::Policer;
use crate::slab::Key;
use crate::worker_plugins::WorkerPlugins;
use crate::{Action, BindingTable};

/// Bindings that a flow in the driver may meet.
pub const MOST_DRIVER_STEPS: usize = 4;

/// The form of an instance for the driver, which is loaded there.
#[derive(Clone, Debug)]
pub struct LoadedForm {
    /// By which number programs know it.
    pub place: u16,
    /// Instructions that it takes for a packet, at most.
    pub instructions: u32,
    /// What the instance shares with it.
    pub memory: Arc<dyn DriverMemory>,
    /// Whether it may be asked: else packets for the instance stay at the worker.
    pub is_asked: bool,
}

/// What a program does with the packets of a flow, beside forwarding them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverForm {
    /// The bindings that are told, in the order of the journey, as words.
    bindings: [u64; MOST_DRIVER_STEPS],
    count: u8,
    /// Which of them drops what finds no room in its token bucket.
    polices_at: Option<u8>,
    /// Which of them is one of an instance whose form is asked.
    asks_at: Option<u8>,
    /// The place and the instructions of that form.
    asked: (u16, u32),
    /// Which of them drops everything.
    drops_at: Option<u8>,
}

/// A step of such a form, for who tells people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverStep {
    /// Packets are counted.
    Count,
    /// Packets take from a token bucket.
    Police,
    /// The form of a plugin is asked, which takes so many instructions.
    Ask(u32),
    /// Packets are dropped.
    Drop,
}

/// Why a path is a worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverRefusal {
    /// An instance handles its packets that has no form for the driver.
    Instance,
    /// An instance handles its packets that was placed at the workers, or whose form is not loaded.
    Placed,
    /// An instance handles its packets that is not well, or beside which another one is tried out.
    Unwell,
    /// Their sources are told that they are refused.
    Reject,
    /// A filter names a queue for them.
    Queue,
    /// They are copied.
    Copy,
    /// Too many filters match.
    Steps,
    /// There are several token buckets or forms of plugins, or one before a filter that drops.
    Policers,
}

impl DriverForm {
    /// Whether all packets are dropped.
    pub fn drops(&self) -> bool {
        self.drops_at.is_some()
    }

    /// The place of the form of a plugin that is asked.
    pub fn asks(&self) -> Option<u16> {
        self.asks_at.map(|_| self.asked.0)
    }

    /// Its steps.
    pub fn steps(&self) -> impl Iterator<Item = DriverStep> + '_ {
        (0..self.count).map(|step| match step {
            step if self.drops_at == Some(step) => DriverStep::Drop,
            step if self.polices_at == Some(step) => DriverStep::Police,
            step if self.asks_at == Some(step) => DriverStep::Ask(self.asked.1),
            _ => DriverStep::Count,
        })
    }

    fn add(&mut self, stage: &Stage, step: DriverStep) -> Result<(), DriverRefusal> {
        let at = self.count;
        let place = self.bindings.get_mut(usize::from(at)).ok_or(DriverRefusal::Steps)?;
        *place = stage.binding.to_word();
        self.count += 1;
        let one = match step {
            DriverStep::Count => return Ok(()),
            DriverStep::Police => &mut self.polices_at,
            DriverStep::Ask(_) => &mut self.asks_at,
            DriverStep::Drop => &mut self.drops_at,
        };
        let is_first = one.is_none();
        *one = Some(at);
        // What was dropped is told in one number.
        let drop = [self.polices_at, self.asks_at, self.drops_at];
        let is_only = drop.iter().flatten().count() == 1;
        if is_first && is_only { Ok(()) } else { Err(DriverRefusal::Policers) }
    }
}

impl<T: BindingTable> WorkerPlugins<T> {
    /// What a program in the driver is to do with the packets on a path.
    ///
    /// # Errors
    /// Why they are a worker's.
    pub fn driver_form(&self, path: PathId) -> Result<DriverForm, DriverRefusal> {
        let mut form = DriverForm::default();
        for stage in self.paths.stages(path) {
            let Some(binding) = self.bindings.get(stage.binding) else { continue };
            if form.drops() && stage.position == Position::Queue {
                // What was dropped comes to no queue.
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
                    // Nothing behind it gets the packets.
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

    /// The form of an instance, if it may be asked.
    fn asked_form(&self, key: Key) -> Result<&LoadedForm, DriverRefusal> {
        let hosted = self.instances.get(key).ok_or(DriverRefusal::Instance)?;
        let form = hosted.form.as_ref().ok_or(DriverRefusal::Instance)?;
        if hosted.record.health != Health::Well || hosted.shadow.is_some() {
            return Err(DriverRefusal::Unwell);
        }
        if form.is_asked { Ok(form) } else { Err(DriverRefusal::Placed) }
    }

    /// Says what form for the driver an instance has. It shares memory with it from now on, also when the form is gone.
    pub fn set_driver_form(&mut self, id: InstanceId, form: Option<LoadedForm>) {
        let Some(hosted) = self.instances.key(id).and_then(|key| self.instances.get_mut(key)) else { return };
        let known = hosted.form.take().map(|form| form.memory.id());
        if let Some(form) = form.as_ref().filter(|form| known != Some(form.memory.id())) {
            hosted.instance.attach_driver(form.memory.clone());
        }
        hosted.form = form;
    }

    /// The token bucket of a form, if it has one that is still there.
    pub fn driver_policer(&self, form: &DriverForm) -> Option<&Arc<Policer>> {
        let word = *form.bindings.get(usize::from(form.polices_at?))?;
        match &self.bindings.get(Key::from_word(word))?.action {
            Action::Police(policer) => Some(policer),
            _ => None,
        }
    }

    /// Counts at the bindings of a form what a program did: what it sent on, and what it dropped.
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
                && let Some(hosted) = self.instances.get_mut(key)
            {
                // A form has no reasons of its own.
                let [unnamed, ..] = &mut *hosted.drops;
                *unnamed += dropped.packets;
            }
        }
    }
}
