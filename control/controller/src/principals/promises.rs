//! What the router promised to principals, and what it delivered, over the last seconds and minute.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use millrace_pipeline::{PrincipalCounts, PrincipalDrops, PrincipalUse};
use millrace_principals::processor_times;
use millrace_telemetry::EventKind;
use millrace_units::{Instant, PrincipalId};
use serde_json::json;

use super::shares::Promised;
use crate::events::Events;
use crate::model::Model;
use crate::principals::bounds::{microseconds, processor_bound};
use crate::principals::links::LinkPromises;
use crate::principals::windows::{JUDGED, TOLERANCE, WINDOWS, growth};
use crate::view::{DeadlinesView, PrincipalDropsView, PromiseView, PromiseWindowView};

/// Slices of others for which a principal may have to wait.
const SLICES: f64 = 2.0;
/// Time of a processor that the hypervisor must take to count as the cause of missed deadlines, in percent.
const LEAST_STEAL: f64 = 2.0;

/// Account of a principal at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    counts: PrincipalCounts,
    /// Share in percent since the previous sample.
    share: f64,
    /// Processor time due to the principal since its first sample, in seconds.
    entitled: f64,
}

/// Accounts of all principals at one time.
#[derive(Clone, Debug, Default)]
struct Sample {
    at: Instant,
    accounts: BTreeMap<PrincipalId, Account>,
    /// Time that the hypervisor took from all processors.
    steal: Duration,
}

/// Accounts of the last minute, and the promises that are broken.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Samples, the oldest first, about one a second.
    samples: VecDeque<Sample>,
    broken: BTreeSet<PrincipalId>,
    /// Time of the last event about missed deadlines.
    missed: BTreeMap<PrincipalId, Instant>,
}

impl Promises {
    /// Keeps the accounts of the principals with promises. Call this about once a second.
    pub fn sample(
        &mut self,
        at: Instant,
        counts: &[(PrincipalId, PrincipalCounts)],
        promised: &[(PrincipalId, Promised)],
    ) {
        let steal = processor_times().unwrap_or_default().iter().map(|times| times.steal).sum();
        let before = self.samples.back();
        let counts: BTreeMap<_, _> = counts.iter().map(|(id, counts)| (id, counts)).collect();
        let account = |(id, promised): &(PrincipalId, Promised)| {
            let counts = counts.get(id)?;
            let before = before.and_then(|sample| sample.accounts.get(id));
            Some((*id, Account::after(before, counts, promised)))
        };
        let mut accounts: BTreeMap<_, _> = promised.iter().filter_map(account).collect();
        if let Some(before) = before {
            leave_to_control(&mut accounts, &before.accounts, promised);
        }
        self.samples.push_back(Sample { at, accounts, steal });
        while self.samples.len() > WINDOWS[2] as usize + 1 {
            self.samples.pop_front();
        }
    }

    /// Notes an event for each promise that is broken now or kept again, and for missed deadlines.
    pub fn judge(&mut self, model: &Model, promised: &[(PrincipalId, Promised)], events: &Events) {
        let is_there = |id: &PrincipalId| promised.iter().any(|(payer, _)| payer == id);
        self.broken.retain(is_there);
        self.missed.retain(|id, _| is_there(id));
        for (id, promised) in promised {
            let (id, Some(window)) = (*id, self.window(*id, promised, JUDGED, 0)) else { continue };
            let name = model.principal_ids.name(id);
            self.judge_deadlines(id, name, &window, events);
            // Shorter windows are too coarse to judge.
            if window.seconds < JUDGED as f64 * 0.9 || window.is_kept != self.broken.contains(&id) {
                continue;
            }
            let PromiseWindowView { entitled, delivered, steal, .. } = window;
            let details =
                json!({"principal": name, "entitled": entitled, "delivered": delivered, "steal": steal});
            if window.is_kept {
                self.broken.remove(&id);
                let text = format!("{name} gets its share of the processor again");
                events.note(EventKind::PromiseKept, name, text, details);
                continue;
            }
            self.broken.insert(id);
            let cause = cause(steal, entitled - delivered);
            let text = format!(
                "{name} got {delivered:.1} % of a processor instead of {entitled:.1} % for {JUDGED} s: {cause}"
            );
            events.note(EventKind::PromiseBroken, name, text, details);
        }
    }

