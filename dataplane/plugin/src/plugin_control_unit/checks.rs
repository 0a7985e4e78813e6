//! Checks of names, ids, positions, features and references between objects.

use millrace_plugin_abi::{Message, Plugin, PluginError, Position};

use crate::{Gate, PluginControlError as Error};

pub(super) fn in_use(kind: &'static str, name: &str, users: &[String]) -> Result<(), Error> {
    if users.is_empty() {
        return Ok(());
    }
    Err(Error::InUse { kind, name: name.to_owned(), users: users.join(", ") })
}

/// Checks that a plugin has a control message.
pub(super) fn understood(plugin: &dyn Plugin, message: &Message) -> Result<(), Error> {
    let known = plugin.messages();
    if known.iter().any(|(name, _)| *name == message.name) {
        return Ok(());
    }
    Err(PluginError::unknown_message(plugin.name(), &message.name, known).into())
}

/// Rejects a plugin or host companion that requires a feature which its level lacks. A plugin's level is the
/// worker, a companion's level is the host.
pub(super) fn check_features(plugin: &dyn Plugin) -> Result<(), Error> {
    let refused = |problem| Error::Features { name: plugin.name(), problem };
    plugin.features().check_at_workers().map_err(refused)?;
    let companion = plugin.host_companion().map(Plugin::features).unwrap_or_default();
    companion.check_on_host_level().map_err(refused)
}

pub(super) fn check_name(kind: &'static str, name: &str) -> Result<(), Error> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&name.len()) && name.chars().all(valid) {
        return Ok(());
    }
    Err(Error::Name { kind, name: name.to_owned() })
}

/// Rejects a gate at a position that the plugin or action `what` doesn't support. `positions` are the
/// supported positions.
pub(super) fn check_position(
    gate: &Gate,
    positions: &[Position],
    what: impl Fn() -> String,
) -> Result<(), Error> {
    if positions.contains(&gate.position) {
        return Ok(());
    }
    let supported: Vec<_> = positions.iter().map(|position| position.name()).collect();
    Err(Error::Position {
        gate: gate.name.clone(),
        position: gate.position,
        what: what(),
        supported: supported.join(", "),
    })
}

/// Returns the smallest number that is not in use. Returns an error if this number isn't below `limit`.
pub(super) fn free(
    taken: impl Iterator<Item = usize>,
    limit: usize,
    kind: &'static str,
) -> Result<usize, Error> {
    let mut taken: Vec<_> = taken.collect();
    taken.sort_unstable();
    let free = (0..).zip(&taken).find(|(index, id)| *index != **id).map_or(taken.len(), |(index, _)| index);
    if free < limit { Ok(free) } else { Err(Error::Full { kind, limit }) }
}
