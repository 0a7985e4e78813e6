//! Traces: journeys of packets, assembled from the steps that workers record.

mod words;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use millrace_config::Time;
use millrace_pipeline::{TraceEvent, TraceSource, TraceStep};
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use words::with_link;

use crate::model::Model;
use crate::observe::words::Names;
use crate::ports::device::time_of_day;
use crate::view::TraceView;
use crate::workers::route_table::RouteTable;

/// Default time limit of a trace.
pub(crate) const TIME: Duration = Duration::from_secs(60);
/// Time limit of a trace, 1 s to 1 h.
pub type TraceTime = Time<1_000_000, 3_600_000_000>;
/// Maximum time to wait for the next step of a journey that has not ended.
const PATIENCE: Duration = Duration::from_secs(3);

/// Request body that starts a trace: the selected packets, and the limits of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Filter of the arriving packets; all packets by default.
    pub filter: Option<String>,
    /// Number of packets to trace, 1 to 4,000; 10 by default.
    #[schemars(range(min = 1, max = 4000))]
    pub count: Option<u32>,
    /// Sampling interval: 8 considers one in 8 arriving packets, on average. By default, every packet is
    /// considered.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub every: Option<u32>,
    /// Time limit of the trace, 1 s to 1 h: `30s`, `10m`; 60 s by default.
    pub time: Option<TraceTime>,
}

impl TraceRequest {
    /// Default number of packets to trace.
    pub const COUNT: u32 = 10;
}

/// Journeys of a running trace.
#[derive(Debug)]
pub(crate) struct Journeys {
    /// Readers of the steps, one for each worker.
    sources: Vec<TraceSource>,
    /// Journeys that have not ended, by the trace number of the packet.
    open: HashMap<u16, Journey>,
    /// Time since 1970 at which the workers' clock was zero.
    origin: Duration,
    until: Instant,
    left: u32,
    told: u64,
}

/// Recorded steps of a packet so far.
#[derive(Debug)]
struct Journey {
    events: Vec<TraceEvent>,
    /// Time at which the latest step was read.
    read: Instant,
    /// Whether the second of two readings brought no further step of this packet. Then all steps before the
    /// latest known step are known too.
    is_settled: bool,
}

impl Journey {
    /// Returns the number of ends still missing. A packet has one end; fragmentation adds one end for each
    /// fragment after the first.
    fn open_ends(&self) -> i64 {
        self.events.iter().map(|event| ends(&event.step)).sum()
    }

    fn has_begun(&self) -> bool {
        self.events.iter().any(|event| matches!(event.step, TraceStep::Arrived(..)))
    }
}

/// Returns the change in the number of missing ends that a step causes: -1 for a step that is an end.
fn ends(step: &TraceStep) -> i64 {
    match step {
        TraceStep::Arrived(..) => 1,
        TraceStep::Fragmented(fragments) => i64::from(*fragments) - 1,
        TraceStep::End(_) => -1,
        _ => 0,
    }
}

/// Steps of an ended journey, and whether all of them were read.
pub(crate) type Ended = (Vec<TraceEvent>, bool);

impl Journeys {
    /// Creates a collector for the journeys of up to `count` packets within `time`.
    pub fn new(sources: Vec<TraceSource>, (count, time): (u32, Duration)) -> Self {
        Self {
            sources,
            open: HashMap::new(),
            origin: time_of_day(),
            until: Instant::now() + time,
            left: count,
            told: 0,
        }
    }

    /// Returns the journeys that have ended since the last call, in order of arrival. Also returns a journey,
    /// as incomplete, if its next step does not arrive in time. The flag tells whether the trace is over.
    pub fn take(&mut self) -> (Vec<Ended>, bool) {
        let now = Instant::now();
        // A worker records its steps before it hands the packet over. So if one reading finds a step, the
        // next reading finds all earlier steps.
        self.open.values_mut().for_each(|journey| journey.is_settled = true);
        self.read(now, true);
        self.read(now, false);
        let ended = self.sources.iter().all(TraceSource::is_ended);
        let is_out = now >= self.until;
        let mut done: Vec<(u16, bool)> = Vec::new();
        self.open.retain(|mark, journey| {
            let is_over = journey.is_settled && journey.has_begun() && journey.open_ends() <= 0;
            let is_given_up = ended || now >= journey.read + PATIENCE;
            if (is_over || is_given_up) && journey.has_begun() {
                done.push((*mark, is_over));
            }
            journey.has_begun() || !is_given_up
        });
        let mut journeys: Vec<Ended> = done
            .into_iter()
            .filter_map(|(mark, is_over)| Some((self.open.remove(&mark)?.events, is_over)))
            .collect();
        for (events, _) in &mut journeys {
            // The counter is common to all workers, so it gives the order of their steps.
            events.sort_by_key(|event| event.counter);
        }
        journeys.sort_by_key(|(events, _)| events.first().map(|event| (event.at, event.counter)));
        journeys.truncate(self.left as usize);
        self.left -= journeys.len() as u32;
        let over = self.left == 0 || ended || (is_out && self.open.is_empty());
        (journeys, over)
    }

    fn read(&mut self, now: Instant, is_settled: bool) {
        for source in &mut self.sources {
            while let Some(event) = source.next_event() {
                let new = || Journey { events: Vec::new(), read: now, is_settled };
                let journey = self.open.entry(event.mark).or_insert_with(new);
                journey.events.push(event);
                (journey.read, journey.is_settled) = (now, is_settled);
            }
        }
    }

    pub fn render(&mut self, ended: Vec<Ended>, model: &Model, routes: &RouteTable) -> Vec<TraceView> {
        let words = words::Words { names: Names { model, routes }, origin: self.origin };
        let render = |(events, is_over): Ended| {
            self.told += 1;
            words.view(self.told, &events, is_over)
        };
        ended.into_iter().map(render).collect()
    }

    /// Returns the number of packets that the trace lacks or shows incompletely, because their steps were
    /// read too slowly.
    pub fn lost(&self) -> u64 {
        self.sources.iter().map(TraceSource::lost).sum()
    }
}
