//! Stages of paths at which packets wait for the processor, as the CPU scheduler sees them.

use millrace_plugin_abi::Position;
use millrace_units::{Cycles, PathId, PrincipalId, QueueId};

use crate::execution::bindings::Binding;
use crate::execution::calls::Calls;
use crate::execution::waiting::{AwaitedContext, Place, Ticket, Waiting};
use crate::execution::worker_plugins::WorkerPlugins;
use crate::path::{Stage, Step};
use crate::slab::Key;
use crate::{Action, BindingTable, ProcessorWait};

/// Stage at which packets wait for the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaidStage {
    /// Key of the binding, as a number.
    pub binding: u64,
    /// Place of the stage's gate in the order of all gates: packets pass lower numbers first.
    pub order: u32,
    /// Weight among the stages of a flow.
    pub weight: u16,
    /// Whether calls of the stage can run in line, so its packets wait only while their principal is held back.
    pub in_line: bool,
    /// Queue of the port whose scheduler pulls packets from the queue of the stage: they wait until the
    /// scheduler needs them. So it is for a stage with a queue behind forwarding; `None` for others. The number
    /// is for packets without a queue of the port yet; 0 is the default queue.
    pub pulled_by: Option<QueueId>,
    /// Moving average of the cycles of a packet, from this stage to its next wait; `None` before the first
    /// packet.
    pub cost: Option<Cycles>,
}

/// Packets that an instance takes from the queue of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Intake {
    /// Maximum number of packets; 0 while others have to pass first.
    pub most: u64,
    /// Context that takes them, if another process runs its calls. Principals take turns there.
    pub awaited: Option<AwaitedContext>,
}

impl Intake {
    /// Intake of a stage that takes all packets.
    const ALL: Self = Self { most: u64::MAX, awaited: None };
}

/// Questions about the stages at which packets wait for the processor.
pub struct PaidStages<'a, T> {
    plugins: &'a WorkerPlugins<T>,
}

impl<'a, T: BindingTable> PaidStages<'a, T> {
    /// Returns the handle on the stages of a worker.
    #[inline]
    pub fn of(plugins: &'a WorkerPlugins<T>) -> Self {
        Self { plugins }
    }

    /// Returns a stage; `None` if its binding was removed.
    #[inline]
    pub fn at(&self, place: Place) -> Option<PaidStage> {
        let (stage, binding) = self.binding_at(place)?;
        let weight = binding.call_limits.queue.unwrap_or(1);
        let is_pulled = binding.call_limits.queue.is_some() && place.position == Position::Queue;
        let pulled_by = is_pulled.then_some(binding.call_limits.link_queue);
        let cost = (binding.cost != 0).then_some(Cycles(binding.cost));
        let in_line = binding.call_limits.in_line.is_some();
        let (binding, order) = (stage.binding.to_word(), binding.order);
        Some(PaidStage { binding, order, weight, in_line, pulled_by, cost })
    }

    /// Returns the principal that pays for a stage; `None` if nobody pays, or its binding was removed.
    #[inline]
    pub fn payer_at(&self, place: Place) -> Option<PrincipalId> {
        self.plugins.bindings.payer(self.binding_at(place)?.0)
    }

    /// Whether a packet that continues at a place waits for the processor there, or at a later stage.
    pub fn will_wait(&self, place: Place) -> bool {
        let stages = |position: Position| self.plugins.paths.stages_at(place.path, position).iter();
        let here = stages(place.position).skip(place.stage.into());
        let later = Position::ALL.into_iter().filter(|position| *position > place.position).flat_map(stages);
        here.chain(later.filter(|stage| stage.position != Position::Copy)).any(|stage| {
            let binding = self.plugins.bindings.get(stage.binding);
            let payer = self.plugins.bindings.payer(stage);
            binding.is_some_and(|binding| self.plugins.calls.wait(payer, binding).is_some())
        })
    }

