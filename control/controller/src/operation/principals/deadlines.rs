//! Reservations by deadline: the shares of processor and link with which each packet leaves in time.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_admission::deadline::{
    Criterion, Demand, FlowRequest, Grant, GrantedStage, Ledger, Resource, Stage, Unit,
};
use millrace_config::{Bits, CpuShare, Deadline, Principal, QueueLimit, Reservation, Size, Time};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ControlError;
use crate::admission::shares::left;
use crate::admission::time::Whole;
use crate::model::Model;
use crate::model::principals::Owners;
use crate::model::schedulers::changes::PACKET;
use crate::principals::bounds::{longest_packet, microseconds, processor_blocking};
use crate::view::DeadlineView;

/// Name of the processor in requests to the ledger. No port has it: names have no blanks.
const PROCESSOR: &str = "the processor";
/// Nanoseconds in a second. A cycle of the ledger's processor is a nanosecond.
const NANOSECONDS: u64 = 1_000_000_000;
/// Parts per million in a percent.
const PERCENT: f64 = 10_000.0;
/// Deadline of each packet of flows, and what these flows send.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadlineRequest {
    /// Longest time in the router, 100 us to 10 s.
    pub time: Deadline,
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

impl DeadlineRequest {
    /// Splits the deadline over the processor and the link of `port`, by prices that follow from the promises to others
    /// there (Pradhan, Gopalan and Chiueh, 2001, section 5).
    ///
    /// # Errors
    /// The request is invalid, or what is left does not meet the deadline: the error says what would.
    pub(crate) fn grant(self, model: &Model, port: Option<&str>) -> Result<Grant, ControlError> {
        self.grant_by(Criterion::Mix, model, port)
    }

    fn grant_by(
        self,
        criterion: Criterion,
        model: &Model,
        port: Option<&str>,
    ) -> Result<Grant, ControlError> {
        self.check(port)?;
        let mut ledger = Ledger::new(criterion);
        let mut stages = Vec::new();
        // Only flows that share both resources set prices between them.
        let held = port.filter(|_| self.cost.is_some()).map_or_else(Vec::new, |port| held(model, port));
        let share_of = |resource: &str| -> u64 {
            held.iter().filter_map(|(_, grant)| Some(grant.stage(resource)?.share)).sum()
        };
        let refused = |error: &dyn std::fmt::Display| ControlError::conflict(format!("no deadline: {error}"));
        if let Some(cost) = self.cost {
            // Each worker has the whole share of a packet ready, because packets may come to any of them.
            let left = left(model) * PERCENT / workers(model) as f64;
            let left = left.min(Whole::of_worker(model) as f64) as u64;
            let capacity = u32::try_from(left + share_of(PROCESSOR)).unwrap_or(u32::MAX);
            let processor = Resource::processor(NANOSECONDS, capacity, processor_blocking(model));
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
            let longest = self.bytes().max(longest_packet(model, port).unwrap_or_default());
            let mut link = Resource::link(rate, left + share_of(port), longest);
            if workers(model) > 1 {
                // Another worker may send the packet, after the call that it is in.
                link.blocking += processor_blocking(model);
            }
            ledger.set(port, link).map_err(|error| refused(&error))?;
            stages.push(stage(port, u64::from(self.bytes()) * 8));
        }
        for (principal, grant) in held {
            ledger.restore(&principal, grant).map_err(|error| refused(&error))?;
        }
        let interval = Duration::from_nanos(NANOSECONDS / u64::from(self.rate));
        let request = FlowRequest { deadline: self.time.duration(), interval, burst: self.burst, stages };
        ledger.plan(&request).map_err(|error| refused(&error))
    }

    fn check(self, port: Option<&str>) -> Result<(), ControlError> {
        let invalid = |text: &str| Err(ControlError::invalid(text));
        match self {
            Self { rate, .. } if !(1..=1_000_000_000).contains(&rate) => {
                invalid("rate must be 1 to 1,000,000,000 packets per second")
            }
            Self { burst: 0, .. } => invalid("burst must be at least 1 packet"),
            Self { cost: None, .. } if port.is_none() => {
                invalid("give cost, or port, or both: the deadline is split over them")
            }
            _ if self.waiting() > QueueLimit::MOST => invalid("burst times size must be at most 32 MiB"),
            _ => Ok(()),
        }
    }

    /// Returns the size of a packet on the wire in bytes.
    fn bytes(self) -> u32 {
        self.size.map_or(PACKET, Size::bytes_u32)
    }

    /// Returns the bytes that wait at most, when a burst arrives.
    fn waiting(self) -> u64 {
        u64::from(self.bytes()) * u64::from(self.burst)
    }
}

/// Returns the number of workers.
pub(super) fn workers(model: &Model) -> u64 {
    model.router.workers as u64
}

