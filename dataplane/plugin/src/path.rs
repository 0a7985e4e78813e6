//! Paths: lists of bindings, shared by all flows with the same treatment.
//!
//! A path lists the bindings that apply to a flow, in the order in which packets pass them. Flow records and
//! packets in queues count as users of their paths. A path without users is [freed](collection) when it was
//! not used for a while. A path skips removed bindings, so an old reference does no harm.
//!
//! Paths also decide which bindings count a packet later, while the packet is in queues. For this purpose
//! each packet carries the number of its accounting path
//! ([`counts_for`](millrace_packet::Annotations::counts_for)). The accounting path of a packet is its flow's
//! path without the bindings at copy gates. The accounting path of a copy holds only the binding that made
//! the copy. When the packet enters or leaves a queue, each binding of its accounting path counts the packet,
//! unless the binding has been removed.

mod collection;

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;
use millrace_plugin_abi::Position;
use millrace_units::{PathId, PrincipalId, QueueId};

use self::collection::Collection;
use crate::GateOrder;
use crate::flow_state::MOST_BLOCK;
use crate::slab::Key;

/// Path of flows without bindings.
pub const EMPTY_PATH: PathId = PathId(0);

/// Stage of a path: a binding and the step that carries it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stage {
    pub position: Position,
    /// Rank of the stage's gate among all gates. It stays known after the end of the binding.
    pub order: u32,
    pub binding: Key,
    pub step: Step,
    /// Whether the stage is an instance that subscribes to ends of flows.
    pub hears: bool,
    /// Whether the stage is an instance whose state belongs to connections.
    pub tracks: bool,
    /// Part of the flow's state that belongs to the stage's instance.
    pub part: Part,
    /// Last filter of the path that gives a principal. It pays for the calls of the stage's instance, unless the
    /// binding names a principal. `None` without such a filter.
    pub payer: Option<Key>,
}

impl Stage {
    /// Returns the part of a flow's state that belongs to the instance, and whether its state belongs to connections.
    pub fn kept(&self) -> (Part, bool) {
        (self.part, self.tracks)
    }
}

/// Part of a flow's state block that belongs to an instance. A header of the router precedes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Part {
    /// Offset of the part in the block.
    pub offset: u16,
    /// Bytes of the part; 0 if the instance keeps no state.
    pub bytes: u16,
    /// Principal that pays for the part; `None` if nobody pays. If another principal pays from now on, flows get
    /// another path. So each flow releases its state for the principal that it was charged to.
    pub payer: Option<PrincipalId>,
}

impl Part {
    /// Bytes of the router's header in front of each part.
    pub const HEADER: usize = 8;

    /// Returns the byte range of the part in the block.
    pub fn range(self) -> std::ops::Range<usize> {
        let start = usize::from(self.offset);
        start..start + usize::from(self.bytes)
    }

    /// Returns the size of the part with header and padding.
    fn whole(self) -> usize {
        Self::HEADER + usize::from(self.bytes).next_multiple_of(8)
    }
}

/// Returns the parts of a flow's state block: the payer and the bytes of each.
pub(crate) fn parts(stages: &[Stage]) -> impl Iterator<Item = (Option<PrincipalId>, u64)> + Clone {
    stages.iter().enumerate().filter_map(|(index, Stage { part, .. })| {
        // An instance bound at several gates has one part.
        let is_known = stages.iter().take(index).any(|other| other.part.range() == part.range());
        (part.bytes > 0 && !is_known).then(|| (part.payer, part.whole() as u64))
    })
}

/// Assigns each stage its part of a flow's state block, and returns the size of the block. An instance bound
/// at several gates has one part. Stages that no longer fit into the block get none.
pub(crate) fn lay_out(stages: &mut [Stage]) -> usize {
    let mut end = 0;
    for index in 0..stages.len() {
        let Some((before, [stage, ..])) = stages.split_at_mut_checked(index) else { break };
        let Stage { step, part, .. } = *stage;
        if part.bytes == 0 {
            continue;
        }
        if let Some(same) = before.iter().find(|other| other.step == step) {
            stage.part = same.part;
            continue;
        }
        let start = end + Part::HEADER;
        stage.part = if end + part.whole() <= MOST_BLOCK {
            end += part.whole();
            Part { offset: start as u16, ..part }
        } else {
            Part::default()
        };
    }
    end
}