    /// Notes an event if slices of a principal missed their deadline in the window: one in [`JUDGED`] seconds at
    /// most.
    fn judge_deadlines(&mut self, id: PrincipalId, name: &str, window: &PromiseWindowView, events: &Events) {
        let Some(now) = self.samples.back().map(|sample| sample.at) else { return };
        let is_recent = |noted: &Instant| now.since(*noted) < Duration::from_millis(JUDGED * 1000 - 300);
        let PromiseWindowView { deadlines_met: met, deadlines_missed: missed, steal, .. } = *window;
        if missed == 0 || self.missed.get(&id).is_some_and(is_recent) {
            return;
        }
        self.missed.insert(id, now);
        // A principal whose promise is kept, and that leaves nothing of it, asks for too much.
        let cause = match window.is_kept && window.idle <= window.delivered * TOLERANCE {
            true => "its packets need more than its share of the processor".to_owned(),
            false => cause(steal, LEAST_STEAL),
        };
        let text = format!(
            "{missed} of {} slices of {name} began after its deadline in {:.0} s: {cause}",
            met + missed,
            window.seconds
        );
        let details = json!({"principal": name, "met": met, "missed": missed, "steal": steal});
        events.note(EventKind::DeadlinesMissed, name, text, details);
    }

    /// Returns promises beside what was delivered. `counts`: current accounts of the principals; `links`: what
    /// the schedulers of ports dropped for them.
    pub fn view(
        &self,
        model: &Model,
        promised: &[(PrincipalId, Promised)],
        counts: &[(PrincipalId, PrincipalCounts)],
        links: &LinkPromises,
    ) -> Vec<PromiseView> {
        let counts: BTreeMap<_, _> = counts.iter().copied().collect();
        let view = |(id, promised): &(PrincipalId, Promised)| {
            let name = model.principal_ids.name(*id);
            let account = counts.get(id).copied().unwrap_or_default();
            let window = |seconds: &u64| self.window(*id, promised, *seconds, links.lost(name, *seconds));
            let windows = WINDOWS.iter().filter_map(window);
            PromiseView {
                principal: name.to_owned(),
                bindings: model.plugins.binding_registry().paid_by(*id),
                promised: promised.share,
                is_reserved: promised.is_reserved,
                limit: promised.limit,
                used_seconds: promised.seconds(account.used.0),
                throttled: account.throttled,
                packets: account.packets,
                waiting: account.waiting.into(),
                waiting_bytes: account.waiting_bytes,
                dropped: account.drops.total(),
                drops: PrincipalDropsView::of(&account.drops, links.dropped(name)),
                deadlines: DeadlinesView {
                    met: account.deadlines.met,
                    missed: account.deadlines.missed,
                    longest_promised: processor_bound(model, name).map(microseconds),
                    longest_wait: microseconds(account.longest_wait),
                },
                windows: windows.collect(),
            }
        };
        promised.iter().map(view).collect()
    }

    /// Returns what a principal got in the last `seconds`, or in the time since the first sample if that is
    /// shorter; `None` before the second sample. `link_queue`: packets that its queues at ports dropped.
    fn window(
        &self,
        id: PrincipalId,
        promised: &Promised,
        seconds: u64,
        link_queue: u64,
    ) -> Option<PromiseWindowView> {
        let last = self.samples.back()?;
        let old_enough =
            |sample: &&Sample| last.at.since(sample.at) >= Duration::from_millis(seconds * 1000 - 300);
        let has = |sample: &&Sample| sample.accounts.contains_key(&id);
        let known = || self.samples.iter().rev().skip(1).take_while(has);
        let first = known().find(old_enough).or_else(|| known().last())?;
        let length = last.at.since(first.at).as_secs_f64();
        let (now, before) = (last.accounts.get(&id)?, first.accounts.get(&id)?);
        let percent = |time: f64| 100.0 * time / length.max(1e-3);
        let PrincipalUse { used, wanted, .. } = now.counts.since(&before.counts);
        let (wanted, delivered) = (percent(wanted).min(100.0), percent(promised.seconds(used)));
        let entitled = percent(now.entitled - before.entitled);
        // A principal waits for one slice of each other principal at most, so short windows err by a slice.
        let slack = entitled * TOLERANCE + percent(SLICES * promised.slice);
        Some(PromiseWindowView {
            seconds: length,
            wanted,
            entitled,
            delivered,
            is_kept: delivered + slack >= entitled,
            idle: (promised.share_within_limit() - entitled.max(delivered)).max(0.0),
            deadlines_met: growth(now.counts.deadlines.met, before.counts.deadlines.met),
            deadlines_missed: growth(now.counts.deadlines.missed, before.counts.deadlines.missed),
            drops: PrincipalDropsView::of(&lost(&now.counts.drops, &before.counts.drops), link_queue),
            steal: percent(last.steal.saturating_sub(first.steal).as_secs_f64()),
        })
    }
}

