//! Prices: places offline by prices of components, with a certificate of how many more services any placement could
//! place at most.
//!
//! Lagrangian relaxation (Fisher, "The Lagrangian Relaxation Method for Solving Integer Programming Problems",
//! Management Science, 1981): each component has a price, and each service takes its cheapest choice if that costs
//! less than the 1 it is worth. At any prices, their sum plus the gains of services bounds the optimum. The cost of a
//! flow's service on a statically scheduled processor is a maximum, not a sum: the search divides the range of
//! that maximum until the bounds of all ranges are below the next whole number.

use super::improve::improve;
use super::{Placement, Problem};
use crate::component::Role;
use crate::part::Part;
use crate::random::Random;

/// Placement with its certificate.
#[derive(Clone, Debug)]
pub struct Certified {
    /// Placement.
    pub placement: Placement,
    /// Number of services that no placement exceeds.
    pub bound: usize,
}

/// Most ranges that the search divides.
const MOST_RANGES: usize = 400;
/// Most price changes for one range.
const MOST_STEPS: usize = 120;
/// Most placements by shaken prices.
const MOST_SHAKES: usize = 100;
/// Rounding error of a bound.
const ROUNDING: f64 = 1e-6;

/// Choice in prices: shares of the limits of components.
struct Offer {
    choice: usize,
    uses: Vec<(usize, f64)>,
    /// Index of the statically scheduled processor, and of the level of its largest use by flows.
    level: Option<(usize, usize)>,
}

/// Statically scheduled processor.
struct Static {
    /// Component of the total.
    total: usize,
    /// Possible values of the largest use by flows, as shares of the total's limit, from 0 upwards.
    levels: Vec<f64>,
}

/// Problem in prices.
struct Market<'a> {
    problem: &'a Problem,
    offers: Vec<Vec<Offer>>,
    statics: Vec<Static>,
    components: usize,
}

/// Service with its least cost, its index, and its costs and choices, cheapest first.
type Asked = (f64, usize, Vec<(f64, usize)>);

/// Ranges of levels, with the best prices found for them.
#[derive(Clone)]
struct Range {
    low: Vec<usize>,
    high: Vec<usize>,
    prices: Vec<f64>,
    bound: f64,
}

/// Places all services that it can.
#[must_use]
pub fn place(problem: &Problem) -> Certified {
    let market = Market::new(problem);
    let mut best = problem.nothing();
    let mut open = vec![market.whole()];
    market.lower_bound(&mut open, &mut best);
    let mut divided = 0;
    while divided < MOST_RANGES {
        open.retain(|range| whole(range.bound) > best.count());
        let widest = open.iter().enumerate().filter(|(_, range)| range.width() > 0);
        let Some((index, _)) = widest.max_by(|(_, one), (_, other)| one.bound.total_cmp(&other.bound)) else {
            break;
        };
        let mut halves = open.swap_remove(index).halves();
        market.lower_bound(&mut halves, &mut best);
        open.extend(halves);
        divided += 1;
    }
    market.shake(&open, &mut best);
    let bound = open.iter().map(|range| whole(range.bound)).max().unwrap_or_default();
    Certified { bound: bound.max(best.count()), placement: best }
}

fn whole(bound: f64) -> usize {
    // The conversion saturates.
    (bound + ROUNDING).floor() as usize
}

impl Range {
    fn width(&self) -> usize {
        self.low.iter().zip(&self.high).map(|(low, high)| high - low).max().unwrap_or_default()
    }

    /// Divides the widest range of a processor's levels.
    fn halves(self) -> Vec<Self> {
        let widths = self.low.iter().zip(&self.high).map(|(low, high)| high - low).enumerate();
        let Some((index, width)) = widths.max_by_key(|(_, width)| *width) else { return vec![self] };
        let (mut lower, mut upper) = (self.clone(), self);
        if let (Some(high), Some(low)) = (lower.high.get_mut(index), upper.low.get_mut(index)) {
            *high -= width.div_ceil(2);
            *low = *high + 1;
        }
        vec![lower, upper]
    }
}

