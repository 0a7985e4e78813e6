use super::curve::Running;
use super::*;
use crate::Rate;
use proptest::prelude::*;

fn curves() -> impl Strategy<Value = Curve> {
    (0_u64..2_000_000, 0_u64..30_000_000, 1_u64..2_000_000).prop_map(|(first, duration, then)| Curve {
        first: Rate(first),
        duration,
        then: Rate(then),
    })
}

/// Returns the time at which the service curve that begins at a point reaches `wanted` bytes, by whole nanobits.
fn reaches(curve: &Curve, (x, y): (u64, u64), wanted: u64) -> u64 {
    let nanobits = u128::from(wanted.saturating_sub(y)) * 8_000_000_000;
    let [first, duration, then] = [curve.first.0, curve.duration, curve.then.0].map(u128::from);
    let time = match first * duration {
        _ if nanobits == 0 => 0,
        piece if nanobits <= piece => nanobits.div_ceil(first),
        piece => duration + (nanobits - piece).div_ceil(then),
    };
    x + time as u64
}

proptest! {
    /// Compares a running curve with all service curves that began. A concave running curve is their minimum,
    /// to within a byte per cut. A convex running curve is never below their minimum, which only makes
    /// deadlines earlier.
    #[test]
    fn a_running_curve_is_the_minimum_of_all_that_began(
        curve in curves(), cuts in prop::collection::vec((0_u64..50_000_000, 0_u64..3000), 1..8),
    ) {
        let (mut x, mut y) = (1000, 0);
        let mut running = Running::new(&curve, x, y);
        let mut all = vec![(x, y)];
        for (pause, sent) in cuts {
            (x, y) = (x + pause, y + sent);
            running.cut(&curve, x, y);
            all.push((x, y));
            for step in 0..20_u64 {
                let wanted = y + 1 + step * 400;
                // The inverse of a minimum is the maximum of the inverses.
                let exact = all.iter().map(|begin| reaches(&curve, *begin, wanted)).max().unwrap();
                let time = running.time_of(&curve, wanted);
                // The end of a first piece is rounded to a byte, too.
                let slack = all.len() as u64 + 1;
                let byte = |bytes: u64| curve.then.time_for(bytes).max(curve.first.time_for(bytes).min(1 << 40));
                if curve.is_convex() {
                    prop_assert!(time <= exact + byte(slack));
                } else {
                    prop_assert!(time.abs_diff(exact) <= byte(2 * slack), "{time} {exact} at {wanted}");
                }
            }
        }
    }
}

/// Reference scheduler of the paper, which checks every class each time instead of using heaps.
#[derive(Default)]
struct Naive {
    parents: Vec<usize>,
    curves: Vec<Curves>,
    queues: Vec<Vec<u32>>,
    // Real time.
    deadlines: Vec<Running>,
    cumulative: Vec<u64>,
    // Link sharing.
    virtuals: Vec<Running>,
    limits: Vec<Running>,
    times: Vec<u64>,
    adjustments: Vec<u64>,
    totals: Vec<u64>,
    active: Vec<bool>,
    periods: Vec<u32>,
    parent_periods: Vec<u32>,
    least: Vec<u64>,
    offsets: Vec<u64>,
}

impl Naive {
    fn add(&mut self, parent: usize, curves: Curves) {
        self.parents.push(parent);
        self.curves.push(curves);
        self.queues.push(Vec::new());
        let running =
            |curve: Option<Curve>| curve.map_or(Running::default(), |curve| Running::new(&curve, 0, 0));
        self.deadlines.push(running(curves.real_time));
        self.virtuals.push(running(curves.link_sharing));
        self.limits.push(running(curves.upper_limit));
        for list in [
            &mut self.cumulative,
            &mut self.times,
            &mut self.adjustments,
            &mut self.totals,
            &mut self.least,
            &mut self.offsets,
        ] {
            list.push(0);
        }
        self.active.push(false);
        self.periods.push(0);
        self.parent_periods.push(0);
    }

