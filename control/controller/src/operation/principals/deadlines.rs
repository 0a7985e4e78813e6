//! Reservations by deadline: the shares of processor and link with which each packet leaves in time.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_admission::deadline::{Criterion, Demand, FlowRequest, Grant, Ledger, Resource, Stage};
use millrace_config::{Bits, CpuShare, Deadline, Principal, Reservation, Size, Time};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ControlError;
use crate::admission::shares::{Whole, left};
use crate::model::Model;
use crate::model::principals::Owners;
use crate::view::DeadlineView;

/// Name of the processor in requests to the ledger.
const PROCESSOR: &str = "processor";
/// Nanoseconds in a second. A cycle of the ledger's processor is a nanosecond.
const NANOSECONDS: u64 = 1_000_000_000;
/// Parts per million in a percent.
const PERCENT: f64 = 10_000.0;
/// Largest packet that another flow may send before a packet, in bytes on the wire.
const LONGEST: u32 = 1_538;

/// Packets of flows, of which each is to leave within a deadline.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Punctual {
    /// Longest time in the router, 100 us to 10 s.
    pub deadline: Deadline,
    /// Largest number of packets per second.
    #[schemars(range(min = 1))]
    pub rate: u32,
    /// Largest number of packets that arrive at once. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub burst: u32,
    /// Largest size of a packet on the wire. Default 1,538 bytes.
    #[serde(default)]
    pub size: Option<Size<64, 65_536>>,
    /// Longest processor time of the plugins' calls for a packet. Default: none, so no processor time is reserved.
    #[serde(default)]
    pub cost: Option<Time<1, 10_000_000>>,
}

fn one() -> u32 {
    1
}

impl Punctual {
    /// Splits the deadline over the processor and the link of `port`, so that the same part of each stays free
    /// (Pradhan, Gopalan and Chiueh, 2001, section 5).
    ///
    /// # Errors
    /// The request is invalid, or what is left does not meet the deadline: the error says what would.
    pub(crate) fn grant(self, model: &Model, port: Option<&str>) -> Result<Grant, ControlError> {
        if self.rate == 0 {
            return Err(ControlError::invalid("rate must be at least 1 packet per second"));
        }
        let mut ledger = Ledger::new(Criterion::Balance);
        let mut stages = Vec::new();
        let refused = |error: &dyn std::fmt::Display| ControlError::conflict(format!("no deadline: {error}"));
        if let Some(cost) = self.cost {
            let capacity = (left(model) * PERCENT).min(Whole::of_worker(model) as f64) as u32;
            let processor = Resource::processor(NANOSECONDS, capacity, model.fixed.plugins.slice.duration());
            ledger.set(PROCESSOR, processor).map_err(|error| refused(&error))?;
            stages.push(stage(PROCESSOR, cost.microseconds() * 1_000));
        }
        if let Some(port) = port {
            model.port(port)?;
            let (rate, left) = Owners(model).rate_at(port).ok_or_else(|| {
                ControlError::conflict(format!(
                    "the scheduler of port {port:?} has no rate: set one with `scheduler set {port} rate=RATE`"
                ))
            })?;
            let longest = self.size.map_or(LONGEST, |size| size.bytes_u32().max(LONGEST));
            ledger.set(port, Resource::link(rate, left, longest)).map_err(|error| refused(&error))?;
            let bytes = self.size.map_or(u64::from(LONGEST), Size::bytes);
            stages.push(stage(port, bytes * 8));
        }
        let interval = Duration::from_nanos(NANOSECONDS / u64::from(self.rate));
        let request = FlowRequest { deadline: self.deadline.duration(), interval, burst: self.burst, stages };
        ledger.plan(&request).map_err(|error| refused(&error))
    }
}

fn stage(resource: &str, work: u64) -> Stage {
    Stage { resource: resource.to_owned(), demand: Demand::Own(work) }
}

/// Returns the settings of a principal that holds a grant.
pub(super) fn with_grant(principal: Principal, grant: &Grant) -> Principal {
    let mut held = Principal { link: BTreeMap::new(), ..principal };
    for stage in &grant.stages {
        match &*stage.resource {
            PROCESSOR => {
                let ppm = u32::try_from(stage.share).unwrap_or(u32::MAX);
                held.cpu = Some(Reservation::Own(CpuShare::clamped(ppm)));
                held.deadline = Some(Deadline::clamped(microseconds(stage.time)));
            }
            port => {
                held.link.insert(port.to_owned(), Reservation::Own(Bits(stage.share)));
            }
        }
    }
    held
}

/// Returns the view of a granted deadline.
pub(super) fn view(grant: &Grant) -> DeadlineView {
    let of = |is_processor: bool| {
        let found = grant.stages.iter().find(|stage| (stage.resource == PROCESSOR) == is_processor);
        found.map(|stage| microseconds(stage.time))
    };
    DeadlineView { bound: microseconds(grant.bound()), processor: of(true), link: of(false) }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    fn model() -> Model {
        let text = "[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\nrate = \"20mbit\"\n\
                    node = [{ name = \"all\", kind = \"fifo\" }]\n";
        Model::planned(&Config::parse(text, "f").unwrap()).unwrap()
    }

    fn asked(deadline: u64, rate: u32) -> Punctual {
        let cost = Some(Time::clamped(100));
        Punctual { deadline: Deadline::clamped(deadline), rate, burst: 1, size: None, cost }
    }

    #[test]
    fn deadline_is_split_into_shares_that_do_the_work_in_time() {
        let model = model();
        let grant = asked(10_000, 100).grant(&model, Some("wan")).unwrap();
        let view = view(&grant);
        assert!(view.bound <= 10_000, "{view:?}");
        let named = Config::parse("[[principal]]\nname = \"a\"\n", "f").unwrap().principal.remove(0);
        let held = with_grant(named, &grant);
        let (cpu, deadline) = (held.reserved_cpu().unwrap(), held.deadline.unwrap());
        // The share does the 100 us of a packet within the deadline at the processor.
        let takes = 100.0 * 1e6 / f64::from(cpu.ppm());
        assert!(takes <= deadline.microseconds() as f64 + 1.0, "{takes} us, {deadline}");
        let link = held.reserved_link("wan").unwrap().0 as f64;
        let takes = f64::from(LONGEST) * 8.0 * 1e6 / link;
        assert!(takes <= view.link.unwrap() as f64 + 1.0, "{takes} us, {view:?}");
    }

    #[test]
    fn refusals_say_what_fits() {
        let model = model();
        let late = asked(1_000, 10).grant(&model, Some("wan")).unwrap_err().to_string();
        assert!(late.contains("no deadline: ") && late.contains("allow"), "{late}");
        let fast = asked(100_000, 9_000).grant(&model, Some("wan")).unwrap_err().to_string();
        assert!(fast.contains("is left"), "{fast}");
        let nothing = Punctual { cost: None, ..asked(10_000, 10) }.grant(&model, None).unwrap_err();
        assert!(nothing.to_string().contains("no work"), "{nothing}");
    }
}
