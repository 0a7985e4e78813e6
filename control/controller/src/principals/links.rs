//! Rates on the wire that principals reserved at ports, beside what the schedulers sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use millrace_config::{Principal, Resource};
use millrace_telemetry::EventKind;
use millrace_units::{Instant, QueueId};
use serde_json::json;

use crate::ControlError;
use crate::events::Events;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::ports::devices::Devices;
use crate::principals::bounds::{link_bound, microseconds};
use crate::principals::windows::{JUDGED, TOLERANCE, WINDOWS, growth};
use crate::schedulers::view::{link_speed, nodes_of};
use crate::view::{LinkPromiseView, LinkWindowView};
use crate::workers::Workers;

/// Bits of two packets on the wire, by which a short window errs.
const SLACK: f64 = 2.0 * 1_564.0 * 8.0;

/// Principal and port of a reserved rate.
type Place = (String, String);

/// Counters of a principal's queue at a port.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    at: Instant,
    /// Bytes sent on the wire.
    sent: u64,
    waiting: u64,
    /// Bytes of the waiting packets.
    waiting_bytes: u64,
    dropped: u64,
    /// Longest time that a packet has waited.
    longest_wait: Duration,
    /// Reserved rate in bit/s; 0 if other principals share it.
    promised: u64,
    /// Bits due to the principal since the first sample.
    due: f64,
}

impl Count {
    /// Returns the counters with what was due since `before`: the reserved rate, if packets waited all the time.
    ///
    /// Packets waited all the time if all bytes sent had waited before: the queue was never empty.
    fn after(self, before: Option<&Self>) -> Self {
        let Some(before) = before.filter(|before| before.sent <= self.sent) else { return self };
        let has_waited = self.waiting > 0 && before.waiting > 0;
        let is_due = has_waited && self.sent - before.sent <= before.waiting_bytes;
        let rate = self.promised.min(before.promised) as f64;
        let length = self.at.since(before.at).as_secs_f64();
        Self { due: before.due + if is_due { rate * length } else { 0.0 }, ..self }
    }
}

/// State of a port that tells why a promise at it is broken.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortState {
    pub is_down: bool,
    /// Speed of the link in bit/s, if the kernel knows it.
    pub speed: Option<u64>,
    /// Rate of the scheduler in bit/s.
    pub rate: Option<u64>,
    /// Sum of the reserved rates in bit/s.
    pub reserved: u64,
}

impl PortState {
    /// Returns the state of a port; the default for an unknown port.
    pub fn of(port: &str, model: &Model, devices: &Devices, kernel: &Kernel) -> Self {
        let Ok(plan) = model.port(port) else { return Self::default() };
        let reserved = model.principals.iter().filter_map(|one| one.reserved_link(port));
        Self {
            is_down: !plan.settings.up,
            speed: link_speed(plan.id, devices, kernel).map(|speed| speed.0),
            rate: model.schedulers.configured(plan.id).and_then(|own| own.rate).map(|rate| rate.0),
            reserved: reserved.map(|rate| rate.0).sum(),
        }
    }

    /// Returns the likely cause of a broken promise.
    fn cause(&self, port: &str) -> String {
        let needed = self.rate.unwrap_or(self.reserved).max(self.reserved);
        match self.speed.filter(|speed| *speed < needed) {
            _ if self.is_down => format!("port {port} is down"),
            Some(speed) if speed < self.reserved => {
                format!("the link's {speed} bit/s are less than the reserved {} bit/s", self.reserved)
            }
            Some(speed) => format!("the link's {speed} bit/s are less than the scheduler's {needed} bit/s"),
            None => {
                "the device sends more slowly than the scheduler's rate, or an upper limit above the queue \
                     is less than the reserved rate"
                    .to_owned()
            }
        }
    }
}

/// Counters of the queues of principals over the last minute, about one a second, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct LinkPromises {
    samples: VecDeque<BTreeMap<Place, Count>>,
    broken: BTreeSet<Place>,
}

impl LinkPromises {
    /// Keeps the counters of all queues of principals. Call this about once a second.
    ///
    /// # Errors
    /// A worker doesn't answer.
    pub fn sample(&mut self, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        let mut counts = BTreeMap::new();
        for plan in &model.ports {
            let port = &*plan.config.name;
            let reserving = || model.principals.iter().filter(|one| one.reserved_link(port).is_some());
            if reserving().next().is_none() || model.schedulers.of(plan.id).is_none() {
                continue;
            }
            let nodes: BTreeMap<_, _> = nodes_of(plan.id, model, workers)?
                .into_iter()
                .map(|(view, at)| (QueueId(view.node.0 as u16), (view, at)))
                .collect();
            for one in reserving() {
                let Some((view, at)) = nodes.get(&model.schedulers.queue_of_principal(&one.name)) else {
                    continue;
                };
                let count = Count {
                    at: *at,
                    sent: view.sent_wire_bytes,
                    waiting: view.held_packets.into(),
                    waiting_bytes: view.held_bytes.into(),
                    dropped: view.drops.iter().map(|(_, packets)| packets).sum(),
                    longest_wait: view.longest_wait.unwrap_or_default(),
                    promised: judged_rate(model, &one.name, port),
                    due: 0.0,
                };
                counts.insert((one.name.to_string(), port.to_owned()), count);
            }
        }
        self.keep(counts);
        Ok(())
    }