    fn children(&self, class: usize) -> impl Iterator<Item = usize> + '_ {
        (1..self.parents.len()).filter(move |child| self.parents[*child] == class)
    }

    fn busy(&self, class: usize) -> impl Iterator<Item = usize> + '_ {
        self.children(class).filter(|child| self.active[*child])
    }

    fn backlogged(&mut self, leaf: usize, now: u64) {
        if let Some(curve) = self.curves[leaf].real_time {
            self.deadlines[leaf].cut(&curve, now, self.cumulative[leaf]);
        }
        let mut class = leaf;
        while class != 0 && self.curves[class].link_sharing.is_some() && !self.active[class] {
            let parent = self.parents[class];
            let fresh = self.busy(parent).next().is_none();
            self.times[class] = if fresh {
                self.least[parent] = self.offsets[parent];
                self.offsets[parent]
            } else {
                let fit = self.busy(parent).filter(|sibling| self.fit(*sibling) <= now);
                let least = fit.map(|sibling| self.times[sibling]).min().unwrap_or(0).max(self.least[parent]);
                let same = self.parent_periods[class] == self.periods[parent];
                if same { least.max(self.times[class]) } else { least }
            };
            self.parent_periods[class] = self.periods[parent] + u32::from(fresh);
            self.periods[class] += 1;
            self.adjustments[class] = 0;
            let curve = self.curves[class].link_sharing.unwrap();
            self.virtuals[class].cut(&curve, self.times[class], self.totals[class]);
            if let Some(curve) = self.curves[class].upper_limit {
                self.limits[class].cut(&curve, now, self.totals[class]);
            }
            self.active[class] = true;
            if parent == 0 && fresh {
                self.periods[0] += 1;
            }
            class = parent;
        }
    }

    fn eligible_and_deadline(&self, leaf: usize) -> Option<(u64, u64)> {
        let curve = self.curves[leaf].real_time?;
        let length = *self.queues[leaf].first()?;
        let sent = self.cumulative[leaf];
        let eligible = self.deadlines[leaf].eligible(&curve).time_of(&curve, sent);
        Some((eligible, self.deadlines[leaf].time_of(&curve, sent + u64::from(length))))
    }

    fn fit(&self, class: usize) -> u64 {
        let own = self.curves[class]
            .upper_limit
            .map_or(0, |curve| self.limits[class].time_of(&curve, self.totals[class]));
        own.max(self.busy(class).map(|child| self.fit(child)).min().unwrap_or(0))
    }

    /// Asserts that the paper's rules allow this choice, and applies the changes that it causes. Returns
    /// whether the real-time criterion made the choice; `None` if no leaf was chosen.
    fn accept(&mut self, choice: Option<usize>, now: u64) -> Option<bool> {
        let all: Vec<(usize, u64, u64)> = (1..self.parents.len())
            .filter_map(|leaf| self.eligible_and_deadline(leaf).map(|(e, d)| (leaf, e, d)))
            .collect();
        if let Some(earliest) = all.iter().filter(|(_, e, _)| *e <= now).map(|(_, _, d)| *d).min() {
            let chosen = all.iter().find(|(leaf, e, _)| Some(*leaf) == choice && *e <= now);
            assert_eq!(chosen.map(|(_, _, d)| *d), Some(earliest), "not the earliest deadline");
            return Some(true);
        }
        let Some(leaf) = choice else {
            assert!(
                self.busy(0).all(|child| self.fit(child) > now),
                "a class within its limits was passed over"
            );
            return None;
        };
        let mut class = leaf;
        while class != 0 {
            let parent = self.parents[class];
            let fit: Vec<usize> = self.busy(parent).filter(|child| self.fit(*child) <= now).collect();
            let least = fit.iter().map(|child| self.times[*child]).min();
            assert!(fit.contains(&class) && Some(self.times[class]) == least, "not the least virtual time");
            self.least[parent] = self.least[parent].max(self.times[class]);
            class = parent;
        }
        Some(false)
    }

    fn serve(&mut self, leaf: usize, real_time: bool, now: u64) {
        let length = u64::from(self.queues[leaf].remove(0));
        if real_time {
            self.cumulative[leaf] += length;
        }
        let mut ended = self.queues[leaf].is_empty();
        let mut class = leaf;
        while class != 0 {
            let parent = self.parents[class];
            self.totals[class] += length;
            if !self.active[class] {
                self.virtuals[class].pass_over(length);
            } else {
                let curve = self.curves[class].link_sharing.unwrap();
                let time = self.virtuals[class].time_of(&curve, self.totals[class]) + self.adjustments[class];
                self.adjustments[class] += self.least[parent].saturating_sub(time);
                self.times[class] = time.max(self.least[parent]);
                if let Some(curve) = self.curves[class].upper_limit {
                    let (limit, total) = (&mut self.limits[class], self.totals[class]);
                    let earliest = now.saturating_sub(curve.then.time_for(3076).max(1_000_000));
                    if limit.time_of(&curve, total) < earliest {
                        limit.move_to(earliest, total);
                    }
                }
                ended &= self.queues[class].is_empty() && self.busy(class).next().is_none();
                if ended {
                    self.active[class] = false;
                    self.offsets[parent] = self.offsets[parent].max(self.times[class]);
                }
            }
            class = parent;
        }
    }
}

