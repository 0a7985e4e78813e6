//! Calls of instances: with packets, with control messages, by timers, and at the ends of flows.

mod decision;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
mod group;
mod hot_swap;
mod in_line;
mod meter;
mod resume;
mod slice;
mod tracker;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
mod tracking;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
mod visit;

use millrace_packet::BATCH_SIZE;
use millrace_plugin_abi::{FlowEnd, Message, Progress, Verdict};
use millrace_units::{Instant, PrincipalId};

use crate::CallLimits;
use crate::connection_state::ConnectionStateTables;
use crate::execution::bindings::Binding;
use crate::execution::instances::{ContextKey, Instances};
use crate::execution::waiting::{Answer, Errand, PassedOn, Place, Ticket, WaitingRoom};
use crate::flow_state::FlowStateBlocks;
use crate::path::{Stage, Step};
use crate::principal_memory::PrincipalMemory;
use crate::slab::Key;

use decision::Ports;
pub use group::{Group, Stop, Watch};
pub(crate) use in_line::InLine;
pub use in_line::{DriverCharge, InLineCharge};
pub(crate) use meter::Meter;
pub use meter::{CycleClock, Grant};
pub(crate) use resume::Resumption;
pub use tracker::{TrackConnections, TrackedPacket, Tracking};
pub(crate) use visit::Visit;

/// Result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// The call read no packet, so every packet passes.
    Untouched,
    /// The verdicts are written.
    Decided {
        /// Whether the instance failed in the call.
        failed: bool,
    },
    /// The call is suspended, and resumes in the next iteration.
    Suspended,
    /// Another process runs the call.
    Awaited,
    /// The instance is not running after a fault, or failed in this call.
    Failed,
}

impl Outcome {
    /// Whether the instance has completed the call without a fault.
    fn is_complete(self) -> bool {
        matches!(self, Self::Untouched | Self::Decided { failed: false })
    }
}

/// Instances of a worker, with all data that their calls need besides packets and bindings.
pub(crate) struct Calls {
    pub instances: Instances,
    pub waiting: WaitingRoom,
    /// Whether a CPU scheduler divides the processor. Without one, nobody waits for it, and nobody pays.
    pub is_scheduled: bool,
    /// Principal that has the processor; `None` during the core work of the worker.
    pub running: Option<PrincipalId>,
    /// Stage whose packets have left its queue and run now.
    pub turn: Option<Place>,
    /// Stage at which packets continue that an instance has passed on to another one.
    pub entry: Option<(Place, PassedOn)>,
    /// Stages at which earlier packets of the running flow wait, by their order.
    pub occupied: Vec<u32>,
    /// Meter of the instances' processor time.
    pub meter: Meter,
    pub in_line: InLine,
    /// Flow states.
    pub states: FlowStateBlocks,
    /// Connection states.
    pub connections: ConnectionStateTables,
    /// Memory of the principals.
    pub memory: PrincipalMemory,
    /// Existing ports, to which verdicts may send packets.
    pub ports: Ports,
    /// Limits of errands: calls without packets.
    pub errands: CallLimits,
    scratch: Scratch,
}

/// Buffers of calls, kept for reuse.
pub(crate) struct Scratch {
    /// Verdicts of resumed calls.
    verdicts: Vec<Verdict>,
    /// Numbers of the connections of a call's packets, by packet index.
    numbers: Vec<u32>,
    /// Lists of members.
    spare: Vec<Vec<u16>>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { verdicts: vec![Verdict::Pass; BATCH_SIZE], numbers: vec![0; BATCH_SIZE], spare: Vec::new() }
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            instances: Instances::default(),
            waiting: WaitingRoom::default(),
            is_scheduled: false,
            running: None,
            turn: None,
            entry: None,
            // A stage of a path for each gate at most.
            occupied: Vec::with_capacity(1 << 8),
            meter: Meter::default(),
            in_line: InLine::default(),
            states: FlowStateBlocks::default(),
            connections: ConnectionStateTables::default(),
            memory: PrincipalMemory::default(),
            ports: Ports::default(),
            errands: CallLimits::OF_ERRANDS,
            scratch: Scratch::default(),
        }
    }
}

