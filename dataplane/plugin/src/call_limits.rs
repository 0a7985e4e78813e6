//! Call limits of a binding: the time limit of its instance's calls, and the treatment of packets when a call
//! fails.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use millrace_plugin_abi::DeclaredCycles;
use millrace_units::{GateId, PrincipalId, QueueId};

/// Treatment of packets that arrive while the instance pauses after a fault, or whose call failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFault {
    /// The worker drops the packets.
    #[default]
    Drop,
    /// The packets continue as if the instance had let them pass.
    Bypass,
}

impl OnFault {
    /// Every treatment, with its name in commands and files.
    pub const NAMES: [(&'static str, Self); 2] = [("drop", Self::Drop), ("bypass", Self::Bypass)];

    /// Returns the name of the treatment in commands and files.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for OnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OnFault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| policy).ok_or_else(|| format!("on-fault {name:?}: give drop or bypass"))
    }
}

/// Wait of packets for the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorWait {
    /// Principal that pays for the stage.
    pub payer: PrincipalId,
    /// Gate of the stage if its binding has a queue of its own.
    pub queue: Option<GateId>,
}

/// Call limits of a binding: time limit, and treatment of packets when a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallLimits {
    /// Treatment of packets whose call failed.
    pub on_fault: OnFault,
    /// Time limit of a call: the total of all its slices. A longer call is an overrun, which is a fault.
    pub call: Duration,
    /// Time limit of a call per packet: a call with N packets may take N times this time, but at most `call`.
    /// A call always gets at least one slice. `None` means that only `call` limits it.
    pub packet: Option<Duration>,
    /// Principal that pays for the calls: the packets wait until the CPU scheduler gives it the processor.
    /// `None`: the worker calls the instance at once. Of a filter that gives a principal: the payer of the path.
    pub principal: Option<PrincipalId>,
    /// Weight of the queue of the binding's stage among the stages of a flow, 1 or more. With a queue, packets
    /// also wait here when they come from an earlier stage of the same principal. `None`: they don't.
    pub queue: Option<u16>,
    /// Queue of the egress port for packets that nothing has assigned to a queue yet; 0 for none.
    pub link_queue: QueueId,
    /// Most cycles that the instance needs for a packet, if its calls run in line: the packets don't wait for the
    /// processor, and the principal that pays is charged. `None`: packets wait if a principal pays.
    pub in_line: Option<u32>,
    /// Worker that runs the instance for all packets of the binding. `None`: the workers that own their flows.
    pub worker: Option<u16>,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { call: Self::DEFAULT_CALL, ..Self::OF_ERRANDS }
    }
}

impl CallLimits {
    /// Default time limit of a call with packets that the worker makes at once. With this limit, an instance
    /// whose calls never return delays less than 1 % of all other packets before it is in quarantine.
    pub const DEFAULT_CALL: Duration = Duration::from_millis(1);
    /// Limits of errands: calls for messages, timers and ends of flows, which handle no packets.
    pub const OF_ERRANDS: Self = Self {
        on_fault: OnFault::Drop,
        call: Duration::from_millis(10),
        packet: None,
        principal: None,
        queue: None,
        link_queue: QueueId(0),
        in_line: None,
        worker: None,
    };
    /// Default time limit of a call that a principal pays for. A slow plugin is slowed to its principal's
    /// share; only a call that never ends is a fault.
    pub const DEFAULT_PAID_CALL: Duration = Duration::from_millis(100);

    /// Multiple of its declared worst case that a call may take before it counts as a call that never ends.
    const WORST_CASES: f64 = 10.0;
    /// Greatest bound of a packet, in cycles, of an instance whose calls run in line: a batch of 256 packets takes about
    /// as long as a slice of a principal.
    pub const MOST_IN_LINE: u32 = 500;
    /// Multiple of its bound that a packet of a call may need. After several such calls in a row, the packets of the
    /// binding wait.
    pub(crate) const BOUNDS: u64 = 10;

    /// Maximum time limit of a call that follows from a declared worst case. The minimum is `DEFAULT_CALL`: slices
    /// also pass while the system gives the processor to others, and that is no fault of the plugin.
    pub const MOST_DECLARED: Duration = Duration::from_secs(1);

    /// Minimum time limit of a call that another process runs, in processor time of that process. If its processor time
    /// is unknown, the limit is in real time.
    pub const LEAST_AWAITED: Duration = Duration::from_millis(100);
    /// Time of each packet of such a call, if that is more.
    pub(crate) const EACH_AWAITED: Duration = Duration::from_millis(10);

    /// Returns the principal that pays for the calls of a binding on a path. `of_path`: payer that a filter on the
    /// path gives; it takes the place of `principal`, unless the binding names a principal itself.
    #[inline]
    pub fn payer(&self, of_path: Option<PrincipalId>) -> Option<PrincipalId> {
        of_path.filter(|_| !self.names_principal()).or(self.principal)
    }

    /// Whether the binding names a principal. Each principal has a queue number, also without a rate.
    pub fn names_principal(&self) -> bool {
        self.link_queue != QueueId(0)
    }

