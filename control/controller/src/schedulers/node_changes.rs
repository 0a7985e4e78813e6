//! Changes of a scheduler node's settings.

use std::collections::HashSet;

use millrace_config::{Scheduler, SchedulerNode};
use serde_json::{Map, Value};

use crate::ControlError;
use crate::model::schedulers::{default_leaf, find, unless_empty};
use crate::request::merge_patch::patched;

/// Settings of a port's scheduler as a whole, which `scheduler set PORT` changes.
pub(crate) const SETTINGS: [&str; 6] = ["rate", "overhead", "default", "queues", "host", "host-weight"];

/// Changes settings of a node in a port's scheduler.
pub(crate) fn set_node(
    scheduler: &mut Scheduler,
    port: &str,
    name: &str,
    changes: &Map<String, Value>,
) -> Result<(), ControlError> {
    let own = find(unless_empty(scheduler, port)?, name)?;
    let node: SchedulerNode = patched(own, changes)?;
    if own.kind != node.kind && !(own.kind.is_leaf() && node.kind.is_leaf()) {
        return Err(ControlError::invalid(format!(
            "node {name:?} is a {}: only a leaf can change its kind, and only to another leaf kind, not to {}; remove the node, \
             and add a new one",
            own.kind.name(),
            node.kind.name()
        )));
    }
    for own in scheduler.node.iter_mut().filter(|own| own.name == name) {
        *own = node.clone();
    }
    let default = default_leaf(scheduler)?.map(str::to_owned);
    in_order(&mut scheduler.node);
    // If no default leaf is configured, the first leaf is the default, and reordering may change it. In this
    // case the former default leaf becomes the configured default, so that unassigned packets stay in their
    // queue.
    if default_leaf(scheduler)?.map(str::to_owned) != default {
        scheduler.default = default;
    }
    Ok(())
}

/// Orders nodes so that each follows its parent. Nodes with an unknown parent come last.
fn in_order(nodes: &mut Vec<SchedulerNode>) {
    let mut there = HashSet::new();
    let mut left = std::mem::take(nodes);
    loop {
        let before = nodes.len();
        for node in std::mem::take(&mut left) {
            match node.under.as_ref().is_none_or(|under| there.contains(under)) {
                true => {
                    there.insert(node.name.clone());
                    nodes.push(node);
                }
                false => left.push(node),
            }
        }
        if nodes.len() == before {
            break;
        }
    }
    nodes.append(&mut left);
}