impl<'a> Market<'a> {
    fn new(problem: &'a Problem) -> Self {
        let limit =
            |component: usize| problem.components.get(component).map_or(0.0, |known| known.limit.number());
        let components = problem.components.iter().enumerate();
        let flows: Vec<usize> = components
            .filter(|(_, component)| component.role == Role::Flow)
            .map(|(index, _)| index)
            .collect();
        let empty = problem.nothing().utilization;
        let levels = |flow: &usize| {
            let choices = problem.candidates.iter().flat_map(|candidate| &candidate.choices);
            let fitting = choices.filter(|choice| empty.fits(&choice.impact));
            let parts =
                fitting.filter_map(|choice| choice.impact.flow.filter(|(component, _)| component == flow));
            let mut parts: Vec<Part> = parts.map(|(_, part)| part).chain([Part::ZERO]).collect();
            parts.sort_unstable();
            parts.dedup();
            parts
        };
        let parts: Vec<Vec<Part>> = flows.iter().map(levels).collect();
        let offer = |index: usize, impact: &crate::impact::Impact| {
            let bounded = impact.sums.iter().filter(|(component, _)| limit(*component).is_finite());
            let level = impact.flow.and_then(|(component, part)| {
                let known = flows.iter().position(|flow| *flow == component)?;
                Some((known, parts.get(known)?.binary_search(&part).ok()?))
            });
            let uses =
                bounded.map(|(component, part)| (*component, part.number() / limit(*component))).collect();
            Offer { choice: index, uses, level }
        };
        let offers = problem.candidates.iter().map(|candidate| {
            let choices = candidate.choices.iter().enumerate();
            let fitting = choices.filter(|(_, choice)| empty.fits(&choice.impact));
            fitting.map(|(index, choice)| offer(index, &choice.impact)).collect()
        });
        let statics = flows.iter().zip(&parts).map(|(flow, parts)| Static {
            total: flow + 1,
            levels: parts.iter().map(|part| part.number() / limit(flow + 1)).collect(),
        });
        Self {
            problem,
            offers: offers.collect(),
            statics: statics.collect(),
            components: problem.components.len(),
        }
    }

    /// Returns the range of all levels.
    fn whole(&self) -> Range {
        Range {
            low: vec![0; self.statics.len()],
            high: self.statics.iter().map(|known| known.levels.len() - 1).collect(),
            prices: vec![0.0; self.components],
            bound: f64::INFINITY,
        }
    }

    /// Lowers the bounds of ranges by better prices, and improves the best placement on the way.
    fn lower_bound(&self, ranges: &mut [Range], best: &mut Placement) {
        for range in ranges {
            self.lower(range, best);
        }
    }

    /// Tries prices near the best ones of each open range, until a placement reaches the bound. Each component gets
    /// a price: among choices of components without one, the cheapest would be arbitrary.
    fn shake(&self, open: &[Range], best: &mut Placement) {
        let mut random = Random::new(0);
        let bound = open.iter().map(|range| whole(range.bound)).max().unwrap_or_default();
        for shake in 0..MOST_SHAKES {
            let still_open = open.iter().filter(|range| whole(range.bound) > best.count());
            let Some(range) = still_open.clone().nth(shake % still_open.count().max(1)) else { return };
            if best.count() >= bound {
                return;
            }
            let floor = self.offers.len() as f64 * 0.2;
            let mut shaken =
                |price: &f64| price * 2.0 * random.fraction() + floor * random.fraction().powi(3);
            let prices: Vec<f64> = range.prices.iter().map(&mut shaken).collect();
            self.try_prices(range, &prices, best);
        }
    }

