//! Rates on the wire that principals reserved at ports, beside what the schedulers sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use millrace_config::{Principal, Resource};
use millrace_schedule::NodeWaits;
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
    /// Waits of packets.
    waits: NodeWaits,
    /// Reserved rate in bit/s.
    promised: u64,
    /// Longest time until a packet of an empty queue leaves.
    latency: Duration,
    /// Bits due to the principal since the first sample.
    due: f64,
}

impl Count {
    /// Returns the counters with what was due since `before`: the reserved rate while packets waited.
    ///
    /// Packets waited all the time if all bytes sent had waited before: the queue was never empty. Otherwise they
    /// waited for the time that the scheduler has measured up to the last departure, less the wait of the first packet
    /// of each backlog.
    fn after(self, before: Option<&Self>) -> Self {
        let Some(before) = before.filter(|before| before.sent <= self.sent) else { return self };
        let has_waited = self.waiting > 0 && before.waiting > 0;
        let has_waited_all = has_waited && self.sent - before.sent <= before.waiting_bytes;
        let rate = self.promised.min(before.promised) as f64;
        let length = self.at.since(before.at);
        // The waits start anew when the rate changes.
        let backlogged = self.waits.backlogged.saturating_sub(before.waits.backlogged).min(length);
        let periods = self.waits.periods.wrapping_sub(before.waits.periods);
        let waited = match has_waited_all {
            true => length,
            false => backlogged.saturating_sub(self.latency.saturating_mul(periods)),
        };
        Self { due: before.due + rate * waited.as_secs_f64(), ..self }
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
                    waits: view.waits.unwrap_or_default(),
                    promised: one.reserved_link(port).map_or(0, |rate| rate.0),
                    latency: one
                        .reserved_link(port)
                        .and_then(|rate| link_bound(model, port, rate.0))
                        .unwrap_or_default(),
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
                let shared_with = sharers(model, &place.0, &place.1);
                LinkPromiseView { longest_promised: longest, shared_with, ..self.view_of(place, promised) }
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
        let Count { sent, waiting, dropped, waits, .. } = last;
        LinkPromiseView {
            principal,
            port,
            promised,
            sent_wire_bytes: sent,
            waiting,
            dropped,
            longest_promised: None,
            longest_wait: microseconds(waits.longest),
            shared_with: Vec::new(),
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
            idle: (last.promised as f64 - entitled.max(delivered)).max(0.0).round() as u64,
            is_kept: delivered + slack >= entitled,
            dropped: growth(last.dropped, first.dropped),
        })
    }
}

/// Returns the principals that share the rate of a principal at a port: their packets are in its queue, so the promise
/// is one to all of them.
fn sharers(model: &Model, name: &str, port: &str) -> Vec<String> {
    let resource = Resource::Link(port);
    let shares = |other: &&Principal| {
        other.same_as(resource).is_some()
            && Principal::owner(&model.principals, &other.name, resource) == name
    };
    model.principals.iter().filter(shares).map(|one| one.name.to_string()).collect()
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
                    promised: 3_000_000,
                    waits: NodeWaits { longest: Duration::from_micros(7), ..NodeWaits::default() },
                    ..Count::default()
                },
            )]));
        }
        let view = promises.view_of(place.clone(), 5_000_000);
        let rates: Vec<u64> = view.windows.iter().map(|window| window.delivered).collect();
        assert_eq!(rates, [2_000_000, 2_000_000, 1_333_333]);
        let idle: Vec<u64> = view.windows.iter().map(|window| window.idle).collect();
        assert_eq!(idle, [1_000_000, 1_000_000, 1_666_667]);
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

    /// Returns whether the promise of 1 Mb/s is kept in each of 20 s in which the queue sends `sent` bytes, holds less
    /// than that, and has a backlog for a part of the time, in `periods`.
    fn is_kept(sent: u64, (backlogged, periods): (f64, u32), latency: Duration) -> (bool, u64) {
        let place = ("video".to_owned(), "wan".to_owned());
        let mut promises = LinkPromises::default();
        for second in 0..=20_u64 {
            let count = Count {
                at: Instant::ZERO + Duration::from_secs(second),
                sent: sent * second,
                waiting: 1,
                waiting_bytes: sent / 10,
                promised: 1_000_000,
                waits: NodeWaits {
                    backlogged: Duration::from_secs_f64(backlogged * second as f64),
                    periods: periods * second as u32,
                    ..NodeWaits::default()
                },
                latency,
                ..Count::default()
            };
            promises.keep(BTreeMap::from([(place.clone(), count)]));
        }
        let window = promises.window(&place, JUDGED).unwrap();
        (window.is_kept, window.entitled)
    }

    #[test]
    fn queue_with_less_than_a_second_of_traffic_is_judged_by_its_backlog() {
        // 1 Mb/s is 125,000 bytes in a second.
        for (sent, backlog, expected) in [
            (50_000, (1.0, 0), (false, 1_000_000)),
            (50_000, (0.4, 0), (true, 400_000)),
            (125_000, (1.0, 0), (true, 1_000_000)),
            // 100 times a second, a packet waits for up to 2 ms.
            (10_000, (0.2, 100), (true, 0)),
            (10_000, (0.5, 100), (false, 300_000)),
        ] {
            assert_eq!(is_kept(sent, backlog, Duration::from_millis(2)), expected, "{sent} {backlog:?}");
        }
    }

    #[test]
    fn principals_that_share_a_rate_are_named() {
        let text = "[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\nrate = \"20mbit\"\n\
                    node = [{ name = \"all\", kind = \"fifo\" }]\n[[principal]]\nname = \"a\"\n\
                    link = { wan = \"1mbit\" }\n[[principal]]\nname = \"b\"\nlink = { wan = { same-as = \"a\" } }\n\
                    [[principal]]\nname = \"c\"\nlink = { wan = { same-as = \"b\" } }\n";
        let model = Model::planned(&millrace_config::Config::parse(text, "f").unwrap()).unwrap();
        assert_eq!(sharers(&model, "a", "wan"), ["b", "c"]);
        assert!(sharers(&model, "b", "wan").is_empty());
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
