//! Timers of the router: work that is due without packets.

use millrace_forward::IcmpError;
use millrace_packet::DropReason;
use millrace_units::Instant;

use crate::router::Router;

/// Maximum number of held packets that time out in an iteration. The router sends ICMP errors about them.
const EXPIRED_AT_ONCE: usize = 64;

impl Router {
    /// Resumes packets kept by plugins whose wait is over.
    pub fn run_plugins(&mut self, now: Instant) {
        if !self.gates.plugins().is_idle() {
            self.resume_kept(now);
        }
    }

    /// Runs due timers: neighbour requests are repeated, held packets time out, and flows expire.
    pub fn run_timers(&mut self, now: Instant) {
        self.pending.from_plugins.begin(self.options.plugin_weight);
        self.run_plugins(now);
        self.punt.own.resolver.poll(now, &mut self.punt.own.actions);
        // Further expired packets are refused in the next iteration, which follows at once: see `next_timer`.
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
    }

    /// Returns the time at which [`run_timers`](Self::run_timers) next has work; `None` if no timer is set.
    pub fn next_timer(&self, now: Instant) -> Option<Instant> {
        let flows = self.classifier.next_upkeep();
        let plugins = self.gates.plugins().next_event(now);
        let again = (!self.pending.again.is_empty() || self.pending.from_plugins.len() > 0).then_some(now);
        // A port whose device is full sends nothing, whatever its scheduler permits.
        let ports = self.ports.iter().filter(|(_, entry)| entry.queue.is_empty());
        let queues = ports.filter_map(|(_, entry)| entry.scheduler.as_ref()?.next_ready());
        let offload = self.offload.as_ref().and_then(|offload| offload.next_event(now));
        let others = self
            .forwarding
            .hold
            .next_event()
            .into_iter()
            .chain(flows)
            .chain(plugins)
            .chain(again)
            .chain(queues)
            .chain(offload);
        self.punt.own.resolver.next_event().into_iter().chain(others).min()
    }
}