/// Deducts the time that control used since the earlier accounts from what is due to core: control has a part of the
/// share of core.
fn leave_to_control(
    accounts: &mut BTreeMap<PrincipalId, Account>,
    earlier: &BTreeMap<PrincipalId, Account>,
    promised: &[(PrincipalId, Promised)],
) {
    let of = |accounts: &BTreeMap<_, Account>, id| accounts.get(&id).copied();
    let control = of(accounts, PrincipalId::CONTROL).zip(of(earlier, PrincipalId::CONTROL));
    let promised = promised.iter().find(|(id, _)| *id == PrincipalId::CORE);
    let (Some((now, before)), Some((_, promised))) = (control, promised) else { return };
    let used = promised.seconds(now.counts.since(&before.counts).used);
    let due_before = of(earlier, PrincipalId::CORE).map_or(0.0, |core| core.entitled);
    if let Some(core) = accounts.get_mut(&PrincipalId::CORE) {
        core.entitled = (core.entitled - used).max(due_before.min(core.entitled));
    }
}

/// Returns the likely cause of processor time that a principal lacks. `steal`: time that the hypervisor took.
/// Both are percent of a processor.
fn cause(steal: f64, lacking: f64) -> String {
    match steal > lacking / 2.0 {
        true => format!("the hypervisor took {steal:.1} % of a processor"),
        false => "other processes, or long calls of trusted plugins, held the processor".to_owned(),
    }
}

/// Returns the packets lost since earlier counters.
fn lost(now: &PrincipalDrops, before: &PrincipalDrops) -> PrincipalDrops {
    PrincipalDrops {
        queue: growth(now.queue, before.queue),
        memory: growth(now.memory, before.memory),
        core_ceiling: growth(now.core_ceiling, before.core_ceiling),
        handover: growth(now.handover, before.handover),
    }
}

impl Account {
    /// Returns the account of a principal with these counters after an earlier account.
    ///
    /// If the share has changed meanwhile, the smaller one counts.
    fn after(before: Option<&Self>, counts: &PrincipalCounts, promised: &Promised) -> Self {
        let share = promised.share_within_limit();
        let Some(before) = before else { return Self { counts: *counts, share, entitled: 0.0 } };
        let PrincipalUse { wanted, wanted_sum, periods, .. } = counts.since(&before.counts);
        // A worker can give no more than its capacity to flows that are all there.
        let workers = wanted_sum / wanted.max(1e-9);
        let share = share.min(before.share).min(workers * promised.most);
        // Each time that work begins, it waits for the slices of others first.
        let waits = SLICES * promised.slice * periods as f64 / workers;
        let due = share / 100.0 * (wanted - waits).max(0.0);
        Self { counts: *counts, share: promised.share_within_limit(), entitled: before.entitled + due }
    }
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;
    use millrace_pipeline::DeadlineCounts;
    use millrace_telemetry::{Event, EventQuery};
    use millrace_units::Cycles;

    use super::*;

    const PAYER: PrincipalId = PrincipalId(1);

    fn promised() -> Promised {
        let (frequency, slice, most) = (1_000_000_000, 50e-6, 50.0);
        Promised { share: 20.0, is_reserved: true, limit: None, most, frequency, slice }
    }

