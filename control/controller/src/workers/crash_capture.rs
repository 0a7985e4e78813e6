//! Crash capture: the frames of a panicked worker's last batch, and a report. The report holds the other data
//! that a replay needs.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use millrace_forward::{NextHop, NextHops, Route};
use millrace_pipeline::{GateTables, PortSettings, Stack};
use millrace_repository::{CrashCaptures, Held, MOST_FRAME_BYTES, MOST_REPORT_BYTES};
use millrace_telemetry::{CaptureFile, EventKind, utc};
use millrace_units::{InstanceId, PortId};
use millrace_wire::MacAddr;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::events::{Events, since_1970};
use crate::model::Model;
use crate::view::CrashView;
use crate::workers::route_table::RouteTable;
use crate::workers::worker_panic::WorkerPanic;

/// Maximum size of a stored backtrace, in bytes.
const MOST_BACKTRACE: usize = 64 << 10;
/// Maximum number of stored routes.
const MOST_ROUTES: usize = 512;

/// Report of a crash. A replay needs it together with the frames.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CrashReport {
    /// Time of the crash, UTC.
    pub time: String,
    pub version: String,
    pub worker: usize,
    pub message: String,
    /// File, line and column of the panic.
    pub location: String,
    /// Instance whose call panicked; `None` if no call was running.
    pub instance: Option<String>,
    /// Port that received the frames; `None` if the worker was not reading a device.
    pub port: Option<String>,
    /// Number of frames in the batch that did not fit into the capture.
    pub left_out: usize,
    pub ports: Vec<PortState>,
    /// Routes to the sources and destinations of the frames.
    pub routes: Vec<RouteState>,
    pub neighbours: Vec<NeighbourState>,
    pub configuration: String,
    pub backtrace: String,
}

/// State of a port at the time of the panic.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PortState {
    pub name: String,
    pub mac: String,
    pub mtu: u16,
    pub up: bool,
    /// Kernel index of the device; `None` for a port with the own stack.
    pub ifindex: Option<u32>,
    pub forwards: [bool; 2],
    pub addresses: Vec<IpNet>,
}

/// Route at the time of the panic.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RouteState {
    pub to: IpNet,
    pub kind: String,
    /// Port, gateway and weight of each next hop.
    pub via: Vec<(String, Option<IpAddr>, u16)>,
}

/// Neighbour at the time of the panic.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NeighbourState {
    pub port: String,
    pub address: IpAddr,
    pub mac: String,
}

/// Returns the crashes whose captures are stored in a state directory, the oldest first.
pub fn crashes(state: &Path) -> Vec<CrashView> {
    let captures = CrashCaptures::of(state);
    captures.names().iter().filter_map(|name| view(&captures, name)).collect()
}

fn view(captures: &CrashCaptures, name: &str) -> Option<CrashView> {
    let report: CrashReport = serde_json::from_slice(&captures.report(name).ok()?).ok()?;
    let CrashReport { time, version, message, location, instance, .. } = report;
    Some(CrashView { time, version, message, location, instance, capture: captures.frames(name) })
}

/// Writes the capture of a crash, and puts the instance whose call panicked into quarantine. Without a state
/// directory, the crash is only logged.
pub(crate) fn capture_crash(
    panic: WorkerPanic,
    state: Option<&Path>,
    model: &mut Model,
    tables: &GateTables,
    routes: &RouteTable,
) {
    let WorkerPanic { worker, ref note, .. } = panic;
    tracing::error!(worker, "a worker panicked at {}: {}", note.location, note.message);
    let instance = panic.post_mortem.instance;
    let Some(state) = state else {
        tracing::error!("no crash capture is written, because [plugins] state is \"none\"");
        return;
    };
    match write_capture(&CrashCaptures::of(state), panic, (&*model, tables, routes)) {
        Ok(path) => {
            tracing::error!("crash capture: {0}; `millrace replay --crash {0}` replays it", path.display());
        }
        Err(problem) => tracing::error!("can't write the crash capture: {problem}"),
    }
    if let Some(instance) = instance {
        quarantine_for_panic(model, instance);
    }
}

/// Notes an event for each crash that no earlier start has reported.
pub(crate) fn note_crashes(state: &Path, events: &Events) {
    let captures = CrashCaptures::of(state);
    for name in captures.take_unreported() {
        let Some(crash) = view(&captures, &name) else { continue };
        let text = format!("a worker panicked at {}: {}", crash.location, crash.message);
        tracing::error!("{text}; capture: {}", crash.capture.display());
        events.note(EventKind::WorkerPanicked, &name, text, json!(crash));
    }
}

