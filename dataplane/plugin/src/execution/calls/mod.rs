//! Calls of instances: with packets, with control messages, by timers, and at the ends of flows.

mod decision;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
mod group;
mod hot_swap;
mod resume;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
mod visit;

use millrace_packet::BATCH_SIZE;
use millrace_plugin_abi::{FlowEnd, FlowStates, Message, Progress, Verdict};
use millrace_units::{InstanceId, Instant, PathId};

use crate::CallLimits;
use crate::execution::instances::Instances;
use crate::execution::waiting::{Answer, Asked, Errand, WaitingRoom};
use crate::flow_state::FlowStateBlocks;
use crate::path::{Part, Paths, Stage, Step};
use crate::slab::Key;

use decision::Ports;
pub use group::{Group, Stop, Watch};
pub(crate) use resume::Resumption;
pub(crate) use visit::Visit;

/// Result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// Every packet passes, and none was read.
    Untouched,
    /// The verdicts are written.
    Decided,
    /// The call is suspended.
    Suspended,
    /// The instance failed now or earlier.
    Failed,
}

/// Instances of a worker, with all data that their calls need besides packets and bindings.
pub(crate) struct Calls {
    pub instances: Instances,
    pub waiting: WaitingRoom,
    /// Flow states.
    pub states: FlowStateBlocks,
    /// Ports to which verdicts may send packets.
    pub ports: Ports,
    /// Limits of calls without packets.
    pub errands: CallLimits,
    /// Buffer for the verdicts of resumed calls.
    verdicts: Vec<Verdict>,
    /// Reused lists of members.
    spare: Vec<Vec<u16>>,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            instances: Instances::default(),
            waiting: WaitingRoom::default(),
            states: FlowStateBlocks::default(),
            ports: Ports::default(),
            errands: CallLimits::OF_ERRANDS,
            verdicts: vec![Verdict::Pass; BATCH_SIZE],
            spare: Vec::new(),
        }
    }
}

impl Calls {
    /// Sends a control message to an instance. `answer` receives the reply, now or after the instance's
    /// current call. It receives `None` if the instance doesn't exist.
    pub fn control(&mut self, id: InstanceId, message: &Message, now: Instant, answer: Answer) {
        let Some(key) = self.instances.key(id) else { return answer(None) };
        if self.waiting.is_busy(key) {
            self.waiting.ask(key, Asked::Message(message.clone(), answer));
        } else if let Some(errand) = self.begin_control(key, message, now, answer) {
            self.waiting.suspend_errand(key, errand);
        }
    }

    /// Sends a control message to an idle instance. Returns the errand if the call is suspended.
    fn begin_control(&mut self, key: Key, message: &Message, now: Instant, answer: Answer) -> Option<Errand> {
        let Some((hosted, news)) = self.instances.get_mut(key) else {
            answer(None);
            return None;
        };
        let Some(reply) = hosted.call(|instance| instance.begin_control(message)) else {
            return Some(Errand::Control(answer));
        };
        hosted.has_failed(now, news);
        answer(Some(reply));
        None
    }

    /// Sends an instance a message of the other half of its plugin, now or after its current call. A message
    /// is lost and counted if the instance pauses or too many messages wait.
    pub fn message(&mut self, id: InstanceId, bytes: Vec<u8>, now: Instant) {
        let Some(key) = self.instances.key(id) else { return };
        if !self.waiting.is_busy(key) {
            if self.tell(key, &bytes, now) == Progress::Suspended {
                self.waiting.suspend_errand(key, Errand::Own);
            }
        } else if !self.waiting.ask(key, Asked::Tell(bytes)) {
            self.instances.count_messages(id, |messages| messages.lost += 1);
        }
    }

    /// Sends a message to an idle instance. The message is lost and counted if the instance pauses.
    fn tell(&mut self, key: Key, bytes: &[u8], now: Instant) -> Progress {
        let Some((hosted, news)) = self.instances.get_mut(key) else { return Progress::Done };
        if !hosted.is_well(now, news) {
            hosted.counts.messages.lost += 1;
            return Progress::Done;
        }
        hosted.counts.messages.heard += 1;
        let progress = hosted.call(|instance| instance.message(bytes));
        if progress == Progress::Done {
            hosted.has_failed(now, news);
        }
        progress
    }

    /// Runs the timers of idle instances that are due.
    fn run_timers(&mut self, now: Instant) {
        let Self { instances, waiting, .. } = self;
        instances.each_timed(|key, hosted, news| {
            let is_due = hosted.instance.next_call().is_some_and(|next| next <= now);
            if is_due && !waiting.is_busy(key) && hosted.is_well(now, news) {
                match hosted.call(|instance| instance.periodic(now)) {
                    Progress::Suspended => waiting.suspend_errand(key, Errand::Own),
                    Progress::Done => _ = hosted.has_failed(now, news),
                }
            }
        });
    }

    /// Notifies the instances on the path `old` but not on `new` that the flow has ended for them. Returns
    /// the flow's new state block. The state of instances on both paths moves to the new block.
    pub fn flow_moved(
        &mut self,
        paths: &Paths,
        (old, state): (PathId, u32),
        new: PathId,
        flow: &FlowEnd,
    ) -> u32 {
        let Self { instances, states, waiting, .. } = self;
        let (hearing, stages) = (paths.hearing(old), paths.stages(new));
        for (index, stage) in hearing.iter().enumerate() {
            let is_same = |other: &Stage| other.step == stage.step;
            if stage.hears
                && let Step::Instance(key) = stage.step
                && !hearing.iter().take(index).any(is_same)
                && !stages.iter().any(is_same)
                && let Some((hosted, news)) = instances.get_mut(key)
            {
                let part = stage.part.range();
                let kept = states.block(state).and_then(|block| block.get(part)).unwrap_or_default();
                if hosted.call(|instance| instance.flow_ended(flow, kept)) == Progress::Suspended {
                    waiting.suspend_errand(key, Errand::Own);
                }
                hosted.take_outputs(news);
            }
        }
        let moved = self.begin_state(paths, new);
        if state != 0 && moved != 0 {
            move_parts(&mut self.states, (paths.stages(old), state), (stages, moved));
        }
        self.states.give_back(state);
        moved
    }

    /// Allocates the state block of a flow on a path. Returns its number, or 0 if the path needs no state or
    /// no memory is left.
    #[inline]
    pub fn begin_state(&mut self, paths: &Paths, path: PathId) -> u32 {
        match paths.state(path) {
            0 => 0,
            bytes => self.states.take(bytes),
        }
    }

    /// Returns the time at which a waiting packet, a timer or a pause is due; `None` if nothing is pending.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        self.instances.next_event().into_iter().chain(self.waiting.next_event(now)).min()
    }

    /// Whether no packet waits, and no instance has timers or a pause.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.instances.is_idle()
    }
}

/// Copies the state of the instances that are on both paths.
fn move_parts(states: &mut FlowStateBlocks, (old, from): (&[Stage], u32), (new, to): (&[Stage], u32)) {
    for stage in new.iter().filter(|stage| stage.part.bytes > 0) {
        if let Some(before) = old.iter().find(|other| other.step == stage.step && other.part.bytes > 0) {
            let bytes = Part::HEADER + usize::from(stage.part.bytes.min(before.part.bytes));
            let start = |part: Part| usize::from(part.offset) - Part::HEADER;
            states.copy((from, start(before.part)), (to, start(stage.part)), bytes);
        }
    }
}
