//! Principals that come, pause and go beside the fluid scheduler in which all principals with work rise together: their
//! *level* is the service per weight. A principal that comes starts at the common level, or above it if it has a debt;
//! then it waits for the others (Goyal and others, 1996, theorem 1, without slices).

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Levels are in units of 2^-40 cycles per weight.
const FRACTION: u32 = 40;
/// Largest weight.
const HEAVIEST: f64 = 1e6;

/// Principal and its service.
#[derive(Clone, Copy, Debug)]
struct Customer {
    weight: u32,
    slice: u64,
    /// Slices until it pauses.
    slices: u64,
    level: u128,
    /// Cycles of the processor when its work came, and cycles that it has used of them since.
    came: u64,
    used: u64,
}

/// CPU scheduler beside the fluid scheduler, with a random history.
struct Race {
    scheduler: CpuScheduler,
    customers: Vec<Customer>,
    /// Levels of the principals with work.
    working: BTreeSet<(u128, u32)>,
    /// Common level.
    common: u128,
    /// Principals that come back, by the number of the slice at which they do.
    returns: BTreeMap<u64, Vec<u32>>,
    step: u64,
    random: u64,
    /// Sum of all weights, and cycles of the processor so far.
    weights: u64,
    elapsed: u64,
    /// Greatest lead over the common level before a slice, in cycles.
    lead: f64,
    /// Greatest lag behind the guaranteed share, that beside all other principals, while there is work.
    lag: f64,
}

impl Race {
    /// `slice`: length of each slice; `None` for random ones.
    fn new(kind: CpuSchedulerKind, count: u32, slice: Option<u64>) -> Self {
        let mut race = Self {
            scheduler: scheduler(kind, 1_000_000),
            customers: Vec::new(),
            working: BTreeSet::new(),
            common: 0,
            returns: BTreeMap::new(),
            step: 0,
            random: 0x9E37_79B9_7F4A_7C15,
            weights: 0,
            elapsed: 0,
            lead: 0.0,
            lag: 0.0,
        };
        for number in 0..count {
            let share = HEAVIEST.powf((race.draw() % 1_000_001) as f64 / 1e6) as u32;
            let slice = slice.unwrap_or_else(|| 1000 + race.draw() % (QUANTUM - 1000));
            race.customers.push(Customer {
                weight: share.max(1),
                slice,
                slices: 0,
                level: 0,
                came: 0,
                used: 0,
            });
            race.weights += u64::from(share.max(1));
            race.scheduler.add(PrincipalId(number), weight(share.max(1))).unwrap();
            race.arrive(number);
        }
        race
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Gives a principal work for some slices.
    fn arrive(&mut self, number: u32) {
        let slices = 1 + self.draw() % 20;
        let (common, came) = (self.common, self.elapsed);
        let customer = &mut self.customers[number as usize];
        *customer = Customer { slices, level: customer.level.max(common), came, used: 0, ..*customer };
        self.working.insert((customer.level, number));
        self.scheduler.wake(PrincipalId(number), Instant::ZERO);
    }

    /// Service of a principal beyond the common level, in cycles.
    fn lead_of(&self, customer: Customer) -> f64 {
        let levels = customer.level.saturating_sub(self.common) as f64 / 2_f64.powi(FRACTION as i32);
        levels * f64::from(customer.weight)
    }

    /// Guaranteed service of a principal that it hasn't got since its work came, in cycles.
    fn lag_of(&self, customer: Customer) -> f64 {
        let elapsed = (self.elapsed - customer.came) as f64;
        elapsed * f64::from(customer.weight) / self.weights as f64 - customer.used as f64
    }

    /// Serves a slice. A principal without work pauses, or leaves and comes anew.
    fn serve(&mut self) {
        self.step += 1;
        for number in self.returns.remove(&self.step).unwrap_or_default() {
            self.arrive(number);
        }
        let Some(PrincipalId(number)) = self.scheduler.next(Instant::ZERO) else {
            assert!(self.working.is_empty(), "the processor idles beside work");
            return;
        };
        self.common = self.working.first().map_or(self.common, |(level, _)| *level).max(self.common);
        let mut customer = self.customers[number as usize];
        self.lead = self.lead.max(self.lead_of(customer));
        self.lag = self.lag.max(self.lag_of(customer));
        self.elapsed += customer.slice;
        customer.used += customer.slice;
        self.scheduler.charge(PrincipalId(number), Cycles(customer.slice), Instant::ZERO);
        self.working.remove(&(customer.level, number));
        customer.level += (u128::from(customer.slice) << FRACTION) / u128::from(customer.weight);
        customer.slices -= 1;
        if customer.slices > 0 {
            self.working.insert((customer.level, number));
        }
        self.customers[number as usize] = customer;
        if customer.slices == 0 {
            self.pause(number);
        }
    }

    fn pause(&mut self, number: u32) {
        self.scheduler.sleep(PrincipalId(number), Instant::ZERO);
        if self.working.is_empty() {
            // The end of a busy period: nobody waits for debts.
            self.common = self.common.max(self.customers[number as usize].level);
        }
        if self.draw().is_multiple_of(4) {
            self.scheduler.remove(PrincipalId(number)).unwrap();
            self.scheduler.add(PrincipalId(number), weight(self.customers[number as usize].weight)).unwrap();
            self.customers[number as usize].level = 0;
        }
        let back = self.step + 1 + self.draw() % 2000;
        self.returns.entry(back).or_default().push(number);
    }
}

/// Runs histories of up to 100,000 principals, with slices of one length and of many. `check` gets the greatest lead
/// before a slice and the greatest lag, in quanta.
fn race(kind: CpuSchedulerKind, check: impl Fn(f64, f64) -> bool) {
    for slice in [Some(QUANTUM), None] {
        for count in [10, 1000, 100_000] {
            let mut race = Race::new(kind, count, slice);
            (0..300_000).for_each(|_| race.serve());
            let [lead, lag] = [race.lead, race.lag].map(|cycles| cycles / QUANTUM as f64);
            assert!(check(lead, lag), "{kind:?}, {count} principals, slice {slice:?}: {lead} {lag}");
        }
    }
}

/// Nobody behind the common level, so nobody is further ahead of it than one slice. A tenth is for rounding: heavy
/// principals have weights of a million.
#[test]
fn principals_that_come_and_go_are_never_more_than_a_slice_from_the_fluid_level() {
    race(CpuSchedulerKind::StartTimeFair, |lead, _| lead <= 0.1);
}

/// Bound of WF2Q+ (Bennett and Zhang, 1997): two slices behind the guaranteed share, however others come and go.
#[test]
fn worst_case_fair_principals_get_their_guaranteed_share_to_two_slices() {
    race(CpuSchedulerKind::WorstCaseFair, |_, lag| lag <= 2.0);
}
