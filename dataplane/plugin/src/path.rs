//! Paths: the treatment of a flow, interned, so that all flows with the same share one.
//!
//! A path is the list of the bindings that a flow meets, in the order of the journey. Ids stay valid as long
//! as the worker runs: nobody counts who refers to a path. One that names a binding which is gone simply skips it, so a
//! reference that is old does no harm.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;
use millrace_plugin_abi::Position;
use millrace_units::{PathId, QueueId};

use crate::flow_state::MOST_BLOCK;
use crate::slab::Key;

/// The path of flows that are bound nowhere.
pub const EMPTY_PATH: PathId = PathId(0);

/// One binding of a path, with its instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stage {
    pub position: Position,
    pub binding: Key,
    pub step: Step,
    /// Whether it is an instance that is told of the ends of flows.
    pub hears: bool,
    /// Its part of the state of a flow.
    pub part: Part,
}

/// The part of a flow's block of state that belongs to an instance. Before it stand 8 bytes of the router's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Part {
    /// Where it begins in the block.
    pub offset: u16,
    /// Its bytes; 0 when the instance keeps no state.
    pub bytes: u16,
}

impl Part {
    /// Bytes of what stands before it.
    pub const HEADER: usize = 8;

    /// Where it stands in a block.
    pub fn range(self) -> std::ops::Range<usize> {
        let start = usize::from(self.offset);
        start..start + usize::from(self.bytes)
    }

    /// Bytes of the part with what stands before and behind it.
    fn whole(self) -> usize {
        Self::HEADER + usize::from(self.bytes).next_multiple_of(8)
    }
}

/// Gives each stage its part of a flow's block; an instance that stands at several gates has one. Stages for which there is
/// no room get none. Returns the bytes of the block.
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
    /// Of two stages that differ, hardly ever the bindings are the same.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.binding.hash(state);
    }
}

/// How a filter refuses packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// They are dropped.
    Drop,
    /// They are dropped, and their sources are told.
    Reject,
}

/// What a stage does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// An instance handles the packets.
    Instance(Key),
    /// They are refused: no later stage gets them.
    Refuse(Refusal),
    /// They are told which queue to wait in.
    Queue(QueueId),
    /// They take from the token bucket of their binding's action, or are dropped.
    Police,
    /// They are counted: what becomes of them stands in the route of their flow, or is done by who makes copies.
    Count,
}

/// An interned list of stages.
#[derive(Debug)]
struct Path {
    stages: Arc<[Stage]>,
    /// For each position, in order, how many stages stand at it or before.
    ends: [u16; Position::ALL.len()],
    /// Whether any stage is told of the ends of flows.
    hears: bool,
    /// Bytes of state for each flow.
    state: usize,
    /// Whether all stages stand at the positions `early` and `late`.
    through: bool,
    /// The path whose bindings count its packets in queues, and the one whose bindings count copies that instances send.
    accounts: (PathId, PathId),
}

impl Path {
    fn new(stages: Arc<[Stage]>) -> Self {
        // There are at most 256 gates, and one binding at each.
        let ends =
            Position::ALL.map(|position| stages.partition_point(|stage| stage.position <= position) as u16);
        let hears = stages.iter().any(|stage| stage.hears);
        let end = |stage: &Stage| match stage.part.bytes {
            0 => 0,
            _ => usize::from(stage.part.offset) - Part::HEADER + stage.part.whole(),
        };
        let state = stages.iter().map(end).max().unwrap_or(0);
        let through = stages.iter().all(|stage| matches!(stage.position, Position::Early | Position::Late));
        Self { stages, ends, hears, state, through, accounts: (EMPTY_PATH, EMPTY_PATH) }
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
pub(crate) struct Paths {
    paths: Vec<Path>,
    ids: HashMap<Arc<[Stage]>, PathId, RandomState>,
}

impl Default for Paths {
    fn default() -> Self {
        let empty: Arc<[Stage]> = Arc::new([]);
        Self { ids: HashMap::from_iter([(empty.clone(), EMPTY_PATH)]), paths: vec![Path::new(empty)] }
    }
}

impl Paths {
    /// The id of the path of these stages, which stand in the order of the journey. It allocates only for a path that is
    /// new.
    pub fn intern(&mut self, stages: &[Stage]) -> PathId {
        if let Some(id) = self.ids.get(stages) {
            return *id;
        }
        let stages: Arc<[Stage]> = stages.into();
        self.paths.push(Path::new(stages.clone()));
        let id = PathId((self.paths.len() - 1) as u32);
        self.ids.insert(stages.clone(), id);
        let accounts = (self.part(id, &stages, false), self.part(id, &stages, true));
        if let Some(path) = self.paths.get_mut(id.index()) {
            path.accounts = accounts;
        }
        id
    }

    /// The path of those stages of a path that stand at gates for copies, or of the others.
    fn part(&mut self, whole: PathId, stages: &[Stage], copies: bool) -> PathId {
        let part: Vec<Stage> =
            stages.iter().filter(|stage| (stage.position == Position::Copy) == copies).copied().collect();
        if part.len() == stages.len() { whole } else { self.intern(&part) }
    }

    /// The path whose bindings count the packets of a path in queues: without those at gates for copies, which count copies.
    #[inline]
    pub fn account(&self, id: PathId) -> PathId {
        self.path(id).map_or(EMPTY_PATH, |path| path.accounts.0)
    }

    /// The path whose bindings count what instances make of copies of a path's packets.
    #[inline]
    pub fn account_of_copies(&self, id: PathId) -> PathId {
        self.path(id).map_or(EMPTY_PATH, |path| path.accounts.1)
    }

    /// The stages of a path; none for an id that is none's.
    #[inline]
    pub fn stages(&self, id: PathId) -> &[Stage] {
        self.path(id).map_or(&[], |path| &path.stages)
    }

    /// The same, when any of them is told of the ends of flows; else none.
    #[inline]
    pub fn hearing(&self, id: PathId) -> &[Stage] {
        self.path(id).filter(|path| path.hears).map_or(&[], |path| &path.stages)
    }

    /// Bytes of state for each flow of a path.
    #[inline]
    pub fn state(&self, id: PathId) -> usize {
        self.path(id).map_or(0, |path| path.state)
    }

    /// Whether the stages of a path leave alone which way packets take, and what is copied, unless a verdict says otherwise: all
    /// stand at the positions `early` and `late`.
    #[inline]
    pub fn is_through(&self, id: PathId) -> bool {
        self.path(id).is_some_and(|path| path.through)
    }

    /// The stages of a path at a position.
    #[inline]
    pub fn stages_at(&self, id: PathId, position: Position) -> &[Stage] {
        self.path(id).map_or(&[], |path| path.at(position))
    }

    #[inline]
    fn path(&self, id: PathId) -> Option<&Path> {
        self.paths.get(id.index())
    }

    /// How many paths there are, the empty one included.
    pub fn len(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    fn stage(slot: u32, position: Position) -> Stage {
        let mut slab = Slab::default();
        slab.put(slot, ());
        let key = slab.key(slot).unwrap();
        Stage { position, binding: key, step: Step::Instance(key), hears: false, part: Part::default() }
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
        let part = Part { offset: 0, bytes: 12 };
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
        let part = Part { offset: 0, bytes: 256 };
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