    fn keep(&mut self, counts: BTreeMap<Place, Count>) {
        if counts.is_empty() {
            return self.samples.clear();
        }
        let before = self.samples.back();
        let counts = counts.into_iter().map(|(place, count)| {
            let count = count.after(before.and_then(|counts| counts.get(&place)));
            (place, count)
        });
        let counts = counts.collect();
        self.samples.push_back(counts);
        while self.samples.len() > WINDOWS[2] as usize + 1 {
            self.samples.pop_front();
        }
    }

    /// Notes an event for each promise that is broken now or kept again. `state`: returns the state of a port.
    pub fn judge(&mut self, state: impl Fn(&str) -> PortState, events: &Events) {
        let Some(last) = self.samples.back() else { return self.broken.clear() };
        self.broken.retain(|place| last.contains_key(place));
        let places: Vec<Place> = last.keys().cloned().collect();
        for place in places {
            let Some(window) = self.window(&place, JUDGED) else { continue };
            let is_broken = self.broken.contains(&place);
            if window.seconds < JUDGED as f64 * 0.9 || window.is_kept != is_broken {
                continue;
            }
            let (principal, port) = &place;
            let LinkWindowView { entitled, delivered, dropped, .. } = window;
            let details = json!({
                "principal": principal, "port": port, "entitled": entitled, "delivered": delivered, "dropped": dropped
            });
            if window.is_kept {
                let text = format!("{principal} gets its rate at port {port} again");
                events.note(EventKind::PromiseKept, principal, text, details);
                self.broken.remove(&place);
                continue;
            }
            let cause = state(port).cause(port);
            let text = format!(
                "{principal} got {delivered} bit/s of port {port} instead of {entitled} bit/s for {JUDGED} s: {cause}"
            );
            events.note(EventKind::PromiseBroken, principal, text, details);
            self.broken.insert(place);
        }
    }

    /// Returns each reserved rate beside what was sent.
    pub fn view(&self, model: &Model) -> Vec<LinkPromiseView> {
        let links = model.principals.iter().flat_map(|one| {
            let own =
                |port: &String| Some(((one.name.to_string(), port.clone()), one.reserved_link(port)?.0));
            one.link.keys().filter_map(own)
        });
        links
            .map(|(place, promised)| {
                let longest = link_bound(model, &place.1, promised).map(microseconds);
                LinkPromiseView { longest_promised: longest, ..self.view_of(place, promised) }
            })
            .collect()
    }

    /// Returns the number of packets that the queues of a principal at ports dropped.
    pub fn dropped(&self, principal: &str) -> u64 {
        self.latest(principal).map(|(_, count)| count.dropped).sum()
    }

    /// Returns the number of packets that the queues of a principal at ports dropped in the last `seconds`.
    pub fn lost(&self, principal: &str, seconds: u64) -> u64 {
        self.latest(principal).filter_map(|(place, _)| Some(self.window(place, seconds)?.dropped)).sum()
    }

    /// Returns the latest counters of the queues of a principal.
    fn latest(&self, principal: &str) -> impl Iterator<Item = (&Place, &Count)> {
        let from = (principal.to_owned(), String::new());
        let latest = self.samples.back().into_iter().flat_map(move |counts| counts.range(from.clone()..));
        latest.take_while(move |((name, _), _)| name == principal)
    }

    fn view_of(&self, place: Place, promised: u64) -> LinkPromiseView {
        let last = self.samples.back().and_then(|counts| counts.get(&place)).copied().unwrap_or_default();
        let windows = WINDOWS.iter().filter_map(|seconds| self.window(&place, *seconds)).collect();
        let (principal, port) = place;
        let Count { sent, waiting, dropped, longest_wait, .. } = last;
        LinkPromiseView {
            principal,
            port,
            promised,
            sent_wire_bytes: sent,
            waiting,
            dropped,
            longest_promised: None,
            longest_wait: microseconds(longest_wait),
            windows,
        }
    }

    /// Returns the rate in the last `seconds`, or since the first sample if that is later; `None` before the
    /// second sample.
    fn window(&self, place: &Place, seconds: u64) -> Option<LinkWindowView> {
        let last = self.samples.back()?.get(place)?;
        // A queue that was added again starts at zero, and the samples before that don't count.
        let known = || {
            let earlier = self.samples.iter().rev().skip(1).map_while(|counts| counts.get(place));
            earlier.take_while(|count| count.sent <= last.sent)
        };
        let least = Duration::from_millis(seconds * 1000 - 300);
        let first = known().find(|count| last.at.since(count.at) >= least).or_else(|| known().last())?;
        let length = last.at.since(first.at).as_secs_f64();
        let rate = |bits: f64| bits / length.max(1e-3);
        let (delivered, entitled) = (rate((last.sent - first.sent) as f64 * 8.0), rate(last.due - first.due));
        let slack = entitled * TOLERANCE + rate(SLACK);
        Some(LinkWindowView {
            seconds: length,
            delivered: delivered.round() as u64,
            entitled: entitled.round() as u64,
            is_kept: delivered + slack >= entitled,
            dropped: growth(last.dropped, first.dropped),
        })
    }
}