/// Writes the frames of the last batch and the report. Returns the path of the capture.
fn write_capture(
    captures: &CrashCaptures,
    panic: WorkerPanic,
    (model, tables, routes): (&Model, &GateTables, &RouteTable),
) -> Result<PathBuf, String> {
    let now = since_1970();
    let port = panic.post_mortem.device.and_then(|device| {
        let own =
            |plan: &&crate::model::PortPlan| plan.settings.device == device && plan.config.vlan.is_none();
        model.ports.iter().find(own).map(|plan| plan.settings.name.clone())
    });
    let frames = &panic.post_mortem.frames;
    let (file, written) = frames_file(port.as_deref().unwrap_or("unknown"), now, frames)?;
    let mut report = CrashReport {
        time: utc(now.as_secs()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        worker: panic.worker,
        message: cut(panic.note.message.clone(), MOST_BACKTRACE),
        location: panic.note.location.clone(),
        instance: panic.post_mortem.instance.map(|id| model.plugins.instance_name(id).to_owned()),
        port,
        left_out: frames.len() - written,
        ports: model.ports.iter().map(|plan| PortState::of(&plan.settings)).collect(),
        routes: routes_of(model, routes, frames),
        neighbours: neighbours_of(model, &panic),
        configuration: model.as_written(tables).to_text().map_err(|error| error.to_string())?,
        backtrace: cut(panic.note.backtrace.to_string(), MOST_BACKTRACE),
    };
    let mut text = serde_json::to_vec_pretty(&report).map_err(|error| error.to_string())?;
    if text.len() > MOST_REPORT_BYTES {
        // If the configuration makes the report too long, the report omits the configuration: a stored
        // revision may replace it.
        report.configuration.clear();
        text = serde_json::to_vec_pretty(&report).map_err(|error| error.to_string())?;
    }
    let stamp: String = utc(now.as_secs()).chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("{stamp}-{}-{}", std::process::id(), panic.worker);
    captures.add(&name, &file, &text).map_err(|error| error.to_string())
}

/// Puts the instance of a panicked call into quarantine.
fn quarantine_for_panic(model: &mut Model, instance: InstanceId) {
    let instance = model.plugins.instance_name(instance).to_owned();
    let Ok(plugin) = model.plugins.plugin_of(&instance) else { return };
    let why = "a call of the instance panicked, ending the router".to_owned();
    let held = Held { plugin: plugin.name().to_owned(), since: since_1970().as_secs(), why, instance };
    tracing::error!("instance {0} is in quarantine until `millrace instance release {0}`", held.instance);
    if let Err(error) = model.repository.quarantine_mut().put(held) {
        tracing::error!("can't store the quarantine of the instance: {error}");
    }
}

/// Returns the routes to the frames' sources and destinations.
fn routes_of(model: &Model, table: &RouteTable, frames: &[Vec<u8>]) -> Vec<RouteState> {
    let mut routes = std::collections::BTreeMap::new();
    for address in frames.iter().flat_map(|frame| addresses(frame)) {
        if routes.len() < MOST_ROUTES
            && let Some((prefix, route)) = table.prefix_of(address)
        {
            routes.entry(prefix).or_insert(route);
        }
    }
    routes.into_iter().map(|(prefix, route)| RouteState::of(prefix, route, model)).collect()
}

fn neighbours_of(model: &Model, panic: &WorkerPanic) -> Vec<NeighbourState> {
    let neighbour = |(port, address, mac): &(PortId, IpAddr, MacAddr)| NeighbourState {
        port: model.port_name(*port).to_owned(),
        address: *address,
        mac: mac.to_string(),
    };
    panic.post_mortem.neighbours.iter().map(neighbour).collect()
}

impl PortState {
    fn of(settings: &PortSettings) -> Self {
        let ifindex = match settings.stack {
            Stack::Kernel { ifindex } => Some(ifindex),
            Stack::Own => None,
        };
        Self {
            name: settings.name.clone(),
            mac: settings.mac.to_string(),
            mtu: settings.mtu,
            up: settings.up,
            ifindex,
            forwards: [settings.forwards4, settings.forwards6],
            addresses: settings.addresses.clone(),
        }
    }

    /// Copies this state into the settings of a port.
    pub fn put_into(&self, settings: &mut PortSettings) {
        if let Ok(mac) = self.mac.parse() {
            settings.mac = mac;
        }
        if let Some(ifindex) = self.ifindex {
            settings.stack = Stack::Kernel { ifindex };
        }
        (settings.mtu, settings.up) = (self.mtu, self.up);
        [settings.forwards4, settings.forwards6] = self.forwards;
        settings.addresses.clone_from(&self.addresses);
    }
}

impl RouteState {
    fn of(to: IpNet, route: &Route, model: &Model) -> Self {
        let hop = |hop: &NextHop| (model.port_name(hop.port).to_owned(), hop.gateway, hop.weight);
        let via = match route {
            Route::Forward(hops) => hops.iter().map(hop).collect(),
            _ => Vec::new(),
        };
        Self { to, kind: route.kind().to_owned(), via }
    }

    /// Converts the state to a route of this router; `None` if the router lacks one of the ports.
    pub fn route(&self, port: impl Fn(&str) -> Option<PortId>) -> Option<Route> {
        let others = [
            Route::Local,
            Route::Kernel,
            Route::Broadcast,
            Route::Blackhole,
            Route::Unreachable,
            Route::Prohibit,
        ];
        if let Some(other) = others.into_iter().find(|other| other.kind() == self.kind) {
            return Some(other);
        }
        let hop = |(name, gateway, weight): &(String, Option<IpAddr>, u16)| {
            Some(NextHop { weight: *weight, ..NextHop::new(port(name)?, *gateway) })
        };
        let hops: Vec<NextHop> = self.via.iter().map(hop).collect::<Option<_>>()?;
        NextHops::new(&hops).ok().map(Route::Forward)
    }
}

/// Writes the frames as a pcapng file, up to its maximum size. Returns the bytes of the file, and the number
/// of frames in it.
fn frames_file(port: &str, at: Duration, frames: &[Vec<u8>]) -> Result<(Vec<u8>, usize), String> {
    let failed = |error: millrace_telemetry::CaptureFileError| error.to_string();
    let mut capture = CaptureFile::new(&[port], u32::from(u16::MAX)).map_err(failed)?;
    let mut file = capture.take();
    for (number, frame) in frames.iter().enumerate() {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        capture.frame(0, at, false, length, frame, None).map_err(failed)?;
        let piece = capture.take();
        if file.len() + piece.len() > MOST_FRAME_BYTES {
            return Ok((file, number));
        }
        file.extend(piece);
    }
    Ok((file, frames.len()))
}

/// Returns source and destination address of the IP packet in a frame with at most two VLAN tags. Returns
/// nothing for any other frame.
fn addresses(frame: &[u8]) -> Vec<IpAddr> {
    let word = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let tags = [12, 16].into_iter().take_while(|at| matches!(word(*at), Some(0x8100 | 0x88a8))).count();
    let network = frame.get(14 + 4 * tags..).unwrap_or_default();
    let v4 = |at: usize| network.get(at..)?.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes));
    let v6 = |at: usize| network.get(at..)?.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes));
    let found = match network.first().map(|first| first >> 4) {
        Some(4) => [v4(12), v4(16)],
        Some(6) => [v6(8), v6(24)],
        _ => [None, None],
    };
    found.into_iter().flatten().collect()
}

/// Returns the first `most` bytes of a text.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_behind_tags() {
        let mut packet = vec![0x45; 20];
        packet[12..16].copy_from_slice(&[10, 1, 0, 2]);
        packet[16..20].copy_from_slice(&[10, 2, 0, 2]);
        let expected: Vec<IpAddr> = ["10.1.0.2", "10.2.0.2"].map(|text| text.parse().unwrap()).to_vec();
        let plain = [&[0; 12][..], &[8, 0], &packet].concat();
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 7, 8, 0], &packet].concat();
        assert_eq!(addresses(&plain), expected);
        assert_eq!(addresses(&tagged), expected);
        assert!(addresses(&plain[..20]).is_empty() && addresses(&[]).is_empty());
    }

    #[test]
    fn frames_beyond_the_limit_are_left_out() {
        let frames = vec![vec![0; 60_000]; 256];
        let (file, written) = frames_file("lan", Duration::from_secs(1), &frames).unwrap();
        assert!(file.len() <= MOST_FRAME_BYTES && (60..256).contains(&written), "{written}");
    }
}
