//! Converts verdicts of instances into decisions about packets.

use millrace_packet::DropReason;
use millrace_plugin_abi::{Fault, Position, Verdict};
use millrace_units::{Instant, PortId, PrincipalId, QueueId};

use super::Calls;
use crate::execution::instances::ContextKey;
use crate::execution::waiting::{End, LONGEST_HOLD};
use crate::fault::FaultKind;
use crate::slab::Key;
use crate::{Direction, OnFault};

/// Maximum number of times in a row that instances may pass a packet on to an instance.
const MOST_PASSED_ON: u8 = 8;

/// Checked verdict about a packet, as the worker carries it out.
pub(super) enum Decision {
    Pass,
    Direct(Direction),
    Queue(QueueId),
    PassOn(Key),
    Hold(Instant),
    End(End),
}

impl Calls {
    /// Converts an instance's verdict into a decision. An invalid verdict is a fault of the instance.
    pub(super) fn decide(
        &mut self,
        verdict: Verdict,
        (context, position, payer): (ContextKey, Position, Option<PrincipalId>),
        passed_on: u8,
        on_fault: OnFault,
        now: Instant,
    ) -> Decision {
        let wrong = match verdict {
            Verdict::Pass => return Decision::Pass,
            Verdict::Drop(reason) | Verdict::Reject(reason) => {
                if let Some((hosted, _)) = self.instances.get_mut(context) {
                    hosted.counts.dropped(reason, 1);
                }
                let answers = matches!(verdict, Verdict::Reject(_)) && position != Position::Copy;
                return Decision::End(if answers { End::Reject } else { End::Drop(DropReason::Plugin) });
            }
            Verdict::Consume => return Decision::End(End::Consume),
            Verdict::Hold(until) if until <= now + LONGEST_HOLD => {
                return match position {
                    Position::Copy => Decision::End(End::Consume),
                    _ => Decision::Hold(until),
                };
            }
            Verdict::Hold(_) => Some(format!("it holds a packet for over {} s", LONGEST_HOLD.as_secs())),
            Verdict::Classify => return Decision::End(End::Classify),
            Verdict::Queue(queue) => match self.ports.refuse_queue(queue, payer) {
                None => return Decision::Queue(queue),
                wrong => wrong,
            },
            Verdict::Fault => None,
            Verdict::Port(port) => match self.ports.refuse(position, std::iter::once(port.0)) {
                None => return Decision::Direct(Direction::Port(port)),
                wrong => wrong,
            },
            Verdict::Ports(ports) => match self.ports.refuse(position, ports_of(ports)) {
                None => return Decision::Direct(Direction::Ports(ports)),
                wrong => wrong,
            },
            Verdict::Instance(id) => match self.instances.key(id) {
                Some(_) if passed_on >= MOST_PASSED_ON => {
                    return Decision::End(End::Drop(DropReason::PluginLoop));
                }
                Some(target) => return Decision::PassOn(target),
                None => Some(format!("the instance names the unknown instance {id}")),
            },
        };
        if let Some(text) = wrong
            && let Some((hosted, news)) = self.instances.get_mut(context)
        {
            hosted.fail(Fault { kind: FaultKind::WrongVerdict.name(), text }, now, news);
        }
        match on_fault {
            OnFault::Drop => Decision::End(End::Drop(DropReason::PluginFailed)),
            OnFault::Bypass => Decision::Pass,
        }
    }
}

/// Ports and queues to which verdicts may send packets.
#[derive(Default)]
pub(crate) struct Ports {
    /// Existing ports of the router, by number.
    existing: Vec<bool>,
    /// Queues of principals at ports, in ascending order. Only packets that the principal pays for may enter them.
    queues: Vec<(QueueId, PrincipalId)>,
}

impl Ports {
    /// Sets whether a port exists.
    pub fn set(&mut self, port: PortId, is_there: bool) {
        let index = usize::from(port.0);
        if self.existing.len() <= index {
            self.existing.resize(index + 1, false);
        }
        if let Some(port) = self.existing.get_mut(index) {
            *port = is_there;
        }
    }

    /// Sets the queue of a principal at ports; 0 for none.
    pub fn set_queue(&mut self, principal: PrincipalId, queue: QueueId) {
        self.queues.retain(|(_, owner)| *owner != principal);
        if queue != QueueId(0) {
            let place = self.queues.partition_point(|(known, _)| *known < queue);
            self.queues.insert(place, (queue, principal));
        }
    }

    /// Checks a verdict that puts a packet into a queue, of the principal that pays for the call. Returns the fault text
    /// if the queue belongs to another principal; `None` if the verdict is valid.
    fn refuse_queue(&self, queue: QueueId, payer: Option<PrincipalId>) -> Option<String> {
        let place = self.queues.binary_search_by_key(&queue, |(known, _)| *known).ok()?;
        let (_, owner) = self.queues.get(place)?;
        let is_foreign = payer.is_some_and(|payer| payer != *owner);
        is_foreign.then(|| {
            format!("the instance puts a packet into queue {}, which is another principal's", queue.0)
        })
    }

    /// Checks a verdict that sends a packet to `ports` at `position`. Returns the fault text if the verdict
    /// is invalid; `None` if it is valid.
    fn refuse(&self, position: Position, mut ports: impl Iterator<Item = u16>) -> Option<String> {
        if position == Position::Queue {
            return Some("the instance chose an egress port at position queue, too late".to_owned());
        }
        let known = |port: u16| self.existing.get(usize::from(port)).copied().unwrap_or(false);
        let Some(first) = ports.next() else { return Some("the instance names no egress port".to_owned()) };
        let unknown = std::iter::once(first).chain(ports).find(|port| !known(*port))?;
        Some(format!("the instance names the unknown port {unknown}"))
    }
}

/// Returns the numbers of the set bits, each of which is a port.
fn ports_of(bits: u64) -> impl Iterator<Item = u16> {
    (0..64).filter(move |port| bits >> port & 1 == 1)
}
