//! Resource `/capture`: frames as a pcapng stream.

mod frames;

use std::time::Duration;

use axum::response::Response;
use millrace_controller::operation::StartCapture;
use millrace_controller::{Capture, CaptureAt, CaptureRequest, SnapSize};
use millrace_units::count;
use schemars::JsonSchema;
use serde::Deserialize;

use self::frames::FramesLeft;
use crate::http::extract::Arguments;
use crate::http::problem::Problem;
use crate::http::streaming::{Ending, Source, as_file};
use crate::served::Session;

/// Interval between reads of new frames.
const POLL: Duration = Duration::from_millis(20);
/// Default snap length: whole frames.
const DEFAULT_SNAP: u32 = 65_535;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Port at which frames are captured; `any`, or no place at all, for all ports.
    port: Option<String>,
    /// Gate at which packets are captured, before and after its bindings.
    gate: Option<String>,
    /// Instance at which packets are captured, before and after its calls.
    instance: Option<String>,
    filter: Option<String>,
    /// Maximum number of bytes kept of each frame: `128B`, `1KiB`; whole frames by default.
    snap: Option<SnapSize>,
    /// Number of frames after which the capture ends; no limit by default.
    count: Option<u64>,
}

/// Streams a capture, until it has the wanted number of frames, the client disconnects, or the router stops.
pub(crate) async fn capture(
    session: Session,
    Arguments(wanted): Arguments<Wanted>,
) -> Result<Response, Problem> {
    let request = CaptureRequest {
        place: match (wanted.port, wanted.gate, wanted.instance) {
            (None, None, None) => CaptureAt::Anywhere,
            (Some(port), None, None) if port == "any" => CaptureAt::Anywhere,
            (Some(port), None, None) => CaptureAt::Port(port),
            (None, Some(gate), None) => CaptureAt::Gate(gate),
            (None, None, Some(instance)) => CaptureAt::Instance(instance),
            _ => {
                return Err(Problem::bad_request(
                    "`port`, `gate` and `instance` exclude each other: give at most one of them",
                ));
            }
        },
        filter: wanted.filter,
        snap: wanted.snap.map_or(DEFAULT_SNAP, SnapSize::bytes_u32),
    };
    let place = session.served.limits.streams.enter(session.call.principal())?;
    let recording = session.execute(StartCapture(request)).await?;
    let ending = Ending(session.served.ending);
    let running = Running { recording, left: FramesLeft(wanted.count), ending, ended: false };
    Ok(as_file(running, place, Ok))
}

struct Running {
    recording: Capture,
    left: FramesLeft,
    ending: Ending,
    ended: bool,
}

impl Source for Running {
    type Piece = Vec<u8>;

    /// Returns the next non-empty piece of the capture file; `None` at the end of the capture.
    async fn next(&mut self) -> Option<Vec<u8>> {
        while !self.ended {
            let (mut bytes, frames, over) = self.recording.take();
            let is_last = self.left.take(&mut bytes, frames);
            self.ended = is_last || over || self.ending.has_come();
            if !bytes.is_empty() {
                return Some(bytes);
            }
            if !self.ended {
                self.ending.pause(POLL).await;
            }
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let lost = self.recording.lost();
        if lost > 0 {
            tracing::warn!("a capture lost {}, because its client was too slow", count(lost, "frame"));
        }
    }
}