    /// Returns samples of a principal that wants the processor for `wanted` and gets `used` of each second.
    fn sampled(seconds: u64, wanted: f64, used: f64) -> Promises {
        let mut promises = Promises::default();
        for second in 0..=seconds {
            let time = second as f64;
            let account = PrincipalCounts {
                used: Cycles((used * time * 1e9) as u64),
                backlogged: Duration::from_secs_f64(wanted * time),
                backlogged_sum: Duration::from_secs_f64(wanted * time),
                ..PrincipalCounts::default()
            };
            promises.sample(
                Instant::ZERO + Duration::from_secs(second),
                &[(PAYER, account)],
                &[(PAYER, promised())],
            );
        }
        promises
    }

    #[test]
    fn promise_is_kept_if_the_principal_gets_its_share_while_it_wants_it() {
        for (wanted, used, is_kept) in [
            (1.0, 0.2, true),
            (1.0, 0.9, true),
            (1.0, 0.19, false),
            (0.5, 0.1, true),
            (0.5, 0.09, false),
            (0.0, 0.0, true),
        ] {
            let promises = sampled(30, wanted, used);
            let window = promises.window(PAYER, &promised(), 10, 0).unwrap();
            assert!((window.seconds - 10.0).abs() < 1e-9);
            assert!(
                (window.wanted - 100.0 * wanted).abs() < 1e-6
                    && (window.delivered - 100.0 * used).abs() < 1e-6
            );
            assert_eq!(window.is_kept, is_kept, "{wanted} {used}");
        }
    }

    #[test]
    fn time_of_control_is_not_due_to_core() {
        let core = Promised { share: 50.0, ..promised() };
        let all = [(PrincipalId::CORE, core), (PrincipalId::CONTROL, Promised { share: 5.0, ..promised() })];
        let delivered = |control: f64| {
            let mut promises = Promises::default();
            for second in 0..=20_u64 {
                let time = second as f64;
                let counts = [
                    (PrincipalId::CORE, busy(time, 0.4 * time)),
                    (PrincipalId::CONTROL, busy(0.0, control * time)),
                ];
                promises.sample(Instant::ZERO + Duration::from_secs(second), &counts, &all);
            }
            promises.window(PrincipalId::CORE, &core, 10, 0).unwrap()
        };
        let (with, without) = (delivered(0.1), delivered(0.0));
        assert!(with.is_kept && (with.entitled - 40.0).abs() < 0.1, "{with:?}");
        assert!(!without.is_kept && (without.entitled - 50.0).abs() < 0.1, "{without:?}");
        assert!(delivered(0.7).entitled.abs() < 1e-6);
    }

    #[test]
    fn windows_without_history_cover_what_is_known() {
        let promises = sampled(3, 1.0, 0.2);
        let lengths = WINDOWS.map(|seconds| promises.window(PAYER, &promised(), seconds, 0).unwrap().seconds);
        assert_eq!(lengths, [1.0, 3.0, 3.0]);
        assert!(sampled(0, 1.0, 0.2).window(PAYER, &promised(), 1, 0).is_none());
        assert_eq!(sampled(200, 1.0, 0.2).samples.len(), 61);
    }

    /// Returns the events of a principal with the accounts that `account` returns for each second. The hypervisor
    /// takes `steal` of each second.
    fn judged(seconds: u64, steal: f64, account: impl Fn(f64) -> PrincipalCounts) -> Vec<Event> {
        let (mut promises, mut noted) = (Promises::default(), Vec::new());
        let text = "principal = [{ name = \"video\" }]";
        let model = Model::planned(&Config::parse(text, "f").unwrap()).unwrap();
        let id = model.principal_ids.id("video").unwrap();
        for second in 0..=seconds {
            let at = Instant::ZERO + Duration::from_secs(second);
            promises.sample(at, &[(id, account(second as f64))], &[(id, promised())]);
            promises.samples.back_mut().unwrap().steal = Duration::from_secs_f64(steal * second as f64);
            // A log of its own for each second, because a log combines repeated events.
            let events = Events::default();
            promises.judge(&model, &[(id, promised())], &events);
            noted.extend(events.page(&EventQuery::default()).events);
        }
        noted
    }