    /// Subgradient method with Polyak's steps towards the next whole number above the best placement.
    fn lower(&self, range: &mut Range, best: &mut Placement) {
        let mut prices = range.prices.clone();
        let (mut scale, mut stale) = (1.0, 0);
        let mut slopes = vec![0.0; self.components];
        for step in 0..MOST_STEPS {
            let value = self.value(range, &prices, &mut slopes);
            if value < range.bound - ROUNDING {
                range.bound = value;
                range.prices.clone_from(&prices);
                stale = 0;
            } else {
                stale += 1;
            }
            if whole(range.bound) <= best.count() {
                return;
            }
            if step % 8 == 0 {
                self.try_prices(range, &prices, best);
            }
            if stale == 8 {
                (scale, stale) = (scale * 0.5, 0);
                prices.clone_from(&range.prices);
                continue;
            }
            let steepness: f64 = slopes.iter().map(|slope| slope * slope).sum();
            let target = best.count() as f64 + 0.9;
            if steepness < 1e-12 || scale < 1e-3 {
                break;
            }
            let step = scale * (value - target).max(0.1) / steepness;
            for (price, slope) in prices.iter_mut().zip(&slopes) {
                *price = (*price - step * slope).max(0.0);
            }
        }
        self.try_prices(range, &range.prices.clone(), best);
    }

    /// Returns the bound at some prices, and its slope by each price.
    fn value(&self, range: &Range, prices: &[f64], slopes: &mut [f64]) -> f64 {
        slopes.fill(1.0);
        let mut value: f64 = prices.iter().sum();
        for (known, low) in self.statics.iter().zip(&range.low) {
            let level = known.levels.get(*low).copied().unwrap_or_default();
            value -= level * prices.get(known.total).copied().unwrap_or_default();
            if let Some(slope) = slopes.get_mut(known.total) {
                *slope -= level;
            }
        }
        for offers in &self.offers {
            let costs = offers
                .iter()
                .filter(|offer| offer.is_allowed(range))
                .map(|offer| (offer.cost(prices), offer));
            let cheapest = costs.min_by(|(one, _), (other, _)| one.total_cmp(other));
            if let Some((cost, offer)) = cheapest.filter(|(cost, _)| *cost < 1.0) {
                value += 1.0 - cost;
                for (component, share) in &offer.uses {
                    if let Some(slope) = slopes.get_mut(*component) {
                        *slope -= share;
                    }
                }
            }
        }
        for (slope, price) in slopes.iter_mut().zip(prices) {
            // A price of 0 can't fall.
            if *price <= 0.0 && *slope > 0.0 {
                *slope = 0.0;
            }
        }
        value
    }

    /// Places services by their cheapest offers, the cheapest service first, and keeps the better placement.
    fn try_prices(&self, range: &Range, prices: &[f64], best: &mut Placement) {
        let mut services: Vec<Asked> = Vec::with_capacity(self.offers.len());
        for (service, offers) in self.offers.iter().enumerate() {
            let allowed = offers.iter().filter(|offer| offer.is_allowed(range));
            let mut costs: Vec<(f64, usize)> =
                allowed.map(|offer| (offer.cost(prices), offer.choice)).collect();
            costs.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            if let Some((least, _)) = costs.first() {
                services.push((*least, service, costs));
            }
        }
        services.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        let mut placement = self.problem.nothing();
        for (_, service, costs) in &services {
            let Some(candidate) = self.problem.candidates.get(*service) else { continue };
            let fits = |(_, choice): &&(f64, usize)| {
                candidate.choices.get(*choice).is_some_and(|found| placement.utilization.fits(&found.impact))
            };
            if let Some((_, choice)) = costs.iter().find(fits) {
                placement.put(self.problem, *service, *choice);
            }
        }
        if placement.count() + 2 >= best.count() && placement.count() < whole(range.bound) {
            improve(self.problem, &mut placement);
        }
        if placement.count() > best.count() {
            *best = placement;
        }
    }
}

impl Offer {
    fn is_allowed(&self, range: &Range) -> bool {
        self.level.is_none_or(|(known, level)| range.high.get(known).is_some_and(|high| level <= *high))
    }

    fn cost(&self, prices: &[f64]) -> f64 {
        self.uses
            .iter()
            .map(|(component, share)| share * prices.get(*component).copied().unwrap_or_default())
            .sum()
    }
}