impl Hash for Stage {
    /// Hashes only the binding, because two stages with the same binding are nearly always equal.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.binding.hash(state);
    }
}

/// Way in which a filter refuses packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The worker drops the packets.
    Drop,
    /// The worker drops the packets and sends ICMP errors to their sources.
    Reject,
}

/// Step that carries out a binding's action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// An instance handles the packets.
    Instance(Key),
    /// An instance handles the packets at this other worker, which gets them before they enter the path.
    HandOver(u16),
    /// The stage refuses the packets: no later stage gets them.
    Refuse(Refusal),
    /// The stage selects the queue of the packets.
    Queue(QueueId),
    /// The principal of the stage's filter is the principal of the path. Packets without a queue get this queue
    /// of their egress port; 0 for none.
    Principal(QueueId),
    /// The token bucket of the binding's action drops excess packets.
    Police,
    /// The stage only counts the packets. The flow's route, or the stage that makes copies, carries out the
    /// action.
    Count,
}

/// Path, stored once for all flows with the same stages.
#[derive(Debug)]
struct Path {
    stages: Arc<[Stage]>,
    /// For each position, the number of the path's stages (its bindings) at this and all earlier positions.
    ends: [u16; Position::ALL.len()],
    /// Whether any stage subscribes to ends of flows.
    hears: bool,
    /// Whether the state of any stage's instance belongs to connections.
    tracks: bool,
    /// Bytes of a flow's state block on this path; 0 without flow state.
    state: usize,
    /// Whether all stages are at the positions `early` and `late`.
    through: bool,
    /// Other worker that must take the packets along the path; `None` for this worker.
    worker: Option<u16>,
    /// Accounting paths: the first counts the packets, the second counts the copies that instances at copy
    /// gates send.
    accounts: (PathId, PathId),
    /// Number of flow records, packets in queues and paths that refer to the path.
    users: u32,
    /// Whether the path had no user at its last visit by the collection, and was not used since then.
    quiet: bool,
}

impl Path {
    fn new(stages: Arc<[Stage]>) -> Self {
        // The index of a stage fits into `u16`: a path has at most one binding at each of the 256 gates.
        let ends =
            Position::ALL.map(|position| stages.partition_point(|stage| stage.position <= position) as u16);
        let hears = stages.iter().any(|stage| stage.hears);
        let tracks = stages.iter().any(|stage| stage.tracks);
        let end = |stage: &Stage| match stage.part.bytes {
            0 => 0,
            _ => usize::from(stage.part.offset) - Part::HEADER + stage.part.whole(),
        };
        let state = stages.iter().map(end).max().unwrap_or(0);
        let worker = stages.iter().find_map(|stage| match stage.step {
            Step::HandOver(worker) => Some(worker),
            _ => None,
        });
        let through = stages.iter().all(|stage| matches!(stage.position, Position::Early | Position::Late));
        Self {
            stages,
            ends,
            hears,
            tracks,
            state,
            through,
            worker,
            accounts: (EMPTY_PATH, EMPTY_PATH),
            users: 0,
            quiet: false,
        }
    }

    #[inline]
    fn at(&self, position: Position) -> &[Stage] {
        let index = position as usize;
        let end = |index: usize| usize::from(self.ends.get(index).copied().unwrap_or_default());
        let start = index.checked_sub(1).map_or(0, end);
        self.stages.get(start..end(index)).unwrap_or_default()
    }
}

/// All paths of a worker.
#[derive(Debug)]
pub struct Paths {
    paths: Vec<Path>,
    ids: HashMap<Arc<[Stage]>, PathId, RandomState>,
    /// Empty list of stages, used for the path without bindings and in place of freed paths.
    empty: Arc<[Stage]>,
    collection: Collection,
    /// Reused buffer of stages.
    buffer: Vec<Stage>,
}

impl Default for Paths {
    fn default() -> Self {
        let empty: Arc<[Stage]> = Arc::new([]);
        Self {
            ids: HashMap::from_iter([(empty.clone(), EMPTY_PATH)]),
            paths: vec![Path::new(empty.clone())],
            empty,
            collection: Collection::default(),
            buffer: Vec::new(),
        }
    }
}

