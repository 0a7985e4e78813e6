//! Traces: journeys of packets, assembled from the steps that workers record.

mod words;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use millrace_config::Time;
use millrace_pipeline::{ObservationCommand, TraceEvent, TraceSource, TraceStep};

pub(crate) use words::with_link;

use crate::ports::device::time_of_day;
use crate::router::Router;
use crate::view::TraceView;

/// Default time limit of a trace.
pub(crate) const TIME: Duration = Duration::from_secs(60);
/// Time limit of a trace, 1 s to 1 h.
pub type TraceTime = Time<1_000_000, 3_600_000_000>;
/// Maximum time to wait for the next step of an unfinished journey.
const PATIENCE: Duration = Duration::from_secs(3);

/// Selection of packets to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceRequest {
    /// Filter of the arriving packets; `None` for all packets.
    pub filter: Option<String>,
    /// Considers one of this many arriving packets, 1 to 1,048,576; every packet if `None`.
    pub every: Option<u32>,
    /// Number of packets to trace, 1 to 4,000; 10 if `None`.
    pub count: Option<u32>,
    /// Time limit, after which the trace ends with fewer packets; 60 s if `None`.
    pub time: Option<TraceTime>,
}

impl TraceRequest {
    /// Default number of packets to trace.
    pub const COUNT: u32 = 10;
}

/// Running trace. It ends when enough packets were traced, at its time limit, or when dropped.
#[derive(Debug)]
pub struct Trace {
    router: Router,
    number: u32,
    /// Readers of the steps, one for each worker.
    sources: Vec<TraceSource>,
    journeys: HashMap<u16, Journey>,
    /// Offset to be added to the workers' clock to get the time since 1970.
    origin: Duration,
    until: Instant,
    left: u32,
    told: u64,
}

/// Recorded steps of a packet so far.
#[derive(Debug)]
struct Journey {
    events: Vec<TraceEvent>,
    /// Time at which the last step was read.
    read: Instant,
    /// Whether the latest reading brought no further step, so that no earlier step of another worker is
    /// missing.
    is_settled: bool,
}

impl Journey {
    /// Returns the number of ends still missing: the packet has one, and each fragment after the first one
    /// more.
    fn open_ends(&self) -> i64 {
        self.events.iter().map(|event| ends(&event.step)).sum()
    }

    fn has_begun(&self) -> bool {
        self.events.iter().any(|event| matches!(event.step, TraceStep::Arrived(..)))
    }
}

/// Returns the change in the number of missing ends after a step.
fn ends(step: &TraceStep) -> i64 {
    match step {
        TraceStep::Arrived(..) => 1,
        TraceStep::Fragmented(fragments) => i64::from(*fragments) - 1,
        TraceStep::End(_) => -1,
        _ => 0,
    }
}

impl Trace {
    /// Returns the trace with this number, of up to `count` packets within `time`.
    pub(crate) fn new(
        router: &Router,
        number: u32,
        sources: Vec<TraceSource>,
        (count, time): (u32, Duration),
    ) -> Self {
        Self {
            router: router.clone(),
            number,
            sources,
            journeys: HashMap::new(),
            origin: time_of_day(),
            until: Instant::now() + time,
            left: count,
            told: 0,
        }
    }

    /// Returns the journeys that have ended since the last call, or whose next step was awaited in vain, in
    /// order of arrival. The flag tells whether the trace is over.
    pub fn take(&mut self) -> (Vec<TraceView>, bool) {
        let now = Instant::now();
        // A worker records its steps before it hands the packet over. If a reading of all workers sees a
        // step, the next reading therefore sees all steps before it.
        self.journeys.values_mut().for_each(|journey| journey.is_settled = true);
        self.read(now, true);
        self.read(now, false);
        let ended = self.sources.iter().all(TraceSource::is_ended);
        let is_out = now >= self.until;
        let mut done: Vec<(u16, bool)> = Vec::new();
        self.journeys.retain(|mark, journey| {
            let is_over = journey.is_settled && journey.has_begun() && journey.open_ends() <= 0;
            let is_given_up = ended || now >= journey.read + PATIENCE;
            if (is_over || is_given_up) && journey.has_begun() {
                done.push((*mark, is_over));
            }
            journey.has_begun() || !is_given_up
        });
        let mut journeys: Vec<(Vec<TraceEvent>, bool)> = done
            .into_iter()
            .filter_map(|(mark, is_over)| Some((self.journeys.remove(&mark)?.events, is_over)))
            .collect();
        for (events, _) in &mut journeys {
            // The counter gives the order of steps at different workers.
            events.sort_by_key(|event| event.counter);
        }
        journeys.sort_by_key(|(events, _)| events.first().map(|event| (event.at, event.counter)));
        journeys.truncate(self.left as usize);
        self.left -= journeys.len() as u32;
        let views = if journeys.is_empty() { Vec::new() } else { self.render(journeys) };
        let over = self.left == 0 || ended || (is_out && self.journeys.is_empty());
        (views, over)
    }

    fn read(&mut self, now: Instant, is_settled: bool) {
        for source in &mut self.sources {
            while let Some(event) = source.next_event() {
                let new = || Journey { events: Vec::new(), read: now, is_settled };
                let journey = self.journeys.entry(event.mark).or_insert_with(new);
                journey.events.push(event);
                (journey.read, journey.is_settled) = (now, is_settled);
            }
        }
    }

    fn render(&mut self, journeys: Vec<(Vec<TraceEvent>, bool)>) -> Vec<TraceView> {
        let inner = self.router.lock();
        let words = words::Words { model: &inner.model, routes: &inner.routes.table, origin: self.origin };
        let render = |(events, is_over): (Vec<TraceEvent>, bool)| {
            self.told += 1;
            words.view(self.told, &events, is_over)
        };
        journeys.into_iter().map(render).collect()
    }

    /// Returns the number of packets missing or incomplete in the trace, because steps were read too slowly.
    pub fn lost(&self) -> u64 {
        self.sources.iter().map(TraceSource::lost).sum()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let mut inner = self.router.lock();
        inner.observation.tracing = None;
        // A stopped router has no trace to stop.
        let _ = inner.workers.tell(|| ObservationCommand::StopTrace(self.number));
    }
}
