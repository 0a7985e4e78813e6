//! Granted shares as parameters of the schedulers that serve them.

use std::time::Duration;

use millrace_schedule::cpu::{CpuPrincipal, CpuShare};
use millrace_schedule::{Curve, Rate};

use super::grant::{Grant, GrantedStage, nanoseconds};
use super::resource::Unit;

impl Grant {
    /// Returns the principal that the CPU scheduler serves by earliest deadline: a server whose budget is the
    /// work of a packet, and whose period is the granted time. `None` if the flow holds no share of a processor
    /// with this name.
    pub fn principal(&self, processor: &str) -> Option<CpuPrincipal> {
        let stage = self.held_stage(processor)?;
        let Unit::Processor { .. } = stage.unit else { return None };
        let share = CpuShare::Absolute(u32::try_from(stage.share).ok()?);
        Some(CpuPrincipal { share, limit: None, deadline: Some(stage.time) })
    }

    /// Returns the real-time curve of H-FSC: the granted share until a burst is sent, then the rate of the
    /// interval. `None` if the flow holds no share of a link with this name.
    pub fn curve(&self, link: &str) -> Option<Curve> {
        let stage = self.held_stage(link)?;
        let (Unit::Link, work) = (stage.unit, stage.work) else { return None };
        let rate = |share: u64| Rate(share.min(stage.share));
        let long_run = stage.unit.share_for(work, nanoseconds(self.interval)).unwrap_or(stage.share);
        let burst = stage.unit.time_of(work.saturating_mul(self.burst.into()), stage.share);
        let long_run = long_run.max(stage.unit.least_share());
        Some(Curve { first: rate(stage.share), duration: burst, then: rate(long_run) })
    }

    /// Returns the budget of the flow's server in each period at a processor, in cycles, and the period.
    pub fn budget(&self, processor: &str) -> Option<(u64, Duration)> {
        let stage = self.held_stage(processor)?;
        let Unit::Processor { .. } = stage.unit else { return None };
        Some((stage.unit.work_in(nanoseconds(stage.time), stage.share), stage.time))
    }

    fn held_stage(&self, resource: &str) -> Option<&GrantedStage> {
        self.own().find(|stage| stage.resource == resource)
    }
}