impl Paths {
    /// Returns the id of the path with these stages, which are in the order in which packets pass them.
    /// Allocates only for a new path.
    pub(crate) fn intern(&mut self, stages: &[Stage]) -> PathId {
        if let Some(id) = self.ids.get(stages).copied() {
            self.touch(id);
            return id;
        }
        let stages: Arc<[Stage]> = stages.into();
        let id = self.place(Path::new(stages.clone()));
        self.ids.insert(stages.clone(), id);
        let accounts = (self.part(id, &stages, false), self.part(id, &stages, true));
        for account in [accounts.0, accounts.1] {
            if account != id {
                self.hold(account);
            }
        }
        if let Some(path) = self.paths.get_mut(id.index()) {
            path.accounts = accounts;
        }
        id
    }

    /// Returns the id of the path that consists of some of `stages`: those at copy gates if `copies` is set,
    /// otherwise all others. `whole` is the id of the path with all stages.
    fn part(&mut self, whole: PathId, stages: &[Stage], copies: bool) -> PathId {
        let part: Vec<Stage> =
            stages.iter().filter(|stage| (stage.position == Position::Copy) == copies).copied().collect();
        if part.len() == stages.len() { whole } else { self.intern(&part) }
    }

    /// Returns the accounting path of the packets: the stages outside copy gates.
    #[inline]
    pub fn account(&self, id: PathId) -> PathId {
        self.path(id).map_or(EMPTY_PATH, |path| path.accounts.0)
    }

    /// Returns the accounting path of the copies that instances send: the stages at copy gates.
    #[inline]
    pub fn account_of_copies(&self, id: PathId) -> PathId {
        self.path(id).map_or(EMPTY_PATH, |path| path.accounts.1)
    }

    /// Returns the id of the path that consists of a path's stages at one position. It serves packets that
    /// pass only this position.
    #[inline]
    pub fn part_at(&mut self, id: PathId, position: Position) -> PathId {
        let here = self.stages_at(id, position);
        if here.len() == self.stages(id).len() {
            return id;
        }
        let mut stages = std::mem::take(&mut self.buffer);
        stages.clear();
        stages.extend_from_slice(self.stages_at(id, position));
        let part = self.intern(&stages);
        self.buffer = stages;
        part
    }