    /// Returns the account of a principal that always has work, and has used `used` seconds after `time`.
    fn busy(time: f64, used: f64) -> PrincipalCounts {
        let backlogged = Duration::from_secs_f64(time);
        let used = Cycles((used * 1e9) as u64);
        PrincipalCounts { used, backlogged, backlogged_sum: backlogged, ..PrincipalCounts::default() }
    }

    #[test]
    fn broken_promise_is_one_event_with_its_cause_until_it_is_kept_again() {
        let late = |time: f64| busy(time, 0.1 * time.min(20.0) + 0.2 * (time - 20.0).max(0.0));
        for (steal, cause) in [
            (0.0, "other processes, or long calls of trusted plugins, held the processor"),
            (0.04, "other processes, or long calls of trusted plugins, held the processor"),
            (0.3, "the hypervisor took 30.0 % of a processor"),
        ] {
            let events = judged(40, steal, late);
            let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
            assert_eq!(kinds, [EventKind::PromiseBroken, EventKind::PromiseKept]);
            let text = format!("video got 10.0 % of a processor instead of 20.0 % for 10 s: {cause}");
            assert_eq!((&*events[0].subject, &events[0].text), ("video", &text));
        }
        // Shorter than the window.
        assert_eq!(judged(8, 0.0, late), []);
        assert_eq!(judged(40, 0.3, |time| busy(time, 0.2 * time)), []);
        // Without work.
        assert_eq!(judged(40, 0.3, |_| PrincipalCounts::default()), []);
    }

    #[test]
    fn missed_deadlines_are_one_event_in_ten_seconds_with_count_and_cause() {
        let missing = |used: f64| {
            move |time: f64| PrincipalCounts {
                deadlines: DeadlineCounts { met: 90 * time as u64, missed: 10 * time as u64 },
                ..busy(time, used * time)
            }
        };
        for (used, steal, cause) in [
            (0.2, 0.0, "its packets need more than its share of the processor"),
            (0.1, 0.0, "other processes, or long calls"),
            (0.1, 0.3, "the hypervisor took 30.0 %"),
        ] {
            let events = judged(25, steal, missing(used));
            let mut missed = events.iter().filter(|event| event.kind == EventKind::DeadlinesMissed);
            // At 1 s, and each 10 s.
            let counts: Vec<_> = missed.clone().map(|event| event.details["missed"].clone()).collect();
            assert_eq!(counts, [json!(10), json!(100), json!(100)]);
            assert!(missed.all(|event| event.text.contains(cause)), "{events:?}");
        }
        let met = |time: f64| PrincipalCounts {
            deadlines: DeadlineCounts { met: time as u64, missed: 0 },
            ..busy(time, 0.2 * time)
        };
        assert_eq!(judged(25, 0.3, met), []);
    }

    #[test]
    fn windows_have_deadlines_losses_by_cause_and_the_idle_share() {
        let mut promises = sampled(30, 0.5, 0.1);
        for (second, sample) in promises.samples.iter_mut().enumerate() {
            let second = second as u64;
            let counts = &mut sample.accounts.get_mut(&PAYER).unwrap().counts;
            let (memory, core_ceiling, handover) = (2 * second, 3 * second, 4 * second);
            counts.drops = PrincipalDrops { queue: second, memory, core_ceiling, handover };
            counts.deadlines = DeadlineCounts { met: 5 * second, missed: second };
        }
        for seconds in [1, 10] {
            let window = promises.window(PAYER, &promised(), seconds, 7).unwrap();
            assert_eq!((window.deadlines_met, window.deadlines_missed), (5 * seconds, seconds));
            let PrincipalDropsView { cpu_queue, memory, core_ceiling, handover, link_queue } = window.drops;
            let lost = [cpu_queue, memory, core_ceiling, handover, link_queue];
            assert_eq!(lost, [seconds, 2 * seconds, 3 * seconds, 4 * seconds, 7]);
            assert!((window.idle - 10.0).abs() < 0.1, "{window:?}");
        }
    }
}
