//! Control-plane policing: limits the rate of packets to the router itself, before the kernel or the own
//! stack gets them.

use std::collections::BTreeMap;

use millrace_config::ControlPlane;
use millrace_offload::ClassRate;
use millrace_packet::{CONTROL_CLASSES, ClassCounts, ControlClass};
use millrace_pipeline::{ClassLimit, ClassLimits};
use millrace_telemetry::Rate;
use millrace_units::Instant;

use crate::view::{ControlClassView, ControlPlaneView, PortClassView};

/// Minimum burst of a class, in packets.
const LEAST_BURST: u32 = 32;

/// Returns the burst of a class, in packets: the number of packets that `rate` allows in a tenth of a second,
/// but at least 32.
fn burst(rate: u32) -> u32 {
    (rate / 10).max(LEAST_BURST)
}

/// Returns the limit of each class from the settings. If policing is off, all classes have `None`.
pub(crate) fn limits_of(settings: &ControlPlane) -> ClassLimits {
    let rates = settings.rates();
    std::array::from_fn(|class| {
        let (_, rate) = rates[class];
        settings.police.then(|| ClassLimit { per_second: rate, burst: burst(rate) })
    })
}

/// Returns the limits in the format of the XDP programs.
pub(crate) fn class_rates(limits: &ClassLimits) -> [Option<ClassRate>; CONTROL_CLASSES] {
    limits.map(|limit| {
        limit.map(|limit| ClassRate { rate: limit.per_second.into(), burst: limit.burst.into() })
    })
}

/// Returns the view of control-plane policing. `ports` holds the counters of each port, by port name.
pub(crate) fn control_plane_view(
    settings: &ControlPlane,
    ports: &BTreeMap<String, ClassCounts>,
    rates: &mut Rate,
    at: Instant,
) -> ControlPlaneView {
    let mut classes = Vec::new();
    for (class, (_, rate)) in ControlClass::ALL.iter().zip(settings.rates()) {
        let mut view = class_view(*class, rate, ports);
        view.dropped_rate = rates.read(&format!("class {class}"), view.dropped, at);
        classes.push(view);
    }
    ControlPlaneView { police: settings.police, classes }
}

fn class_view(class: ControlClass, rate: u32, ports: &BTreeMap<String, ClassCounts>) -> ControlClassView {
    let at = |counts: &ClassCounts| {
        let (passed, dropped) = (counts.passed[class.index()], counts.dropped[class.index()]);
        PortClassView { passed, dropped }
    };
    let ports: BTreeMap<String, PortClassView> = ports
        .iter()
        .map(|(port, counts)| (port.clone(), at(counts)))
        .filter(|(_, counts)| counts.passed + counts.dropped > 0)
        .collect();
    ControlClassView {
        class: class.name(),
        meaning: class.meaning(),
        rate,
        burst: burst(rate),
        passed: ports.values().map(|counts| counts.passed).sum(),
        dropped: ports.values().map(|counts| counts.dropped).sum(),
        dropped_rate: 0.0,
        ports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_classes_have_the_same_names_in_the_same_order() {
        let settings = ControlPlane { ospf: 7, icmp: 5000, ..ControlPlane::default() };
        let names: Vec<&str> = settings.rates().iter().map(|(key, _)| *key).collect();
        let classes: Vec<&str> = ControlClass::ALL.iter().map(|class| class.name()).collect();
        assert_eq!(names, classes);
        let limits = limits_of(&settings);
        let limit = |class: ControlClass| limits[class.index()].map(|one| (one.per_second, one.burst));
        assert_eq!(limit(ControlClass::Ospf), Some((7, LEAST_BURST)));
        assert_eq!(limit(ControlClass::Icmp), Some((5000, 500)));
        let off = ControlPlane { police: false, ..settings };
        assert_eq!(limits_of(&off), ClassLimits::default());
    }
}