/// Returns what principals hold at the processor and at a port, if they have a deadline. The deadline at the port is the
/// time of a packet of the usual size, because principals keep no size.
fn held(model: &Model, port: &str) -> Vec<(String, Grant)> {
    let stage = |resource: &str, unit: Unit, (work, share): (u64, u64)| GrantedStage {
        resource: resource.to_owned(),
        unit,
        work,
        share,
        time: Duration::from_nanos(unit.time_of(work, share)),
        blocking: Duration::ZERO,
        owner: None,
    };
    let grant = |one: &Principal| {
        let (cpu, deadline, link) = (one.reserved_cpu()?, one.deadline?, one.reserved_link(port)?);
        let share = u64::from(cpu.ppm()) / workers(model).max(1);
        let work = deadline.microseconds().saturating_mul(share) / 1_000;
        let processor = stage(PROCESSOR, Unit::Processor { frequency: NANOSECONDS }, (work, share));
        let stages = vec![processor, stage(port, Unit::Link, (u64::from(PACKET) * 8, link.0))];
        let deadline = stages.iter().map(|stage| stage.time).sum();
        Some((one.name.to_string(), Grant { deadline, interval: deadline, burst: 1, stages }))
    };
    model.principals.iter().filter_map(grant).collect()
}

fn stage(resource: &str, work: u64) -> Stage {
    Stage { resource: resource.to_owned(), demand: Demand::Own(work) }
}

/// Returns the settings of a principal that holds a grant.
/// `workers`: number of workers, each of which gets the share of the processor.
pub(super) fn with_grant(
    principal: Principal,
    request: DeadlineRequest,
    grant: &Grant,
    workers: u64,
) -> Principal {
    let waiting = Some(request.waiting()).filter(|waiting| *waiting > Principal::USUAL_QUEUE);
    let mut held = Principal { link: BTreeMap::new(), queue: waiting.map(QueueLimit::clamped), ..principal };
    for stage in &grant.stages {
        match stage.unit {
            Unit::Processor { .. } => {
                // The share does the work also within the time in whole microseconds.
                let deadline = Deadline::clamped(microseconds(stage.time));
                let share = stage.unit.share_for(stage.work, deadline.microseconds() * 1_000);
                let share = share.unwrap_or(u64::MAX).max(stage.share).saturating_mul(workers);
                let ppm = u32::try_from(share).unwrap_or(u32::MAX);
                (held.cpu, held.deadline) = (Some(Reservation::Own(CpuShare::clamped(ppm))), Some(deadline));
            }
            Unit::Link => {
                held.link.insert(stage.resource.clone(), Reservation::Own(Bits(stage.share)));
            }
        }
    }
    held
}