fn class_curves(kind: u8, curve: Curve, inner: bool) -> Curves {
    let real_time = (!inner && kind & 1 != 0).then_some(curve);
    let link_sharing = (inner || kind & 3 != 1).then_some(Curve::linear(curve.then));
    let upper_limit =
        (link_sharing.is_some() && kind & 12 == 12).then(|| Curve::linear(Rate(curve.then.0 * 2)));
    Curves { real_time, link_sharing, upper_limit }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn heaps_choose_like_a_scan_of_all_classes(
        inners in prop::collection::vec((0_usize..3, any::<u8>(), curves()), 0..4),
        leaves in prop::collection::vec((0_usize..5, any::<u8>(), curves()), 1..9),
        steps in prop::collection::vec((0_u64..2_000_000, 0_usize..9, 40_u32..1500, prop::bool::weighted(0.5)), 1..300),
    ) {
        let (mut fast, mut naive) = (Hfsc::new(0), Naive::default());
        naive.add(0, Curves::default());
        for (parent, kind, curve) in &inners {
            let (parent, curves) = (parent % naive.parents.len(), class_curves(*kind, *curve, true));
            fast.insert(parent as u32, Child { node: 0, queue: NONE }, &curves, true);
            naive.add(parent, curves);
        }
        let first = naive.parents.len();
        for (parent, kind, curve) in &leaves {
            let (parent, curves) = (parent % first, class_curves(*kind, *curve, false));
            let index = naive.parents.len();
            prop_assert_eq!(fast.insert(parent as u32, Child { node: index as u32, queue: NONE }, &curves, false) as usize, index);
            naive.add(parent, curves);
        }
        let mut now = 0;
        for (pause, leaf, length, arrives) in steps {
            now += pause;
            let moment = Instant::from_nanos(now);
            if arrives {
                let leaf = first + leaf % leaves.len();
                naive.queues[leaf].push(length);
                if naive.queues[leaf].len() == 1 {
                    naive.backlogged(leaf, now);
                    fast.activate(leaf as u32, length, moment);
                }
                continue;
            }
            let choice = fast.choose(moment);
            prop_assert_eq!(choice.is_some(), fast.next_ready() <= moment);
            let real_time = naive.accept(choice.map(|leaf| leaf as usize), now);
            if let (Some(leaf), Some(real_time)) = (choice, real_time) {
                let length = naive.queues[leaf as usize][0];
                naive.serve(leaf as usize, real_time, now);
                fast.served(leaf, length, naive.queues[leaf as usize].first().copied(), moment);
            }
        }
    }
}

/// Gives all of 100 Gb/s to a class with a share of a kilobit per second. Its virtual time advances 10^8
/// times as fast as real time. Without lowering, it would overflow a `u64` after three minutes.
#[test]
fn virtual_times_do_not_overflow() {
    let mut hierarchy = Hfsc::new(0);
    for node in 1..4 {
        hierarchy.insert(0, Child { node, queue: NONE }, &Curves::sharing(Rate(1000)), false);
        hierarchy.activate(node, 1 << 30, Instant::ZERO);
    }
    let mut sent = [0_u64; 4];
    for _ in 0..30_000 {
        let leaf = hierarchy.choose(Instant::ZERO).unwrap();
        sent[leaf as usize] += 1;
        hierarchy.served(leaf, 1 << 30, Some(1 << 30), Instant::ZERO);
        assert!(hierarchy.classes[leaf].share.virtual_time < u64::MAX / 2);
    }
    assert_eq!(sent, [0, 10_000, 10_000, 10_000]);
}

/// Runs a hierarchy that is idle after each packet, so each packet begins a new period. Covers an hour at a
/// million packets per second.
#[test]
fn periods_of_the_root_begin_again_at_zero() {
    let mut hierarchy = Hfsc::new(0);
    for node in [1, 2] {
        hierarchy.insert(0, Child { node, queue: NONE }, &Curves::sharing(Rate(1_000_000)), false);
    }
    hierarchy.classes[ROOT].share.period = u32::MAX - 1;
    for round in 0..4 {
        for node in [1, 2] {
            hierarchy.activate(node, 100, Instant::from_nanos(round));
        }
        for _ in 0..2 {
            let leaf = hierarchy.choose(Instant::from_nanos(round)).unwrap();
            hierarchy.served(leaf, 100, None, Instant::from_nanos(round));
        }
        assert_eq!(hierarchy.choose(Instant::from_nanos(round)), None);
    }
    assert_eq!(hierarchy.classes[ROOT].share.period, 2);
}

proptest! {
    /// Computes the minimum of curves with any rates and times, because settings have no upper limit.
    #[test]
    fn curves_of_any_size_are_cut_without_overflow(
        (first, then, duration) in (any::<u64>(), 1_u64.., prop_oneof![any::<u64>(), Just(u64::MAX)]),
        begin in (any::<u64>(), any::<u64>()),
        cuts in prop::collection::vec((any::<u64>(), any::<u64>()), 1..8),
    ) {
        let curve = Curve { first: Rate(first), duration, then: Rate(then) };
        let mut running = Running::new(&curve, begin.0, begin.1);
        for (x, y) in cuts {
            running.cut(&curve, x, y);
            let at = running.time_of(&curve, y);
            prop_assert!(running.time_of(&curve, y.saturating_add(1)) >= at);
            running.move_to(x, y);
        }
    }
}

/// Cuts a curve of low rate whose first piece lasts longer than the clock.
#[test]
fn first_piece_of_an_endless_curve_continues_where_cut() {
    let curve = Curve { first: Rate(16_000), duration: u64::MAX, then: Rate(8_000) };
    let second = 1_000_000_000;
    let mut running = Running::new(&curve, second, 0);
    running.cut(&curve, 11 * second, 1_000);
    // From the cut on, the curve continues at 16 kb/s.
    assert_eq!(running.time_of(&curve, 1_000), 11 * second);
    assert_eq!(running.time_of(&curve, 3_000), 12 * second);
}
