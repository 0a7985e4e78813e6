//! Gates of a router in memory, and their bindings.

use millrace_classify::{CompiledExpression, Filter};
use millrace_plugin::{BindingId, CallLimits, PluginChange, PluginControlUnit};
use millrace_testkit::classbench;

use super::{GatesSetup, Setup, failed};
use crate::BenchError;
use crate::family::Family;

/// Gates of the setups that have gates; each has an instance with the gate's name.
const GATES: [&str; 3] = ["security-in", "process", "monitor"];

pub(super) type Unit = PluginControlUnit<Filter, CompiledExpression>;

/// Returns a plugin control unit with the gates and all bindings.
pub(super) fn gates(family: Family, setup: Setup) -> Result<Unit, BenchError> {
    let mut unit = Unit::new();
    unit.add_plugin(std::sync::Arc::new(millrace_plugin_null::Null)).map_err(failed)?;
    for gate in unit.gates() {
        if setup.gates == GatesSetup::None || !GATES.contains(&gate.name.as_str()) {
            unit.remove_gate(&gate.name).map_err(failed)?;
        }
    }
    let filters = match setup.gates {
        GatesSetup::None => return Ok(unit),
        GatesSetup::Empty => Vec::new(),
        GatesSetup::Null => vec![Filter::default()],
        GatesSetup::Filters(count) => {
            let mut filters = classbench::generate(classbench::Style::Acl, family.into(), count, 1).filters;
            filters.push(Filter::default());
            filters
        }
    };
    for gate in GATES {
        unit.create_instance("null", gate, serde_json::Map::new()).map_err(failed)?;
        for filter in &filters {
            // Ignore errors: a generated set may contain a filter twice.
            let _ = bind(&mut unit, gate, filter, 0);
        }
    }
    if setup.established > 0 {
        bind(&mut unit, COUNTING, &of_established(family)?, 1)?;
    }
    Ok(unit)
}

/// Gate that counts the packets of established flows.
pub(super) const COUNTING: &str = "process";

/// Returns a filter that matches exactly the packets of established flows.
pub(super) fn of_established(family: Family) -> Result<Filter, BenchError> {
    let filter = match family {
        Family::V4 => "src 31.0.0.0/8",
        Family::V6 => "src fd1f::/16",
    };
    filter.parse().map_err(failed)
}

/// Binds the instance of a gate to a filter.
pub(super) fn bind(
    unit: &mut Unit,
    gate: &str,
    filter: &Filter,
    priority: i32,
) -> Result<(BindingId, PluginChange<CompiledExpression>), BenchError> {
    let compiled = filter.compile(|_| None).map_err(failed)?.into();
    unit.register_instance(gate, gate, filter.clone(), compiled, priority, CallLimits::default())
        .map_err(failed)
}

/// Returns the changes that create the gates and bindings.
pub(super) fn changes(unit: &Unit) -> Result<Vec<PluginChange<CompiledExpression>>, BenchError> {
    unit.populate().map_err(failed)
}
