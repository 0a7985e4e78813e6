//! Split of a deadline over resources: bisection of one number, from which all times follow.
//!
//! Each packet of a burst takes its granted time at each resource. The burst is paid for once: the last of `k`
//! packets leaves after the sum of the times, and `k - 1` times the longest of them (Le Boudec and Thiran,
//! *Network Calculus*, 2001, section 2.1.4: concatenation of guaranteed-rate nodes).

use super::resource::Unit;

/// Steps of the bisection. More than 64 would not change a number of 64 bits.
const STEPS: u32 = 64;

/// Demand on a resource, with the times that its free share allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub unit: Unit,
    pub work: u64,
    pub free: u64,
    pub capacity: u64,
    pub weight: u32,
    /// Least share for the packet rate.
    pub needed: u64,
    /// Shortest time of a packet that the resource allows, in nanoseconds.
    pub shortest: u64,
    /// Time with the whole free share, at least `shortest`, in nanoseconds.
    pub fastest: u64,
    /// Time with the least share, at least `fastest`, in nanoseconds.
    pub slowest: u64,
}

impl Part {
    /// Returns the time with a share that may be no whole number.
    fn time_of(&self, share: f64) -> u64 {
        // The conversion saturates: a share below 1, or no number, has no finite time.
        match share as u64 {
            0 => u64::MAX,
            share => self.unit.time_of(self.work, share),
        }
    }

    /// Returns the capacity in the weight of the resource.
    fn weighed(&self) -> f64 {
        self.capacity.max(1) as f64 * f64::from(self.weight.max(1))
    }

    fn clamp(&self, time: u64) -> u64 {
        time.max(self.fastest).min(self.slowest)
    }
}

/// Times of a packet at several resources, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Times {
    pub sum: u128,
    pub longest: u64,
}

impl Times {
    pub fn add(&mut self, time: u64) {
        self.sum += u128::from(time);
        self.longest = self.longest.max(time);
    }

    /// Returns the delay of the last packet of a burst.
    pub fn delay(&self, burst: u32) -> u128 {
        self.sum + u128::from(burst.saturating_sub(1)) * u128::from(self.longest)
    }
}

/// Rule by which one number determines all times.
pub(super) enum Rule<'m> {
    /// The same time at each resource.
    Even,
    /// A free share `R` of each resource, of which `beta * Y` stays free: time `W / (R - beta * Y)`.
    Balance,
    /// Times in proportion to a number for each resource.
    Proportional(&'m [f64]),
}

/// Time for all packets of a burst at all resources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Nanoseconds in all.
    pub available: u64,
    /// Number of packets in a burst, at least 1.
    pub burst: u32,
    /// Times at resources that are granted already.
    pub fixed: Times,
}

impl Budget {
    /// Returns the delay of the last packet of a burst.
    pub fn delay(&self, times: impl IntoIterator<Item = u64>) -> u128 {
        let mut all = self.fixed;
        times.into_iter().for_each(|time| all.add(time));
        all.delay(self.burst)
    }

    fn holds(&self, times: &[u64]) -> bool {
        self.delay(times.iter().copied()) <= u128::from(self.available)
    }

    /// Returns the nanoseconds by which each packet of a burst may take longer at one resource.
    fn rest(&self, times: &[u64]) -> u64 {
        let rest = u128::from(self.available).saturating_sub(self.delay(times.iter().copied()));
        u64::try_from(rest / u128::from(self.burst.max(1))).unwrap_or(u64::MAX)
    }

    /// Returns the time at each of `count` further resources, if it is the same at each.
    pub fn even(&self, count: usize) -> u64 {
        let left = u128::from(self.available).saturating_sub(self.fixed.delay(self.burst));
        u64::try_from(left / self.even_times(count).max(1)).unwrap_or(u64::MAX)
    }

    /// Returns the longest time of a packet at a further resource, beside these times at others.
    pub fn left_for(&self, times: impl IntoIterator<Item = u64>) -> u64 {
        let mut others = self.fixed;
        times.into_iter().for_each(|time| others.add(time));
        let left = u128::from(self.available).saturating_sub(others.sum);
        let time = match left / u128::from(self.burst.max(1)) {
            time if time >= others.longest.into() => time,
            // The burst is paid for at another resource.
            _ => u128::from(self.available).saturating_sub(others.delay(self.burst)),
        };
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Returns the delay with the same `time` at each of `count` further resources.
    pub fn even_delay(&self, count: usize, time: u64) -> u128 {
        self.fixed.delay(self.burst).saturating_add(self.even_times(count).saturating_mul(time.into()))
    }

    fn even_times(&self, count: usize) -> u128 {
        (count as u128 + u128::from(self.burst)).saturating_sub(1)
    }
}

/// Splits a budget of time. Returns the share of each resource, and the time of a packet there in nanoseconds;
/// `None` if no split by the rule fits.
pub(super) fn split(parts: &[Part], budget: &Budget, rule: &Rule<'_>) -> Option<Vec<(u64, u64)>> {
    let mut times = relaxed(parts, budget, rule);
    if !budget.holds(&times) {
        return None;
    }
    let mut shares = Vec::with_capacity(parts.len());
    // Shares are whole numbers. So each resource rounds its share up, and leaves the rest of the time to the
    // next one.
    for (index, part) in parts.iter().enumerate() {
        let rest = if matches!(rule, Rule::Even) { 0 } else { budget.rest(&times) };
        let time = times.get_mut(index)?;
        *time = part.clamp(time.saturating_add(rest));
        let share = part.unit.share_for(part.work, *time)?.max(part.needed);
        *time = part.unit.time_of(part.work, share).max(part.shortest);
        shares.push(share);
    }
    Some(shares.into_iter().zip(times).collect())
}

/// Returns the longest times by the rule that the budget holds; the shortest possible times if it holds none.
fn relaxed(parts: &[Part], budget: &Budget, rule: &Rule<'_>) -> Vec<u64> {
    match rule {
        Rule::Even => {
            let even = budget.even(parts.len());
            parts.iter().map(|part| part.clamp(even)).collect()
        }
        Rule::Balance => {
            let most = parts.iter().map(|part| part.free as f64 / part.weighed()).fold(0.0, f64::max);
            widest(parts, budget, most, |_, part, y| part.time_of(part.free as f64 - part.weighed() * y))
        }
        Rule::Proportional(prices) => {
            let price = |index: usize| prices.get(index).copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
            let least = (0..parts.len()).map(price).fold(f64::MAX, f64::min);
            let most = (budget.available as f64 / least).min(f64::MAX);
            widest(parts, budget, most, |index, _, y| (price(index) * y) as u64)
        }
    }
}

/// Bisects `y` from 0 to `most`. `time` never falls as `y` grows.
fn widest(parts: &[Part], budget: &Budget, most: f64, time: impl Fn(usize, &Part, f64) -> u64) -> Vec<u64> {
    let at = |y: f64| -> Vec<u64> {
        parts.iter().enumerate().map(|(index, part)| part.clamp(time(index, part, y))).collect()
    };
    let widest = at(most);
    if budget.holds(&widest) {
        return widest;
    }
    let (mut low, mut high) = (0.0, most);
    for _ in 0..STEPS {
        let middle = low + (high - low) / 2.0;
        if budget.holds(&at(middle)) { low = middle } else { high = middle }
    }
    at(low)
}
