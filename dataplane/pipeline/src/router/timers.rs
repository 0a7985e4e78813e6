//! Timers of the router: tasks that are due at a time, without packets.

use millrace_forward::IcmpError;
use millrace_packet::DropReason;
use millrace_units::Instant;

use crate::router::Router;
use crate::router::made::{MadePackets, next_made};

/// Maximum number of held packets that time out in an iteration. Each causes an ICMP error.
const EXPIRED_AT_ONCE: usize = 64;

impl Router {
    /// Resumes suspended calls, and resumes the packets whose wait at an instance is over.
    pub fn run_plugins(&mut self, now: Instant) {
        if !self.gates.plugins().is_idle() {
            self.resume_kept(now);
        }
    }

    /// Runs due timers: repeats neighbour requests, drops held packets that have timed out, expires flows,
    /// resumes packets held by instances, and sends packets on that instances have made.
    pub fn run_timers(&mut self, now: Instant) {
        self.pending.from_plugins.begin(self.options.plugin_weight);
        self.run_plugins(now);
        self.punt.own.resolver.poll(now, &mut self.punt.own.actions);
        // If more packets have expired, `next_timer` makes the next iteration follow at once.
        for _ in 0..EXPIRED_AT_ONCE {
            let Some(held) = self.forwarding.hold.expire(now) else { break };
            let (error, reason) = (IcmpError::HostUnreachable, DropReason::NeighbourFailed);
            self.disposal().refuse(held.packet, error, reason, now);
        }
        self.classification().keep_flows(now, true);
        if let Some(mut offload) = self.offload_stage() {
            offload.accounting().keep(now);
        }
        self.follow_up(now);
        MadePackets::of(self).send(now);
    }

    /// Returns the time at which [`run_timers`](Self::run_timers) next has work; `None` if no timer is set.
    pub fn next_timer(&self, now: Instant) -> Option<Instant> {
        let flows = self.classifier.next_upkeep();
        let connections = self.gates.connections.as_ref().and_then(|connections| connections.next_upkeep());
        let plugins = self.gates.plugins().next_event(now);
        let again = (!self.pending.again.is_empty()).then_some(now);
        // A port with a non-empty queue waits for its device, not for its scheduler.
        let ports = self.ports.iter().filter(|(_, entry)| entry.queue.is_empty());
        let queues = ports.filter_map(|(_, entry)| entry.scheduler.as_ref()?.next_ready());
        let offload = self.offload.as_ref().and_then(|offload| offload.next_event(now));
        let processor = self.pending.for_processor.active().and_then(|waiting| waiting.next_event(now));
        let others = self
            .forwarding
            .hold
            .next_event()
            .into_iter()
            .chain(flows)
            .chain(connections)
            .chain(plugins)
            .chain(again)
            .chain(next_made(self, now))
            .chain(queues)
            .chain(processor)
            .chain(offload);
        self.punt.own.resolver.next_event().into_iter().chain(others).min()
    }
}
