//! Group: packets of a batch with the same path, which pass its stages together.

use std::fmt;

use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin_abi::{Backlogs, Position, Verdict};
use millrace_units::{GateId, InstanceId, Instant, PrincipalId, QueueId};

use super::tracker::Tracking;
use crate::execution::bindings::Binding;
use crate::execution::recheck::{Malformed, recheck_behind};
use crate::execution::waiting::{End, Taken};
use crate::path::{Refusal, Stage};
use crate::{BindingCounts, BindingId, Direction, Policer};

/// Stage of a path, as observers and `lookup` report it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// Gate of the stage.
    pub gate: GateId,
    /// Binding at the gate.
    pub binding: BindingId,
    /// Instance of the binding; `None` if the binding's action is no instance.
    pub instance: Option<InstanceId>,
    /// Principal that is charged for the call, which runs in line.
    pub charged: Option<PrincipalId>,
}

impl Stop {
    /// Returns the stage of a binding. `charged`: principal that is charged for a call in line.
    #[inline]
    pub(crate) fn of(stage: &Stage, binding: &Binding, charged: Option<PrincipalId>) -> Self {
        Self {
            gate: binding.gate,
            binding: BindingId(stage.binding.slot),
            instance: binding.action.instance(),
            charged,
        }
    }
}

/// Observer of packets at the stages of their path. Methods without an implementation cost nothing.
pub trait Watch {
    /// Called before the members of a group enter a stage.
    #[inline(always)]
    fn before(&mut self, group: &Group<'_>, at: Stop) {
        let _ = (group, at);
    }

    /// Called after a stage, once with the packets that continue (`refusal` is `None`), or once with the
    /// packets that the stage refuses.
    #[inline(always)]
    fn after(&mut self, group: &Group<'_>, at: Stop, refusal: Option<Refusal>) {
        let _ = (group, at, refusal);
    }
}

/// Observer that does nothing.
impl Watch for () {}

/// Packets of a batch with the same path.
pub struct Group<'a> {
    /// Packets of the batch.
    pub packets: &'a mut [Packet],
    /// Flow keys, with the same indices as `packets`.
    pub keys: &'a [FlowKey],
    /// Flow state block numbers, with the same indices as `packets`.
    pub states: &'a [u32],
    /// Verdicts, with the same indices as `packets`. All are [`Verdict::Pass`] before and after the group
    /// passes its stages.
    pub verdicts: &'a mut [Verdict],
    /// Indices of the packets that are still on the path, in ascending order: the members of the group.
    /// Stages remove the packets that don't pass.
    pub members: &'a mut Vec<u16>,
    /// Total bytes of the members; `None` if a stage may have changed it.
    pub bytes: &'a mut Option<u64>,
    /// Receives the removed members with the reason for their removal.
    pub taken: &'a mut Vec<(u16, Taken)>,
    /// List of the members for which an instance chose egress ports. If a packet has several entries, the
    /// last one applies.
    pub directed: &'a mut Vec<(u16, Direction)>,
    /// Source of the queue backlogs that instances may read.
    pub queues: &'a dyn Backlogs,
    /// Connections of the packets; `None` if no stage of the path needs them.
    pub tracking: Option<Tracking<'a>>,
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("members", &self.members).finish_non_exhaustive()
    }
}

impl Group<'_> {
    /// Returns the total bytes of the members.
    #[inline]
    pub(crate) fn total_bytes(&mut self) -> u64 {
        let length = |member: &u16| self.packets[usize::from(*member)].len() as u64;
        *self.bytes.get_or_insert_with(|| self.members.iter().map(length).sum::<u64>())
    }

    /// Makes the members linear, as far as their first frames have room.
    #[inline]
    pub(crate) fn gather(&mut self) {
        for member in &*self.members {
            self.packets[usize::from(*member)].gather();
        }
    }

    /// Assigns the members to this queue of their egress port.
    #[inline]
    pub(crate) fn set_queue(&mut self, queue: QueueId) {
        for member in &*self.members {
            self.packets[usize::from(*member)].queue = queue;
        }
    }

    /// Assigns the members without a queue to this queue of their egress port; does nothing with queue 0.
    #[inline]
    pub(crate) fn enter_queue(&mut self, queue: QueueId) {
        if queue == QueueId(0) {
            return;
        }
        for member in &*self.members {
            let packet = &mut self.packets[usize::from(*member)];
            if packet.queue == QueueId(0) {
                packet.queue = queue;
            }
        }
    }

    /// Removes all members, with the reason `why`.
    pub(crate) fn take_all(&mut self, why: Taken) {
        for member in self.members.drain(..) {
            self.verdicts[usize::from(member)] = Verdict::Pass;
            self.taken.push((member, why));
        }
    }

    /// Removes all members but the first `most`, with the reason `why`. Returns their number and their bytes.
    #[cold]
    pub(crate) fn take_beyond(&mut self, most: usize, why: Taken) -> (u32, u64) {
        let Group { packets, members, taken, .. } = self;
        let mut load = (0, 0);
        taken.extend(members.drain(most.min(members.len())..).map(|member| {
            load.0 += 1;
            load.1 += packets[usize::from(member)].len() as u64;
            (member, why)
        }));
        load
    }

    /// Removes the members that exceed a token bucket. Returns their number.
    pub(crate) fn police(&mut self, policer: &Policer, now: Instant) -> u64 {
        let Group { packets, members, taken, .. } = self;
        let before = members.len();
        members.retain(|member| {
            let fits = policer.takes(packets[usize::from(*member)].len() as u32, now);
            if !fits {
                taken.push((*member, Taken::End(End::Drop(DropReason::Policer))));
            }
            fits
        });
        (before - members.len()) as u64
    }

    /// Checks the members after an instance may have changed them. Removes malformed members, and counts them
    /// as drops. Returns the violation of the last removed member.
    pub(crate) fn drop_malformed(
        &mut self,
        position: Position,
        counts: &mut BindingCounts,
    ) -> Option<Malformed> {
        let Group { packets, keys, verdicts, members, taken, .. } = self;
        let mut found = None;
        members.retain(|member| {
            let index = usize::from(*member);
            let Err(malformed) = recheck_behind(&mut packets[index], &keys[index], verdicts[index], position)
            else {
                return true;
            };
            found = Some(malformed);
            verdicts[index] = Verdict::Pass;
            counts.drops += 1;
            taken.push((*member, Taken::End(End::Drop(DropReason::PluginFailed))));
            false
        });
        found
    }
}
