//! Moves of services whose load has grown beyond what was admitted.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_config::{Service, ServiceLevel};
use millrace_plugin::InstanceReport;
use millrace_telemetry::EventKind;
use millrace_units::{InstanceId, Instant};
use serde_json::json;

use super::{Decision, Demand, PARTS, cost, decide};
use crate::events::Events;
use crate::model::Model;
use crate::model::placements::PlacedService;
use crate::workers::tsc;

/// Time over which the load of a service is measured.
const WINDOW: Duration = Duration::from_secs(10);
/// Part of the admitted time by which a load may exceed it.
const TOLERANCE: f64 = 0.1;
/// Smallest excess that counts, in parts per million of a processor.
const LEAST: f64 = 1_000.0;

/// Counters of an instance since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Packets of its bindings.
    pub packets: u64,
    /// Packets with measured cycles: those of calls that a principal pays for.
    pub paid: u64,
    /// Cycles of the paid packets.
    pub cycles: u64,
}

impl Work {
    pub fn of(packets: u64, report: Option<&InstanceReport>) -> Self {
        // What the principal is charged: the calls, and the work around them.
        let (paid, cycles) = report.map_or((0, 0), |report| (report.costs.packets(), report.used.0));
        Self { packets, paid, cycles }
    }

    /// Returns the work since an earlier reading; `None` after a restart of the instance.
    fn since(self, earlier: Self) -> Option<Self> {
        Some(Self {
            packets: self.packets.checked_sub(earlier.packets)?,
            paid: self.paid.checked_sub(earlier.paid)?,
            cycles: self.cycles.checked_sub(earlier.cycles)?,
        })
    }
}

/// Work of the services that may move, at the start of a window.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    begun: BTreeMap<InstanceId, Work>,
    at: Option<Instant>,
}

impl Loads {
    /// Whether a window ends, and there are services that may move.
    pub fn is_due(&self, model: &Model, now: Instant) -> bool {
        self.at.is_none_or(|at| now.since(at) >= WINDOW) && model.placements.services.iter().any(can_move)
    }

    /// Ends the window, and returns the services to which the router gives another level for their measured load. Only
    /// services move that are at the workers, have no configured level, and need no moves of others.
    pub fn moves(
        &mut self,
        model: &Model,
        work_of: impl Fn(InstanceId) -> Work,
        now: Instant,
        no_cache: Option<&'static str>,
    ) -> Vec<PlacedService> {
        let seconds = self.at.replace(now).map_or(0.0, |at| now.since(at).as_secs_f64());
        let begun = std::mem::take(&mut self.begun);
        let mut moves = Vec::new();
        for placed in model.placements.services.iter().filter(|one| can_move(one)) {
            let Ok(id) = model.plugins.instance(&placed.instance) else { continue };
            let work = work_of(id);
            self.begun.insert(id, work);
            let done = begun.get(&id).and_then(|before| work.since(*before));
            moves.extend(done.and_then(|done| other_place(model, placed, (done, seconds), no_cache)));
        }
        moves
    }
}

fn can_move(placed: &PlacedService) -> bool {
    placed.service.pin().is_none() && placed.level == ServiceLevel::Worker
}

/// Returns a service at the offload, if its work in some seconds exceeds what was admitted, and the offload has room. The
/// levels are not balanced here: a small part of the workers may be less than one eBPF variant is of the offload, but
/// it was promised to nobody.
fn other_place(
    model: &Model,
    placed: &PlacedService,
    (done, seconds): (Work, f64),
    no_cache: Option<&'static str>,
) -> Option<PlacedService> {
    let plugin = model.plugins.plugin_named(placed.plugin).ok()?;
    let rate = done.packets as f64 / seconds;
    let declared =
        Demand::of(&placed.instance, &*plugin, Service { rate: rate.ceil() as u32, ..placed.service });
    let packet = match done.paid {
        0 => cost(placed.level, declared).ok()?.packet,
        paid => done.cycles as f64 / paid as f64,
    };
    let used = rate * packet / tsc::frequency() as f64 * PARTS;
    let admitted = placed.used.worker as f64;
    if used <= (admitted * (1.0 + TOLERANCE)).max(admitted + LEAST) {
        return None;
    }
    let byte = if done.paid > 0 { Some(0.0) } else { declared.service.byte };
    let load = Service { packet: Some(packet), byte, level: Some(ServiceLevel::Offload), ..declared.service };
    let Decision { placed: chosen, moves } =
        decide(model, Demand { service: load, ..declared }, no_cache).ok()?;
    moves.is_empty().then_some(PlacedService { service: placed.service, ..chosen })
}

