//! The worker's side: its gates, instances and bindings, and the way of packets through them.

use millrace_packet::{FlowKey, Packet};
use millrace_plugin_abi::{Message, Packets, Position, Reply, Verdict};
use millrace_units::{GateId, InstanceId, Instant, PathId};

use crate::native::NativeInstances;
use crate::path::{EMPTY_PATH, Paths, Stage};
use crate::slab::{Key, Slab};
use crate::{BindingCounts, BindingId, BindingTable, GateOrder, PluginChange, Remains};

/// A gate with its filter table.
#[derive(Debug)]
pub struct WorkerGate<T> {
    id: GateId,
    position: Position,
    order: GateOrder,
    bindings: u32,
    table: T,
}

impl<T> WorkerGate<T> {
    /// Its id.
    pub fn id(&self) -> GateId {
        self.id
    }

    /// Where in the journey it stands.
    pub fn position(&self) -> Position {
        self.position
    }

    /// How many bindings there are at it.
    pub fn bindings(&self) -> u32 {
        self.bindings
    }

    /// Its filter table.
    pub fn table(&self) -> &T {
        &self.table
    }
}

#[derive(Debug)]
struct Binding {
    gate: GateId,
    instance: InstanceId,
    /// `None` when the instance was not there: the binding has no effect then.
    key: Option<Key>,
    counts: BindingCounts,
}

/// One stage of a path, for those who explain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageOfPath {
    /// The gate.
    pub gate: GateId,
    /// The binding that won there.
    pub binding: BindingId,
    /// Its instance.
    pub instance: InstanceId,
}

/// Packets of a batch that are on the same path.
#[derive(Debug)]
pub struct Group<'a> {
    /// The packets of the batch.
    pub packets: &'a mut [Packet],
    /// Their flow keys, by the same indices.
    pub keys: &'a [FlowKey],
    /// What becomes of them, by the same indices. Those of the members are [`Verdict::Pass`] at first.
    pub verdicts: &'a mut [Verdict],
    /// Indices of the packets that are on the path. Those that don't pass are taken out; the others keep their order.
    pub members: &'a mut Vec<u16>,
}

/// The gates, instances and bindings of a worker. `T` is the kind of filter table at each gate.
pub struct WorkerPlugins<T> {
    /// In the order in which packets meet them.
    gates: Vec<WorkerGate<T>>,
    instances: NativeInstances,
    bindings: Slab<Binding>,
    paths: Paths,
    /// Kept for its memory.
    found: Vec<Stage>,
}

impl<T> std::fmt::Debug for WorkerPlugins<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerPlugins")
            .field("gates", &self.gates.len())
            .field("bindings", &self.bindings)
            .field("paths", &self.paths.len())
            .finish_non_exhaustive()
    }
}

impl<T: BindingTable> Default for WorkerPlugins<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: BindingTable> WorkerPlugins<T> {
    /// No gates and no instances: even the default gates come as changes.
    pub fn new() -> Self {
        Self {
            gates: Vec::new(),
            instances: NativeInstances::default(),
            bindings: Slab::default(),
            paths: Paths::default(),
            found: Vec::new(),
        }
    }

    /// Makes a change that the control side has checked, between two batches.
    ///
    /// Paths found before it stay valid: they skip bindings and instances that are gone, and don't know new ones.
    pub fn apply(&mut self, change: PluginChange<T::Filter>) -> Remains<T> {
        match change {
            PluginChange::AddGate { gate, position, order } => self.add_gate(gate, position, order),
            PluginChange::RemoveGate { gate } => return self.remove_gate(gate),
            PluginChange::AddInstance { id, instance } => {
                return self.instances.add(id, instance).map_or(Remains::Nothing, Remains::Instance);
            }
            PluginChange::RemoveInstance { id } => {
                return self.instances.remove(id).map_or(Remains::Nothing, Remains::Instance);
            }
            PluginChange::Bind { binding, gate, filter, priority, instance } => {
                self.unbind(binding);
                self.bind(binding, gate, instance, |table| table.insert(filter, priority, binding));
            }
            PluginChange::Unbind { binding } => self.unbind(binding),
        }
        Remains::Nothing
    }

    fn add_gate(&mut self, id: GateId, position: Position, order: GateOrder) {
        let place = self.gates.partition_point(|gate| (gate.position, gate.order) <= (position, order));
        self.gates.insert(place, WorkerGate { id, position, order, bindings: 0, table: T::default() });
    }

