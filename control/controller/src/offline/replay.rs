//! Replay of recorded frames through a router without devices.

use std::path::Path;
use std::time::Duration;

use millrace_config::Config;
use millrace_port::pcap::Recording;
use millrace_telemetry::CaptureFile;
use std::io::Write;

use serde::Serialize;

use crate::ControlError;
use crate::offline::OfflineRouter;
use crate::view::SummaryView;
use crate::workers::crash_capture::CrashReport;
use crate::workers::worker_panic::catch;

/// Files of a replay, and the port that receives the frames.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Capture file with the frames to replay.
    pub input: &'a Path,
    /// Pcapng file for the sent frames, with one interface for each port.
    pub output: &'a Path,
    /// Port at which the frames arrive; the first port by default.
    pub at: Option<&'a str>,
}

/// Time for which the replay continues after the last frame, so that the router can send waiting packets.
/// Packets that wait longer for an unresolved neighbour are not sent.
const AFTER: Duration = Duration::from_secs(5);

/// Replays a file through a router of `config`, under a virtual clock that follows the timestamps of the
/// file.
pub fn replay(config: &Config, options: &Options<'_>) -> Result<SummaryView, ControlError> {
    let mut router = OfflineRouter::new(config)?;
    let ports = router.ports();
    let at = match options.at {
        Some(name) if ports.iter().any(|port| port == name) => name,
        Some(name) => return Err(ControlError::unknown("port", name, ports.iter().map(String::as_str))),
        None => ports.first().map(String::as_str).ok_or_else(|| {
            ControlError::invalid(
                "the configuration declares no [[port]] to receive the recorded frames: add one",
            )
        })?,
    };
    let recording =
        Recording::read(options.input).map_err(|error| ControlError::invalid(error.to_string()))?;
    let mut output = Output::create(options.output, &ports)?;
    let start = recording.origin();
    for (due, bytes) in (0..recording.len()).filter_map(|index| recording.get(index)) {
        let passed = Duration::from_nanos(router.now().as_nanos());
        let wait = due.saturating_sub(passed);
        router.advance_seeing(wait, |router| output.collect(router, start))?;
        router.inject(at, bytes);
        router.run();
        output.collect(&mut router, start)?;
    }
    router.advance_seeing(AFTER, |router| output.collect(router, start))?;
    output.finish()?;
    Ok(router.summary())
}

/// Number of times that the captured batch is replayed. In the second pass its flows are in the flow table.
const PASSES: usize = 2;

/// Outcome of the replay of a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// Whether the replay panicked at the same source line and column.
    pub reproduced: bool,
    /// Number of replayed frames.
    pub frames: usize,
    /// Source location of the original panic: file, line and column.
    pub location: String,
    /// Message of the original panic.
    pub message: String,
    /// Source location of the replay's panic; `None` if the replay did not panic.
    pub replayed_location: Option<String>,
    /// Message of the replay's panic; `None` if the replay did not panic.
    pub replayed_message: Option<String>,
}

/// Replays a crash capture through a router with the configuration, ports, routes and neighbours of its crash
/// report.
pub fn replay_crash(frames: &Path) -> Result<Crash, ControlError> {
    let wrong = |problem: String| ControlError::invalid(format!("{}: {problem}", frames.display()));
    let report =
        millrace_repository::report_of(frames).map_err(|error| ControlError::invalid(error.to_string()))?;
    let report: CrashReport =
        serde_json::from_slice(&report).map_err(|error| wrong(format!("invalid crash report: {error}")))?;
    let recording = Recording::read(frames).map_err(|error| ControlError::invalid(error.to_string()))?;
    let config = Config::parse(&report.configuration, "configuration of the crash report")?;
    let mut router = OfflineRouter::new(&config)?;
    router.restore(&report)?;
    let ports = router.ports();
    let at = report.port.as_deref().filter(|name| ports.iter().any(|port| port == name));
    let at = at
        .or(ports.first().map(String::as_str))
        .ok_or_else(|| wrong("the configuration in the crash report has no port".to_owned()))?;
    let panicked = catch(|| {
        for _ in 0..PASSES {
            let batch = (0..recording.len()).filter_map(|index| recording.get(index));
            batch.for_each(|(_, bytes)| router.inject(at, bytes));
            router.advance(AFTER);
        }
    })
    .err();
    // After the panic the router's state may be inconsistent, so it is not dropped.
    std::mem::forget(router);
    let CrashReport { location, message, .. } = report;
    Ok(Crash {
        reproduced: panicked.as_ref().is_some_and(|panic| panic.location == location),
        frames: recording.len(),
        location,
        message,
        replayed_location: panicked.as_ref().map(|panic| panic.location.clone()),
        replayed_message: panicked.map(|panic| panic.message),
    })
}

struct Output<'a> {
    file: std::io::BufWriter<std::fs::File>,
    path: &'a Path,
    capture: CaptureFile,
    ports: Vec<String>,
}

impl<'a> Output<'a> {
    pub(crate) fn create(path: &'a Path, ports: &[String]) -> Result<Self, ControlError> {
        let file = millrace_port::create_recording(path).map_err(|error| failed(path, &error))?;
        let names: Vec<&str> = ports.iter().map(String::as_str).collect();
        let capture = CaptureFile::new(&names, 65_535).map_err(|error| failed(path, &error))?;
        Ok(Self { file: std::io::BufWriter::new(file), path, capture, ports: ports.to_vec() })
    }

    fn collect(&mut self, router: &mut OfflineRouter, start: Duration) -> Result<(), ControlError> {
        let at = start + Duration::from_nanos(router.now().as_nanos());
        for (interface, port) in self.ports.iter().enumerate() {
            for frame in router.take(port) {
                let length = frame.len() as u32;
                self.capture
                    .frame(interface as u32, at, true, length, &frame, None)
                    .map_err(|error| failed(self.path, &error))?;
            }
        }
        self.file.write_all(&self.capture.take()).map_err(|error| failed(self.path, &error))
    }

    pub(crate) fn finish(mut self) -> Result<(), ControlError> {
        self.file
            .write_all(&self.capture.take())
            .and_then(|()| self.file.flush())
            .map_err(|error| failed(self.path, &error))
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> ControlError {
    ControlError::System(format!("can't write {}: {error}", path.display()))
}