    /// Returns the keys of an accounting path's bindings, as numbers that are valid at every worker.
    #[inline]
    pub fn bindings_of(&self, account: PathId) -> impl Iterator<Item = u64> + '_ {
        self.stages(account).iter().map(|stage| stage.binding.to_word())
    }

    /// Returns the accounting path of the bindings with these keys.
    pub fn account_of(&mut self, bindings: impl Iterator<Item = u64>) -> PathId {
        let mut stages = std::mem::take(&mut self.buffer);
        stages.clear();
        // No packet passes along an accounting path, so the steps of its stages don't matter.
        stages.extend(bindings.map(|word| Stage {
            position: Position::Early,
            order: 0,
            binding: Key::from_word(word),
            step: Step::Count,
            hears: false,
            tracks: false,
            part: Part::default(),
            payer: None,
        }));
        let account = if stages.is_empty() { EMPTY_PATH } else { self.intern(&stages) };
        self.buffer = stages;
        account
    }

    /// Whether any instance of a path subscribes to ends of flows.
    #[inline]
    pub fn hears_flow_ends(&self, id: PathId) -> bool {
        !self.hearing(id).is_empty()
    }

    /// Whether the packets of the path are tracked: the state of an instance belongs to connections.
    #[inline]
    pub fn tracks(&self, id: PathId) -> bool {
        self.path(id).is_some_and(|path| path.tracks)
    }

    /// Returns the stages of a path; an empty slice for an unknown id.
    #[inline]
    pub(crate) fn stages(&self, id: PathId) -> &[Stage] {
        self.path(id).map_or(&[], |path| &path.stages)
    }

    /// Returns the stages of a path if any of them subscribes to ends of flows; otherwise an empty slice.
    #[inline]
    pub(crate) fn hearing(&self, id: PathId) -> &[Stage] {
        self.path(id).filter(|path| path.hears).map_or(&[], |path| &path.stages)
    }

    /// Returns the bytes of a flow's state block on the path; 0 without flow state.
    #[inline]
    pub fn state(&self, id: PathId) -> usize {
        self.path(id).map_or(0, |path| path.state)
    }

    /// Whether all stages are at the positions `early` and `late`. In such a path, only verdicts can change
    /// the egress port.
    #[inline]
    pub fn is_through(&self, id: PathId) -> bool {
        self.path(id).is_some_and(|path| path.through)
    }

    /// Returns the other worker that must take the packets along a path; `None` for this worker.
    #[inline]
    pub fn worker(&self, id: PathId) -> Option<u16> {
        self.path(id).and_then(|path| path.worker)
    }

    /// Returns the stages of a path at a position.
    #[inline]
    pub(crate) fn stages_at(&self, id: PathId, position: Position) -> &[Stage] {
        self.path(id).map_or(&[], |path| path.at(position))
    }

    /// Returns the rank of the gate in front of the stage `number` of a path at a position; that of the position in front
    /// of its first stage. Ranks of several paths can be compared.
    pub(crate) fn order_before(&self, id: PathId, position: Position, number: u16) -> u32 {
        let before = number.checked_sub(1).map(usize::from);
        let before = before.and_then(|before| self.stages_at(id, position).get(before));
        before.map_or(GateOrder(0).among_all(position), |stage| stage.order)
    }

    #[inline]
    fn path(&self, id: PathId) -> Option<&Path> {
        self.paths.get(id.index())
    }

    /// Returns the number of paths, the empty path included.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    pub(super) fn stage(slot: u32, position: Position) -> Stage {
        let mut slab = Slab::default();
        slab.put(slot, ());
        let key = slab.key(slot).unwrap();
        let (step, part) = (Step::Instance(key), Part::default());
        let order = GateOrder(slot as u16).among_all(position);
        Stage { position, order, binding: key, step, hears: false, tracks: false, part, payer: None }
    }

    #[test]
    fn equal_lists_share_a_path() {
        let mut paths = Paths::default();
        let (early, late) = (stage(1, Position::Early), stage(2, Position::Late));
        let both = paths.intern(&[early, late]);
        assert_eq!(paths.intern(&[early, late]), both);
        assert_ne!(paths.intern(&[late]), both);
        assert_eq!(paths.intern(&[]), EMPTY_PATH);
        assert_eq!(paths.len(), 3);
    }

    #[test]
    fn stages_stand_at_their_positions() {
        let mut paths = Paths::default();
        let stages = [stage(1, Position::Early), stage(2, Position::Early), stage(3, Position::Queue)];
        let id = paths.intern(&stages);
        assert_eq!(paths.stages_at(id, Position::Early), &stages[..2]);
        assert_eq!(paths.stages_at(id, Position::Late), &[]);
        assert_eq!(paths.stages_at(id, Position::Queue), &stages[2..]);
        assert_eq!(paths.stages_at(PathId(99), Position::Queue), &[]);
        assert_eq!(paths.stages(id), &stages);
    }

    #[test]
    fn an_instance_has_one_part_of_a_flows_state() {
        let part = Part { bytes: 12, ..Part::default() };
        let with_part = |slot, position| Stage { part, ..stage(slot, position) };
        let mut stages = [
            with_part(1, Position::Early),
            stage(2, Position::Early),
            with_part(3, Position::Late),
            with_part(1, Position::Late),
        ];
        stages[3].step = stages[0].step;
        assert_eq!(lay_out(&mut stages), 48);
        assert_eq!(stages.map(|stage| stage.part.offset), [8, 0, 32, 8]);
        let mut paths = Paths::default();
        let id = paths.intern(&stages);
        assert_eq!((paths.state(id), paths.state(EMPTY_PATH)), (48, 0));
    }

    #[test]
    fn a_block_has_a_limit() {
        let part = Part { bytes: 256, ..Part::default() };
        let mut stages: Vec<_> =
            (0..100).map(|slot| Stage { part, ..stage(slot, Position::Early) }).collect();
        for (slot, stage) in (0..).zip(&mut stages) {
            let mut slab = Slab::default();
            slab.put(slot, ());
            stage.step = Step::Instance(slab.key(slot).unwrap());
        }
        assert!(lay_out(&mut stages) <= MOST_BLOCK);
        assert!(stages[0].part.bytes == 256 && stages[99].part.bytes == 0);
    }
}