    fn remove_gate(&mut self, id: GateId) -> Remains<T> {
        let Some(place) = self.gates.iter().position(|gate| gate.id == id) else { return Remains::Nothing };
        let orphans: Vec<_> =
            self.bindings.iter().filter(|(_, binding)| binding.gate == id).map(|(slot, _)| slot).collect();
        for slot in orphans {
            self.bindings.take(slot);
        }
        Remains::Table(self.gates.remove(place).table)
    }

    fn bind(&mut self, id: BindingId, gate: GateId, instance: InstanceId, insert: impl FnOnce(&mut T)) {
        let Some(found) = self.gates.iter_mut().find(|found| found.id == gate) else { return };
        insert(&mut found.table);
        found.bindings += 1;
        let key = self.instances.key(instance);
        self.bindings.put(id.0, Binding { gate, instance, key, counts: BindingCounts::default() });
    }

    fn unbind(&mut self, id: BindingId) {
        let Some(binding) = self.bindings.take(id.0) else { return };
        if let Some(gate) = self.gates.iter_mut().find(|gate| gate.id == binding.gate) {
            gate.table.remove(id);
            gate.bindings -= 1;
        }
    }

    /// The path of a packet's flow: at each gate with bindings the one that wins for it. To be called for the first
    /// packet of a flow, and again when a change concerns it.
    pub fn path_of(&mut self, candidate: &T::Candidate) -> PathId {
        if self.bindings.is_empty() {
            return EMPTY_PATH;
        }
        self.found.clear();
        for gate in self.gates.iter().filter(|gate| gate.bindings > 0) {
            let Some(id) = gate.table.lookup(candidate) else { continue };
            let Some(binding) = self.bindings.key(id.0) else { continue };
            let Some(instance) = self.bindings.get(binding).and_then(|found| found.key) else { continue };
            self.found.push(Stage { position: gate.position, binding, instance });
        }
        self.paths.intern(&self.found)
    }

    /// Whether the path has anything to do at a position.
    #[inline]
    pub fn has_stages(&self, path: PathId, position: Position) -> bool {
        !self.paths.stages_at(path, position).is_empty()
    }

    /// Hands packets to the instances of their path at a position, one after the other; each gets those that the one
    /// before let pass.
    #[inline]
    pub fn run(&mut self, path: PathId, position: Position, group: &mut Group<'_>, now: Instant) {
        for stage in self.paths.stages_at(path, position) {
            if group.members.is_empty() {
                return;
            }
            let Some(binding) = self.bindings.get_mut(stage.binding) else { continue };
            let Some(instance) = self.instances.get_mut(stage.instance) else { continue };
            let Group { packets, keys, verdicts, members } = group;
            binding.counts.packets += members.len() as u64;
            let length = |member: &u16| packets[usize::from(*member)].len() as u64;
            binding.counts.bytes += members.iter().map(length).sum::<u64>();
            instance.process(&mut Packets::new(packets, keys, members, verdicts), now);
            members.retain(|member| match verdicts[usize::from(*member)] {
                Verdict::Pass => true,
                Verdict::Drop => {
                    binding.counts.drops += 1;
                    false
                }
                Verdict::Consume => {
                    binding.counts.consumed += 1;
                    false
                }
            });
        }
    }

    /// Hands a control message to an instance; `None` when there is no such instance.
    pub fn control(&mut self, instance: InstanceId, message: &Message) -> Option<Reply> {
        self.instances.control(instance, message)
    }

    /// What went through a binding; `None` when there is no such binding.
    pub fn counts(&self, binding: BindingId) -> Option<BindingCounts> {
        Some(self.bindings.get(self.bindings.key(binding.0)?)?.counts)
    }

    /// All bindings with what went through them.
    pub fn all_counts(&self) -> impl Iterator<Item = (BindingId, BindingCounts)> + '_ {
        self.bindings.iter().map(|(slot, binding)| (BindingId(slot), binding.counts))
    }

    /// The gates, in the order in which packets meet them.
    pub fn gates(&self) -> &[WorkerGate<T>] {
        &self.gates
    }

    /// What a path consists of, without the stages that are gone.
    pub fn stages(&self, path: PathId) -> impl Iterator<Item = StageOfPath> + '_ {
        self.paths.stages(path).iter().filter_map(|stage| {
            let binding = self.bindings.get(stage.binding)?;
            let id = BindingId(stage.binding.slot);
            Some(StageOfPath { gate: binding.gate, binding: id, instance: binding.instance })
        })
    }

    /// How many different paths are remembered. Changes leave some behind that no flow uses any more.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// Forgets the paths that are not in use; their ids will stand for others. Not for every batch: it looks at all.
    pub fn collect_paths(&mut self, in_use: impl Fn(PathId) -> bool) {
        self.paths.collect(in_use);
    }
}

#[cfg(test)]
mod tests;
