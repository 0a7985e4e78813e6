//! Comparison of the cycles that instances use with those that their plugins, or their services, declare.

use std::collections::BTreeMap;

use millrace_config::Service;
use millrace_plugin::InstanceReport;
use millrace_plugin_abi::{DeclaredCycles, ProcessWork};
use millrace_telemetry::EventKind;
use millrace_units::{Cycles, InstanceId};
use serde_json::json;

use crate::events::Events;
use crate::model::Model;
use crate::workers::tsc::frequency;

/// Samples of a window, one about each second; so also its seconds.
const WINDOW: u32 = 10;
/// Part of the declared cycles that the use may exceed.
const TOLERANCE: f64 = 0.1;
/// Smallest number of packets in a window that is judged.
const LEAST: u64 = 100;
/// Bytes of a packet for which the declared cycles per byte are counted: lengths aren't measured.
const BYTES: f64 = 1514.0;

/// Use of an instance at the start of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    cycles: u64,
    packets: u64,
    calls: u64,
}

/// Uses of all instances at the start of the window.
#[derive(Debug, Default)]
pub(crate) struct Impacts {
    samples: u32,
    begun: BTreeMap<InstanceId, Use>,
}

impl Impacts {
    /// At the end of each window, notes an event for each instance that used more than its service, or else its plugin,
    /// declares: a service gets time for the packets that it declares, and not for those that need more. The use of an
    /// instance in processes is their processor time. Call this about once a second.
    pub fn judge(&mut self, model: &Model, reports: &[(InstanceId, InstanceReport)], events: &Events) {
        self.samples += 1;
        if self.samples < WINDOW {
            return;
        }
        self.samples = 0;
        let mut now = BTreeMap::new();
        for (id, report) in reports {
            let name = model.plugins.instance_name(*id);
            let Ok(plugin) = model.plugins.plugin_of(name) else { continue };
            let has_processes = plugin.runtime().has_processes();
            let used = if has_processes { Use::of_processes(report.process) } else { Use::of(report) };
            now.insert(*id, used);
            let of_service = model.placements.service(name).and_then(|placed| declared(placed.service));
            let by = match of_service {
                Some(_) => "its service".to_owned(),
                None => format!("plugin {}", plugin.name()),
            };
            let of_plugin = plugin.declared_cycles(if has_processes { "process" } else { "worker" });
            // The cycles of a worker are those of calls with packets only.
            let fixed = of_plugin.filter(|_| has_processes).map_or(0.0, |cycles| cycles.fixed);
            let Some(declared) = of_service.or(of_plugin) else { continue };
            let declared = DeclaredCycles { fixed, ..declared };
            let begun = self.begun.get(id).copied().unwrap_or_default();
            if let Some((used, allowed)) = used.since(begun).excess(&declared) {
                let percent = (used / allowed - 1.0) * 100.0;
                let text = format!(
                    "instance {name} uses {used:.0} cycles a packet, {percent:.0} % more than the {allowed:.0} that \
                     {by} declares"
                );
                let details =
                    json!({"instance": name, "plugin": plugin.name(), "used": used, "declared": allowed});
                events.note(EventKind::ImpactExceeded, name, text, details);
            }
        }
        self.begun = now;
    }
}

/// Returns the cycles that a service declares; `None` if its plugin declares them.
fn declared(service: Service) -> Option<DeclaredCycles> {
    let byte = service.byte.unwrap_or_default();
    service.packet.map(|packet| DeclaredCycles { packet, byte, ..DeclaredCycles::default() })
}

impl Use {
    fn of(report: &InstanceReport) -> Self {
        Self { cycles: report.costs.cycles(), packets: report.costs.packets(), calls: report.costs.calls() }
    }

    /// Returns the use of an instance in processes.
    fn of_processes(ProcessWork { time, packets, calls }: ProcessWork) -> Self {
        Self { cycles: Cycles::in_time(time, frequency()).0, packets, calls }
    }

    /// Returns the use since an earlier one. An instance that was replaced starts from zero.
    fn since(self, earlier: Self) -> Self {
        if self.packets < earlier.packets || self.cycles < earlier.cycles || self.calls < earlier.calls {
            return self;
        }
        Self {
            cycles: self.cycles - earlier.cycles,
            packets: self.packets - earlier.packets,
            calls: self.calls - earlier.calls,
        }
    }

    /// Returns used and declared cycles per packet if the use exceeds the declared cycles by more than the
    /// tolerance.
    fn excess(self, declared: &DeclaredCycles) -> Option<(f64, f64)> {
        if self.packets < LEAST {
            return None;
        }
        let packets = self.packets as f64;
        let used = self.cycles as f64 / packets;
        let calls = declared.call * self.calls as f64 / packets;
        let fixed = declared.fixed * f64::from(WINDOW) / packets;
        let allowed = fixed + calls + declared.packet + declared.byte * BYTES;
        (used > allowed * (1.0 + TOLERANCE)).then_some((used, allowed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DECLARED: DeclaredCycles = DeclaredCycles { fixed: 0.0, call: 300.0, packet: 100.0, byte: 0.0 };

    #[test]
    fn use_beyond_the_tolerance_is_an_excess() {
        let of = |cycles| Use { cycles, packets: 1000, calls: 100 };
        // 30 cycles of calls and 100 cycles a packet.
        assert_eq!(of(142_000).excess(&DECLARED), None);
        assert_eq!(of(144_000).excess(&DECLARED), Some((144.0, 130.0)));
        let few = Use { cycles: 1_000_000, packets: 99, calls: 99 };
        assert_eq!(few.excess(&DECLARED), None, "too few packets");
        let bytes = DeclaredCycles { byte: 1.0, ..DECLARED };
        assert_eq!(of(144_000).excess(&bytes), None);
    }

    #[test]
    fn cycles_of_a_service_count_instead_of_those_of_its_plugin() {
        let of = |packet| declared(Service { rate: 400, packet, ..Service::default() });
        assert_eq!(of(None), None);
        let declared = of(Some(1_500_000.0)).unwrap();
        let used = |cycles: u64| Use { cycles: cycles * 400, packets: 400, calls: 400 };
        assert_eq!(used(1_600_000).excess(&declared), None);
        assert_eq!(used(2_900_000).excess(&declared), Some((2_900_000.0, 1_500_000.0)));
    }

    #[test]
    fn processes_use_their_processor_time_and_are_allowed_their_fixed_cycles() {
        let work = |millis| ProcessWork { time: Duration::from_millis(millis), packets: 1000, calls: 100 };
        let second = frequency() as f64;
        // 1 ms a second, 10 µs a call and 9 µs a packet: 20 ms in a window.
        let declared = DeclaredCycles {
            fixed: second / 1e3,
            call: second / 1e5,
            packet: second * 9.0 / 1e6,
            ..DeclaredCycles::default()
        };
        assert_eq!(Use::of_processes(work(21)).excess(&declared), None);
        let (used, allowed) = Use::of_processes(work(40)).excess(&declared).unwrap();
        assert!((used / allowed - 2.0).abs() < 0.001, "{used} {allowed}");
    }

    #[test]
    fn use_of_a_window_begins_anew_after_a_replacement() {
        let (early, late) =
            (Use { cycles: 10, packets: 2, calls: 1 }, Use { cycles: 30, packets: 5, calls: 4 });
        assert_eq!(late.since(early), Use { cycles: 20, packets: 3, calls: 3 });
        assert_eq!(early.since(late), early);
    }
}