    /// Returns the wait of packets for the processor before a binding at `gate`; `None` without a payer, and if the
    /// calls run in line.
    pub fn wait(&self, payer: Option<PrincipalId>, gate: GateId) -> Option<ProcessorWait> {
        let payer = payer.filter(|_| self.in_line.is_none());
        Some(ProcessorWait { payer: payer?, queue: self.queue.map(|_| gate) })
    }

    /// Returns the principal that is charged for calls in line, of the principal that pays; `None` if packets wait.
    pub fn charged(&self, payer: Option<PrincipalId>) -> Option<PrincipalId> {
        payer.filter(|_| self.in_line.is_some())
    }

    /// Returns the processor time of a call with this number of packets that another process runs. Packets that
    /// suddenly take longer than those before are no fault.
    pub fn awaited(&self, packets: usize) -> Duration {
        self.call.max(Self::LEAST_AWAITED).max(Self::EACH_AWAITED.saturating_mul(packets as u32))
    }

    /// Returns the limits of a call with these packets and bytes, for a plugin that declares a worst case in cycles.
    /// 10 times the worst case takes the place of the default time limit, from [`DEFAULT_CALL`](Self::DEFAULT_CALL)
    /// to [`MOST_DECLARED`](Self::MOST_DECLARED). `frequency` is the number of cycles per second.
    #[must_use]
    pub fn with_worst_case(
        self,
        worst_case: Option<DeclaredCycles>,
        (packets, bytes): (u64, u64),
        frequency: u64,
    ) -> Self {
        let is_default = self.call == Self::DEFAULT_PAID_CALL && self.packet.is_none();
        let Some(DeclaredCycles { call, packet, byte, .. }) = worst_case.filter(|_| is_default) else {
            return self;
        };
        let cycles = call + packet * packets as f64 + byte * bytes as f64;
        let seconds = Self::WORST_CASES * cycles / frequency.max(1) as f64;
        let range = (Self::DEFAULT_CALL.as_secs_f64(), Self::MOST_DECLARED.as_secs_f64());
        Self { call: Duration::from_secs_f64(seconds.clamp(range.0, range.1)), ..self }
    }

    /// Returns the number of slices that a call with this number of packets may take: 1 or more. `slice` is
    /// the length of a slice.
    pub fn slices(&self, packets: usize, slice: Duration) -> u32 {
        let for_packets = self.packet.map(|each| each.saturating_mul(packets.max(1) as u32));
        let most = for_packets.map_or(self.call, |most| most.min(self.call));
        let slices = most.as_nanos().div_ceil(slice.as_nanos());
        u32::try_from(slices).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_limits_become_slices() {
        const SLICE: Duration = Duration::from_micros(50);
        let call_limits = CallLimits::default();
        assert_eq!((call_limits.slices(1, SLICE), call_limits.slices(64, SLICE)), (20, 20));
        let call_limits = CallLimits { packet: Some(Duration::from_micros(20)), ..call_limits };
        assert_eq!(
            (
                call_limits.slices(0, SLICE),
                call_limits.slices(1, SLICE),
                call_limits.slices(5, SLICE),
                call_limits.slices(64, SLICE)
            ),
            (1, 1, 2, 20)
        );
        let call_limits = CallLimits { call: Duration::from_micros(120), ..call_limits };
        assert_eq!(call_limits.slices(64, SLICE), 3);
        assert_eq!(call_limits.slices(64, 2 * SLICE), 2);
        assert_eq!(CallLimits { call: Duration::ZERO, ..call_limits }.slices(64, SLICE), 1);
    }

    #[test]
    fn declared_worst_case_replaces_the_default_time_limit() {
        let default = CallLimits { call: CallLimits::DEFAULT_PAID_CALL, ..CallLimits::default() };
        let worst_case = Some(DeclaredCycles { fixed: 0.0, call: 1e6, packet: 1e6, byte: 100.0 });
        let limit = |limits: CallLimits, load| limits.with_worst_case(worst_case, load, 1_000_000_000).call;
        assert_eq!(limit(default, (1, 10_000)), Duration::from_millis(30));
        assert_eq!(limit(default, (64, 10_000)), Duration::from_millis(660));
        assert_eq!(limit(default, (256, 0)), CallLimits::MOST_DECLARED);
        let given = CallLimits { call: Duration::from_millis(2), ..default };
        let by_packet = CallLimits { packet: Some(Duration::from_millis(2)), ..default };
        assert_eq!((limit(given, (1, 0)), limit(by_packet, (1, 0))), (given.call, by_packet.call));
        let short = Some(DeclaredCycles { packet: 100.0, ..DeclaredCycles::default() });
        assert_eq!(default.with_worst_case(short, (1, 0), 1_000_000_000).call, CallLimits::DEFAULT_CALL);
        assert_eq!(default.with_worst_case(short, (1, 0), 0).call, CallLimits::MOST_DECLARED);
        assert_eq!(default.with_worst_case(None, (1, 0), 1_000_000_000), default);
    }

    #[test]
    fn names_lead_to_policies() {
        for (name, policy) in OnFault::NAMES {
            assert_eq!((name.parse(), policy.to_string()), (Ok(policy), name.to_owned()));
        }
        assert_eq!("pass".parse::<OnFault>().unwrap_err(), "on-fault \"pass\": give drop or bypass");
    }
}
