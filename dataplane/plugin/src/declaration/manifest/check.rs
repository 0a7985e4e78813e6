//! Rules for the values in a manifest.

use millrace_plugin_abi::binary::{MOST_COUNTERS, MOST_WINDOW};
use millrace_plugin_abi::{
    MOST_MAP_ENTRIES, MOST_MAP_KEY, MOST_MAP_MEMORY, MOST_MAP_VALUE, MOST_MAPS, MapShape,
};

use super::keys::shortened;
use super::{
    DeclaredCalls, DeclaredState, MOST_CONTEXTS, MOST_FLOW_STATE, MOST_NAME, MOST_SERVICE_STATE, Manifest,
    ManifestError,
};

/// Checks the values of a manifest.
pub(super) fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    unless(is_name(&manifest.name), "name", || wrong_name(&manifest.name))?;
    unless(is_version(&manifest.version), "version", || {
        format!("{:?} must be three numbers: major.minor.patch", manifest.version)
    })?;
    unless(is_line(&manifest.summary), "summary", || "give one line of text".to_owned())?;
    unless(!manifest.positions.is_empty(), "positions", || "give at least one position".to_owned())?;
    for (name, help) in &manifest.messages {
        unless(is_name(name), "messages", || wrong_name(name))?;
        unless(is_line(help), "messages", || format!("give {name:?} one line of help"))?;
    }
    let window = manifest.window;
    unless(window <= MOST_WINDOW, "window", || format!("{window} exceeds {MOST_WINDOW}"))?;
    let DeclaredState { flow, service, .. } = manifest.state;
    unless(flow <= MOST_FLOW_STATE, "flow-state", || {
        format!("{flow} exceeds the limit of {MOST_FLOW_STATE} bytes")
    })?;
    unless(service <= MOST_SERVICE_STATE, "service-state", || {
        format!("{service} exceeds the limit of {MOST_SERVICE_STATE} bytes")
    })?;
    unless(manifest.host_companion.as_deref().is_none_or(is_name), "host-companion", || {
        "give a file name in the plugin's own folder: letters, digits, '-', '_' and '.'".to_owned()
    })?;
    check_maps(manifest)?;
    check_counters(&manifest.counters)?;
    check_calls(&manifest.calls)
}

fn check_calls(DeclaredCalls { contexts, period, .. }: &DeclaredCalls) -> Result<(), ManifestError> {
    unless((1..=MOST_CONTEXTS).contains(contexts), "contexts", || {
        format!("{contexts} is not right; give a whole number from 1 to {MOST_CONTEXTS}")
    })?;
    let period = period.is_none_or(|period| !period.is_zero());
    unless(period, "period", || "give 1 millisecond or more".to_owned())
}

fn check_maps(manifest: &Manifest) -> Result<(), ManifestError> {
    let maps = &manifest.maps;
    unless(maps.len() <= MOST_MAPS, "maps", || format!("{} exceed {MOST_MAPS}", maps.len()))?;
    let writes = maps.is_empty() || manifest.has_capability("map-write");
    unless(writes, "maps", || "a plugin with maps needs the capability \"map-write\"".to_owned())?;
    for (place, map) in maps.iter().enumerate() {
        let is_new = maps.iter().take(place).all(|other| other.name != map.name);
        unless(is_new, "maps", || format!("{:?} is listed twice", shortened(&map.name)))?;
        if let Some(problem) = map_problem(map) {
            return Err(ManifestError::Value { key: "maps", problem });
        }
    }
    Ok(())
}

fn check_counters(counters: &[String]) -> Result<(), ManifestError> {
    unless(counters.len() <= MOST_COUNTERS, "counters", || {
        format!("{} counters exceed the limit of {MOST_COUNTERS}", counters.len())
    })?;
    for (place, name) in counters.iter().enumerate() {
        unless(is_name(name), "counters", || wrong_name(name))?;
        let is_new = !counters.iter().take(place).any(|other| other == name);
        unless(is_new, "counters", || format!("{name:?} is listed twice"))?;
    }
    Ok(())
}

/// Returns an error for the manifest's key `key` unless `holds` is true.
fn unless(holds: bool, key: &'static str, problem: impl FnOnce() -> String) -> Result<(), ManifestError> {
    if holds { Ok(()) } else { Err(ManifestError::Value { key, problem: problem() }) }
}

/// Describes the problem of a map; returns `None` for a valid map.
fn map_problem(map: &MapShape) -> Option<String> {
    let name = shortened(&map.name);
    if !is_name(&map.name) {
        return Some(wrong_name(&map.name));
    }
    for (what, number, most) in [
        ("key", map.key.into(), MOST_MAP_KEY.into()),
        ("value", map.value.into(), MOST_MAP_VALUE.into()),
        ("entries", map.entries, MOST_MAP_ENTRIES),
    ] {
        if !(1..=most).contains(&number) {
            return Some(format!("{name:?} has {what} {number}; the range is 1 to {most}"));
        }
    }
    let memory = map.memory();
    (memory > MOST_MAP_MEMORY)
        .then(|| format!("{name:?} would take {memory} bytes at each worker; the limit is {MOST_MAP_MEMORY}"))
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(allowed)
}

fn is_version(version: &str) -> bool {
    let is_number =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u32>().is_ok();
    version.split('.').count() == 3 && version.split('.').all(is_number)
}

fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(char::is_control)
}

fn wrong_name(name: &str) -> String {
    format!("{:?} must be 1 to {MOST_NAME} letters, digits, '-', '_' or '.'", shortened(name))
}