/// Reason why the router moves a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its load exceeds what was admitted.
    Load,
    /// An allowance excludes its level, or it makes room for such a service.
    Allowance,
}

/// Notes an event for a service that moves.
pub(crate) fn note_move(placed: &PlacedService, reason: Reason, events: &Events) {
    let PlacedService { instance, level, .. } = placed;
    let why = match reason {
        Reason::Load => "it uses more of the workers than was admitted",
        Reason::Allowance => "an allowance has changed",
    };
    let text = format!("instance {instance} moves to the level {}, because {why}", level.name());
    events.note(
        EventKind::ServiceMoved,
        instance,
        text,
        json!({"instance": instance, "level": level.name()}),
    );
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    const TEXT: &str = "[[instance]]\nplugin = \"statistics\"\nname = \"a\"\n[instance.service]\nrate = 10\npacket = 100\n\
                        [[instance]]\nplugin = \"statistics\"\nname = \"pinned\"\n[instance.service]\nrate = 10\npacket = 100\n\
                        level = \"worker\"\n";

    fn work(packets: u64) -> Work {
        Work { packets, ..Work::default() }
    }

    #[test]
    fn service_with_a_grown_load_moves_to_the_offload() {
        let model = Model::planned(&Config::parse(TEXT, "f").unwrap()).unwrap();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut loads = Loads::default();
        assert!(loads.is_due(&model, at(0)));
        assert_eq!(loads.moves(&model, |_| work(0), at(0), None), []);
        assert!(!loads.is_due(&model, at(9)) && loads.is_due(&model, at(10)));
        // A hundred packets in ten seconds: as declared.
        assert_eq!(loads.moves(&model, |_| work(100), at(10), None), []);
        let grown = loads.moves(&model, |_| work(10_000_100), at(20), None);
        let [moved] = grown.as_slice() else { panic!("{grown:?}") };
        assert_eq!((&*moved.instance, moved.level, moved.service.rate), ("a", ServiceLevel::Offload, 10));
        assert_eq!(moved.used, Default::default());
        assert_eq!(loads.moves(&model, |_| work(20_000_100), at(30), Some("no flow is offloaded")), []);
        // A new instance begins at zero.
        assert_eq!(loads.moves(&model, |_| work(0), at(40), None), []);
    }

    #[test]
    fn service_with_a_grown_load_stays_where_the_allowance_of_its_owner_permits() {
        let allowance =
            "[[admission.allowance]]\nname = \"students\"\nuser = [\"alice\"]\nlevel = [\"worker\"]\n";
        let owned = TEXT.replacen("name = \"a\"\n", "name = \"a\"\nowner = \"alice\"\n", 1);
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        for (text, count) in [(owned.clone(), 1), (owned + allowance, 0)] {
            let model = Model::planned(&Config::parse(&text, "f").unwrap()).unwrap();
            let mut loads = Loads::default();
            loads.moves(&model, |_| work(0), at(0), None);
            assert_eq!(loads.moves(&model, |_| work(10_000_100), at(10), None).len(), count);
        }
    }

    #[test]
    fn service_leaves_the_workers_also_if_it_is_a_smaller_part_of_them_than_of_the_offload() {
        let model = Model::planned(&Config::parse(TEXT, "f").unwrap()).unwrap();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut loads = Loads::default();
        loads.moves(&model, |_| work(0), at(0), None);
        // 0.15 % of a processor is 0.3 % of the workers. One of 256 eBPF variants is 0.39 %.
        let grown = Work { packets: 30_000, paid: 30_000, cycles: tsc::frequency() / 1_000 * 15 };
        assert_eq!(loads.moves(&model, |_| grown, at(10), None).len(), 1);
    }

    #[test]
    fn measured_cycles_count_instead_of_declared_ones() {
        let model = Model::planned(&Config::parse(TEXT, "f").unwrap()).unwrap();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut loads = Loads::default();
        let paid = |packets, cycles| Work { packets, paid: packets, cycles };
        loads.moves(&model, |_| work(0), at(0), None);
        assert_eq!(loads.moves(&model, |_| paid(100, 10_000), at(10), None), []);
        let dear = tsc::frequency();
        assert_eq!(loads.moves(&model, |_| paid(200, 10_000 + dear), at(20), None).len(), 1);
    }
}