impl Calls {
    /// Returns the principal that pays for a stage; `None` without a CPU scheduler, an instance or a payer.
    /// `of_path`: payer that a filter on the path gives.
    #[inline]
    pub fn payer(
        &self,
        stage: &Stage,
        binding: &Binding,
        of_path: Option<PrincipalId>,
    ) -> Option<PrincipalId> {
        match stage.step {
            Step::Instance(_) if self.is_scheduled => binding.call_limits.payer(of_path),
            _ => None,
        }
    }

    /// Returns a ticket for packets at `place` if they wait until the CPU scheduler gives the processor to
    /// `payer`, until it is the turn of the stage's queue, or until the instance takes packets. Without a payer,
    /// packets don't wait, nor before calls that run in line.
    #[inline]
    pub fn defer(&mut self, payer: Option<PrincipalId>, binding: &Binding, place: Place) -> Option<Ticket> {
        let payer = payer.filter(|_| self.charged(payer, binding).is_none())?;
        let passed_on = self.passed_on(place);
        if self.running == Some(payer) {
            let queues = binding.instance().is_some_and(|instance| self.is_limited(instance))
                || binding.call_limits.queue.is_some()
                || self.occupied.contains(&binding.order);
            if !queues || self.turn == Some(place) {
                return None;
            }
        }
        Some(self.waiting.defer(payer, (place, passed_on)))
    }

    /// Whether packets for an instance wait in their queues, although their principal runs: another process runs
    /// its calls, which have few packets, or a context takes none.
    fn is_limited(&self, instance: Key) -> bool {
        self.is_awaited(instance) || self.waiting.has_closed_context(instance)
    }

    /// Whether another process runs the calls of an instance.
    fn is_awaited(&self, instance: Key) -> bool {
        let first = self.instances.context(ContextKey::first(instance));
        first.is_some_and(|hosted| hosted.paces.is_awaited())
    }

    /// Returns the instances that have passed on the packets which enter a stage.
    #[inline]
    pub fn passed_on(&self, place: Place) -> PassedOn {
        match self.entry {
            Some((entered, passed_on)) if entered == place => passed_on,
            _ => PassedOn::default(),
        }
    }

    /// Notes that a binding has begun (`is_new`) or ended. The memory of its instance counts at the principal that
    /// pays for all bindings of the instance.
    pub fn note_binding(&mut self, binding: &Binding, is_new: bool) {
        self.connections.note_change(binding.tracks);
        let Some((instance, payer)) = binding.paid_instance() else { return };
        let Some((contexts, _)) = self.instances.contexts_mut(instance) else { return };
        let payer = contexts.note_binding(payer, is_new);
        contexts.set_memory_account(payer.and_then(|payer| self.memory.open(payer)));
    }

    /// Sends a control message to a context without a running call. If the new call is suspended, returns
    /// the errand that the caller must record with `suspend_errand`.
    pub fn begin_control(
        &mut self,
        key: ContextKey,
        message: &Message,
        now: Instant,
        answer: Answer,
    ) -> Option<Errand> {
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

    /// Sends a host companion's message to a context without a running call. If the context pauses, the
    /// message is lost and counted as lost.
    pub fn tell(&mut self, key: ContextKey, bytes: &[u8], now: Instant) -> Progress {
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

    /// Notifies a context without a running call that a flow has ended.
    fn flow_ended(&mut self, key: ContextKey, flow: &FlowEnd, state: &[u8]) -> Progress {
        let Some((hosted, news)) = self.instances.get_mut(key) else { return Progress::Done };
        let progress = hosted.call(|instance| instance.flow_ended(flow, state));
        hosted.take_outputs(news);
        progress
    }

    /// Calls the contexts whose timer is due, except those with a running call.
    fn run_timers(&mut self, now: Instant) {
        let Self { instances, waiting, .. } = self;
        instances.each_timed(|key, hosted, news| {
            let is_due = hosted.instance.next_call().is_some_and(|next| next <= now);
            if is_due && !waiting.is_busy(key) && hosted.is_well(now, news) {
                match hosted.call(|instance| instance.periodic(now)) {
                    Progress::Suspended | Progress::Awaited => waiting.suspend_errand(key, Errand::Own),
                    Progress::Done => _ = hosted.has_failed(now, news),
                }
            }
        });
    }
}