/// Returns the view of a granted deadline.
pub(super) fn view(grant: &Grant) -> DeadlineView {
    let of = |is_processor: bool| {
        let is_wanted = |unit: Unit| matches!(unit, Unit::Processor { .. }) == is_processor;
        let found = grant.stages.iter().find(|stage| is_wanted(stage.unit));
        found.map(|stage| microseconds(stage.time))
    };
    DeadlineView {
        bound: microseconds(grant.bound() + Duration::from_nanos(999)),
        processor: of(true),
        link: of(false),
    }
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

    fn asked(deadline: u64, rate: u32) -> DeadlineRequest {
        let cost = Some(Time::clamped(100));
        DeadlineRequest { time: Deadline::clamped(deadline), rate, burst: 1, size: None, cost }
    }

    #[test]
    fn deadline_is_split_into_shares_that_do_the_work_in_time() {
        let model = model();
        let grant = asked(10_000, 100).grant(&model, Some("wan")).unwrap();
        let view = view(&grant);
        assert!(view.bound <= 10_000, "{view:?}");
        let named = Config::parse("[[principal]]\nname = \"a\"\n", "f").unwrap().principal.remove(0);
        let held = with_grant(named, asked(10_000, 100), &grant, 1);
        let (cpu, deadline) = (held.reserved_cpu().unwrap(), held.deadline.unwrap());
        // The share does the 100 us of a packet within the deadline at the processor.
        assert!(u64::from(cpu.ppm()) * deadline.microseconds() >= 100 * 1_000_000, "{cpu}, {deadline}");
        assert_eq!(held.queue, None);
        let link = held.reserved_link("wan").unwrap().0 as f64;
        let takes = f64::from(PACKET) * 8.0 * 1e6 / link;
        assert!(takes <= view.link.unwrap() as f64 + 1.0, "{takes} us, {view:?}");
    }

    #[test]
    fn refusals_say_what_fits() {
        let model = model();
        let refused = |asked: DeadlineRequest, port| asked.grant(&model, port).unwrap_err().to_string();
        let late = refused(asked(1_600, 10), Some("wan"));
        assert!(late.contains("no deadline: ") && late.contains("allow"), "{late}");
        let blocked = refused(asked(600, 10), Some("wan"));
        assert!(blocked.contains("must exceed"), "{blocked}");
        let fast = asked(100_000, 9_000).grant(&model, Some("wan")).unwrap_err().to_string();
        assert!(fast.contains("is left"), "{fast}");
        let unknown = refused(asked(10_000, 10), Some("lan"));
        assert!(unknown.contains("no port is named \"lan\"") && unknown.contains("wan"), "{unknown}");
        let nothing = refused(DeadlineRequest { cost: None, ..asked(10_000, 10) }, None);
        assert!(nothing.contains("give cost, or port"), "{nothing}");
        for wrong in
            [DeadlineRequest { burst: 0, ..asked(9_000, 10) }, asked(9_000, 0), asked(9_000, u32::MAX)]
        {
            assert!(matches!(wrong.grant(&model, None), Err(ControlError::Invalid(_))), "{wrong:?}");
        }
    }

    #[test]
    fn each_worker_has_the_share_of_a_packet_and_another_may_send_it() {
        let mut several = model();
        several.router.workers = 2;
        let (one, two) = (model(), several);
        let wanted = asked(10_000, 100);
        let granted = |model: &Model, port| wanted.grant(model, port).unwrap();
        let (alone, shared) = (granted(&one, None), granted(&two, None));
        assert_eq!((alone.stages[0].share, alone.bound()), (shared.stages[0].share, shared.bound()));
        let named = Config::parse("[[principal]]\nname = \"a\"\n", "f").unwrap().principal.remove(0);
        let ppm = |grant: &Grant, workers| {
            with_grant(named.clone(), wanted, grant, workers).reserved_cpu().unwrap().ppm()
        };
        assert_eq!(ppm(&shared, 2), 2 * ppm(&alone, 1));
        let blocking = |model: &Model| granted(model, Some("wan")).stage("wan").unwrap().blocking;
        assert_eq!(blocking(&two), blocking(&one) + processor_blocking(&two));
    }

    /// Returns the number of 200 flows that a router admits, if it splits their deadlines by a criterion. Their costs
    /// and deadlines vary by a factor of 25.
    fn admitted(criterion: Criterion, mut seed: u64) -> usize {
        let mut model = model();
        let mut scale = |least: f64, most: f64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (least * (most / least).powf((seed >> 33) as f64 / (1_u64 << 31) as f64)) as u64
        };
        let mut count = 0;
        for number in 1..=200 {
            let cost = Some(Time::clamped(scale(40.0, 1_000.0)));
            let time = Deadline::clamped(scale(20_000.0, 500_000.0));
            let asked = DeadlineRequest { time, rate: 1, burst: 1, size: None, cost };
            let Ok(grant) = asked.grant_by(criterion, &model, Some("wan")) else { continue };
            let text = format!(
                "[[principal]]\nname = \"p{number}\"\n[[filter]]\nmatch = \"proto udp dport {number}\"\n\
                 action = \"principal p{number}\"\n"
            );
            let mut config = Config::parse(&text, "f").unwrap();
            model.principals.push(with_grant(config.principal.remove(0), asked, &grant, 1));
            model.principal_ids.follow(&model.principals);
            model.add_filter(&config.filter[0]).unwrap();
            count += 1;
        }
        count
    }

    #[test]
    fn prices_by_the_mix_admit_more_flows_than_equal_free_shares() {
        let [mix, balance] = [Criterion::Mix, Criterion::Balance]
            .map(|criterion| (1..=4).map(|seed| admitted(criterion, seed * 77)).sum::<usize>());
        assert!(mix > balance && balance > 100, "{mix} {balance}");
    }

    #[test]
    fn burst_has_room_in_the_queues_and_a_port_may_be_named_processor() {
        let text = "[[port]]\nname = \"processor\"\nkind = \"memory\"\n[port.scheduler]\nrate = \"20mbit\"\n\
                    node = [{ name = \"all\", kind = \"fifo\" }]\n[[principal]]\nname = \"a\"\n";
        let config = Config::parse(text, "f").unwrap();
        let asked = DeadlineRequest { burst: 500, ..asked(5_000_000, 10) };
        let grant = asked.grant(&Model::planned(&config).unwrap(), Some("processor")).unwrap();
        let held = with_grant(config.principal[0].clone(), asked, &grant, 1);
        assert_eq!(held.queue.map(QueueLimit::bytes), Some(500 * 1_538));
        assert!(held.reserved_link("processor").is_some() && held.reserved_cpu().is_some(), "{held:?}");
    }
}