/// Returns the rate by which the promise to a principal at a port is judged; 0 if other principals share the rate,
/// because their queues take part of it.
fn judged_rate(model: &Model, name: &str, port: &str) -> u64 {
    let resource = Resource::Link(port);
    let shares = |other: &Principal| {
        other.same_as(resource).is_some()
            && Principal::owner(&model.principals, &other.name, resource) == name
    };
    let own = model.principals.iter().find(|one| *one.name == *name);
    match model.principals.iter().any(shares) {
        true => 0,
        false => own.and_then(|one| one.reserved_link(port)).map_or(0, |rate| rate.0),
    }
}

#[cfg(test)]
mod tests {
    use millrace_telemetry::{Event, EventQuery};

    use super::*;

    #[test]
    fn delivered_rates_are_those_of_the_last_seconds_and_minute() {
        let place = ("video".to_owned(), "wan".to_owned());
        let mut promises = LinkPromises::default();
        // 1 Mb/s for 50 s, then 2 Mb/s for 20 s.
        for second in 0..=70_u64 {
            let sent = 125_000 * (second + second.saturating_sub(50));
            let at = Instant::ZERO + Duration::from_secs(second);
            promises.keep(BTreeMap::from([(
                place.clone(),
                Count {
                    at,
                    sent,
                    waiting: 3,
                    dropped: 1,
                    longest_wait: Duration::from_micros(7),
                    ..Count::default()
                },
            )]));
        }
        let view = promises.view_of(place.clone(), 5_000_000);
        let rates: Vec<u64> = view.windows.iter().map(|window| window.delivered).collect();
        assert_eq!(rates, [2_000_000, 2_000_000, 1_333_333]);
        assert_eq!((promises.dropped("video"), promises.dropped("other")), (1, 0));
        assert_eq!((view.waiting, view.dropped, view.sent_wire_bytes), (3, 1, 125_000 * 90));
        assert_eq!(view.longest_wait, 7);
        // The queue was removed and added again.
        let at = Instant::ZERO + Duration::from_secs(71);
        promises.keep(BTreeMap::from([(place.clone(), Count { at, sent: 10, ..Count::default() })]));
        assert!(promises.view_of(place, 5_000_000).windows.is_empty());
    }

    /// Returns the events of a principal that reserves 1 Mb/s, while 100 kB wait: its queue sends `sent` bytes each
    /// second for 20 s, then 125 kB.
    fn judged(sent: u64, waiting: u64, state: &PortState) -> Vec<Event> {
        let place = ("video".to_owned(), "wan".to_owned());
        let (mut promises, events, mut total) = (LinkPromises::default(), Events::default(), 0);
        for second in 0..=40_u64 {
            let count = Count {
                at: Instant::ZERO + Duration::from_secs(second),
                sent: total,
                waiting,
                waiting_bytes: 100 * waiting,
                promised: 1_000_000,
                ..Count::default()
            };
            promises.keep(BTreeMap::from([(place.clone(), count)]));
            promises.judge(|_| state.clone(), &events);
            total += if second < 20 { sent } else { 125_000 };
        }
        events.page(&EventQuery::default()).events
    }

    #[test]
    fn broken_promise_of_a_link_is_one_event_with_its_cause() {
        let up = PortState { rate: Some(20_000_000), reserved: 5_000_000, ..PortState::default() };
        for (state, cause) in [
            (PortState { is_down: true, speed: Some(1), ..up.clone() }, "port wan is down"),
            (
                PortState { speed: Some(4_000_000), ..up.clone() },
                "the link's 4000000 bit/s are less than the reserved",
            ),
            (
                PortState { speed: Some(9_000_000), ..up.clone() },
                "9000000 bit/s are less than the scheduler's 20000000",
            ),
            (PortState { speed: Some(20_000_000), ..up.clone() }, "the device sends more slowly"),
            (up.clone(), "the device sends more slowly"),
        ] {
            let events = judged(50_000, 1_000, &state);
            let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
            assert_eq!(kinds, [EventKind::PromiseBroken, EventKind::PromiseKept]);
            assert!(events[0].text.contains(cause), "{}", events[0].text);
            assert_eq!((&*events[0].subject, &events[0].details["port"]), ("video", &json!("wan")));
            assert_eq!(
                (&events[0].details["entitled"], &events[0].details["delivered"]),
                (&json!(1_000_000), &json!(400_000))
            );
        }
    }

    #[test]
    fn promise_of_a_link_is_kept_without_waiting_packets_or_at_the_reserved_rate() {
        let state = PortState::default();
        assert_eq!(judged(50_000, 0, &state), []);
        // Fewer bytes waited than were sent, so the queue may have been empty.
        assert_eq!(judged(50_000, 10, &state), []);
        assert_eq!(judged(125_000, 2_000, &state), []);
        assert_eq!(judged(0, 1_000, &state).len(), 2);
    }
}
