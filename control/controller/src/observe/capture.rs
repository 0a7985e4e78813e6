//! Captures of frames, as pcapng.

use std::time::Duration;

use millrace_classify::CompiledSelection;
use millrace_config::Size;
use millrace_pipeline::{CapturePlace, CaptureSink, CaptureSource, Direction, capture};
use millrace_telemetry::CaptureFile;

use crate::ControlError;
use crate::model::Model;
use crate::ports::device::time_of_day;

/// Total size of the capture rings, in bytes. The workers share it equally.
const RING: usize = 4 << 20;

/// Place of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CaptureAt {
    /// All ports.
    #[default]
    Anywhere,
    /// Port of this name.
    Port(String),
    /// Gate of this name: captures packets before and after its bindings.
    Gate(String),
    /// Instance of this name: captures its packets.
    Instance(String),
}

/// Maximum number of bytes kept of a frame: 1 B to 65,535 B.
pub type SnapSize = Size<1, 65_535>;

/// Request for a capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureRequest {
    /// Place of the capture.
    pub place: CaptureAt,
    /// Filter of the captured packets; `None` captures all packets.
    pub filter: Option<String>,
    /// Maximum number of bytes kept of a frame; 0 means 65,535.
    pub snap: u32,
}

/// Running capture; it ends when dropped.
#[derive(Debug)]
pub struct Capture {
    /// Capture source of each worker.
    sources: Vec<CaptureSource>,
    file: CaptureFile,
    /// Time since 1970 at which the workers' clock was zero.
    origin: Duration,
}

impl Capture {
    /// Creates a capture with the compiled filter of the request, and the sinks for `workers` workers.
    pub(crate) fn new(
        request: &CaptureRequest,
        filter: Option<&CompiledSelection>,
        number: u32,
        model: &Model,
        workers: usize,
    ) -> Result<(Self, Vec<CaptureSink>), ControlError> {
        let place = match &request.place {
            CaptureAt::Anywhere => CapturePlace::Ports,
            CaptureAt::Port(name) => CapturePlace::Port(model.port(name)?.id),
            CaptureAt::Gate(name) => CapturePlace::Gate(model.plugins.gate(name)?.id),
            CaptureAt::Instance(name) => CapturePlace::Instance(model.instance(name)?),
        };
        let snap = if request.snap == 0 { u32::from(u16::MAX) } else { request.snap };
        let names = match &request.place {
            CaptureAt::Gate(name) => vec![format!("gate {name}")],
            CaptureAt::Instance(name) => vec![format!("instance {name}")],
            CaptureAt::Anywhere | CaptureAt::Port(_) => {
                let mut names = vec![String::new(); model.ports.len()];
                for plan in &model.ports {
                    names[plan.id.index()].clone_from(&plan.settings.name);
                }
                names
            }
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let file = CaptureFile::new(&names, snap).map_err(ControlError::refused)?;
        let ends =
            (0..workers).map(|_| capture(number, place, filter.cloned(), snap as usize, RING / workers));
        let (sinks, sources) = ends.unzip();
        Ok((Self { sources, file, origin: time_of_day() }, sinks))
    }

    /// Takes the frames captured since the last call. Returns them as the next part of a pcapng file, ordered
    /// by time. Also returns the number of these frames, and whether the capture has ended.
    pub fn take(&mut self) -> (Vec<u8>, u64, bool) {
        let ended = self.sources.iter().all(CaptureSource::is_ended);
        let mut taken = Vec::new();
        for source in &mut self.sources {
            taken.extend(std::iter::from_fn(|| source.next_frame()));
        }
        if self.sources.len() > 1 {
            taken.sort_by_key(|frame| frame.at);
        }
        let mut frames = 0;
        for frame in taken {
            let at = self.origin + Duration::from_nanos(frame.at.as_nanos());
            let outbound = frame.direction == Direction::Outbound;
            // This can't fail: every port has an interface in the file.
            if self.file.frame(frame.port.0.into(), at, outbound, frame.length, &frame.bytes, None).is_ok() {
                frames += 1;
            }
        }
        (self.file.take(), frames, ended)
    }

    /// Returns the number of frames lost because the ring of a worker was full.
    pub fn lost(&self) -> u64 {
        self.sources.iter().map(CaptureSource::lost).sum()
    }
}