    /// Returns how many packets the instance of a stage takes from the queue with this first packet. The others stay
    /// there: its principal pays for their memory, and the CPU scheduler decides who is next. None leaves the queue
    /// while earlier packets of its flow are in a call of another binding at the gate, which has ended.
    pub fn intake(&self, first: &Waiting) -> Intake {
        let Some((stage, binding)) = self.binding_at(first.place) else { return Intake::ALL };
        let Calls { instances, waiting, .. } = &self.plugins.calls;
        if waiting.followers.holds(stage.order, &first.key) {
            return Intake { most: 0, awaited: None };
        }
        // The path may name an instance that an upgrade has replaced.
        let Some(instance) = binding.instance() else { return Intake::ALL };
        let passed_on = first.passed_on.to.map(|to| instances.added_with(to));
        let Some(instance) = passed_on.unwrap_or(Some(instance)) else { return Intake::ALL };
        let context = instances.context_of(instance, &first.key);
        let Some(hosted) = instances.context(context) else { return Intake::ALL };
        let most = if waiting.is_closed(context) { 0 } else { hosted.most_in_call(first.payer) as u64 };
        let awaits = hosted.paces.is_awaited() && hosted.is_running();
        Intake { most, awaited: AwaitedContext::of(context, instances).filter(|_| awaits) }
    }

    /// Whether a context takes packets, because none of its calls runs; `None` if it exists no longer.
    pub fn takes(&self, context: &AwaitedContext) -> Option<bool> {
        let Calls { instances, waiting, .. } = &self.plugins.calls;
        let key = context.key(instances)?;
        instances.context(key).map(|_| !waiting.is_closed(key))
    }

    /// Returns the principals that pay for the stages of a path, except the stages of copies. Without paid stages,
    /// returns the principal that a filter gives to the path.
    pub fn owners(&self, path: PathId) -> impl Iterator<Item = PrincipalId> + use<'a, T> {
        let WorkerPlugins { paths, bindings, .. } = self.plugins;
        let positions = Position::ALL.into_iter().filter(|position| *position != Position::Copy);
        let stages = positions.flat_map(move |position| paths.stages_at(path, position));
        let mut paid = stages.filter_map(|stage| bindings.payer(stage)).peekable();
        let given = |stage: &Stage| match stage.step {
            Step::Principal(_) => bindings.get(stage.binding)?.call_limits.principal,
            _ => None,
        };
        let given = match paid.peek() {
            None => paths.stages(path).iter().rev().find_map(given),
            Some(_) => None,
        };
        paid.chain(given)
    }

    /// Returns the payer of packets with this accounting path. The principal that a binding names comes before that of
    /// the last filter, and this one before the payer of bindings that name none.
    pub fn payer_of_account(&self, account: PathId) -> Option<PrincipalId> {
        let (named, unnamed) = self.payers_of_account(account);
        named.or(unnamed)
    }

    /// Returns the payer of packets with this accounting path that a binding or filter names.
    pub fn named_payer_of_account(&self, account: PathId) -> Option<PrincipalId> {
        self.payers_of_account(account).0
    }

    /// Returns the payer that a binding or filter of an accounting path names, and that of bindings that name none.
    fn payers_of_account(&self, account: PathId) -> (Option<PrincipalId>, Option<PrincipalId>) {
        let WorkerPlugins { paths, bindings, .. } = self.plugins;
        let (mut given, mut unnamed) = (None, None);
        for word in paths.bindings_of(account) {
            let Some(binding) = bindings.get(Key::from_word(word)) else { continue };
            let Some(payer) = binding.call_limits.principal else { continue };
            match binding.action {
                Action::Principal(_) => given = Some(payer),
                _ if binding.call_limits.names_principal() => return (Some(payer), None),
                _ => unnamed = Some(payer),
            }
        }
        (given, unnamed)
    }

    /// Returns the principals that pay for stages of a path, once for each stage.
    pub fn payers(&self, path: PathId) -> impl Iterator<Item = PrincipalId> {
        let stages = self.plugins.paths.stages(path).iter();
        stages.filter_map(|stage| self.plugins.bindings.payer(stage))
    }

    /// Returns the wait of a packet with this ticket; `None` if it doesn't wait for the processor.
    pub fn wait_of(&self, ticket: Ticket) -> Option<ProcessorWait> {
        let (stage, binding) = self.binding_at(self.plugins.calls.waiting.deferred(ticket)?)?;
        self.plugins.calls.wait(self.plugins.bindings.payer(stage), binding)
    }

    #[inline]
    fn binding_at(&self, place: Place) -> Option<(&'a Stage, &'a Binding)> {
        let stages = self.plugins.paths.stages_at(place.path, place.position);
        let stage = stages.get(usize::from(place.stage))?;
        Some((stage, self.plugins.bindings.get(stage.binding)?))
    }
}
