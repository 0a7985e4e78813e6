//! Exact oracle of admission at two resources, which may split all granted deadlines anew.
//!
//! Flows fit if each has times `x` and `D - x` with sums of `W_1 / x` and `W_2 / (D - x)` within the capacities.
//! The problem is convex. For a price `p` of the first resource, 0 to 1, and `1 - p` of the second, each flow
//! has a cheapest split of its own, by a closed form. The price at which both resources are equally used is
//! found by bisection. Each step may end it with a proof: a split that fits, or a price at which even the
//! cheapest splits cost more than 1, the price of both capacities (weak duality).
//!
//! Without limits of single times, the sums have a closed form: with `a` and `b` the sums of `W_1 / D` and
//! `W_2 / D`, and `c` the sum of `sqrt(W_1 W_2) / D`, splits at a ratio `s` of prices use `a + c s` and
//! `b + c / s`. They fit for some `s` exactly if `(1 - a) (1 - b) >= c^2`.

/// Steps of the bisection. A set that they don't decide counts as fitting.
const STEPS: u32 = 100;

/// Flow at two resources.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OracleFlow {
    /// Work of a packet at each resource, above 0, in parts of the work of its capacity in a second.
    pub work: [f64; 2],
    /// Deadline in seconds, above 0.
    pub deadline: f64,
    /// Interval of packets in seconds: the longest time at each resource.
    pub interval: f64,
}

impl OracleFlow {
    /// Returns the cheapest times at both resources.
    fn times(&self, price: f64) -> [f64; 2] {
        let Self { work: [first, second], deadline, interval } = *self;
        let (least, most) = ((deadline - interval).max(0.0), interval.min(deadline));
        if least >= most {
            return [interval; 2];
        }
        let [first, second] = [(price * first).sqrt(), ((1.0 - price) * second).sqrt()];
        let time = (deadline * first / (first + second)).clamp(least, most);
        [time, deadline - time]
    }

    fn uses(&self, price: f64) -> [f64; 2] {
        let [first, second] = self.times(price);
        let [work, other] = self.work;
        [work / first, other / second]
    }
}

/// Flows that the oracle accepted.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    flows: Vec<OracleFlow>,
    /// Sums `a`, `b` and `c` of the closed form.
    sums: [f64; 3],
    /// Whether a flow has an interval below its deadline.
    is_limited: bool,
}

impl Oracle {
    /// Accepts a flow if it fits beside all accepted flows.
    pub fn accept(&mut self, flow: OracleFlow) -> bool {
        let is_limited = self.is_limited | (flow.interval < flow.deadline);
        let sums = added(self.sums, &flow);
        self.flows.push(flow);
        let fits = if is_limited { fits(&self.flows) } else { sums_fit(sums) };
        if fits {
            (self.sums, self.is_limited) = (sums, is_limited);
        } else {
            self.flows.pop();
        }
        fits
    }

    /// Returns the number of accepted flows.
    pub fn count(&self) -> usize {
        self.flows.len()
    }
}

fn added([a, b, c]: [f64; 3], OracleFlow { work: [first, second], deadline, .. }: &OracleFlow) -> [f64; 3] {
    [a + first / deadline, b + second / deadline, c + (first * second).sqrt() / deadline]
}

fn sums_fit([a, b, c]: [f64; 3]) -> bool {
    a < 1.0 && b < 1.0 && (1.0 - a) * (1.0 - b) >= c * c
}

/// Decides by bisection.
fn fits(flows: &[OracleFlow]) -> bool {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let price = (low + high) / 2.0;
        let [first, second] = flows.iter().fold([0.0, 0.0], |[first, second], flow| {
            let [one, other] = flow.uses(price);
            [first + one, second + other]
        });
        if first <= 1.0 && second <= 1.0 {
            return true;
        }
        if price * first + (1.0 - price) * second > 1.0 {
            return false;
        }
        if first > second { low = price } else { high = price }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flows(limits: std::ops::Range<f64>) -> impl Strategy<Value = Vec<OracleFlow>> {
        let flow = ([0.001_f64..0.1, 0.001_f64..0.1], 0.1_f64..2.0, limits)
            .prop_map(|(work, deadline, limit)| OracleFlow { work, deadline, interval: deadline * limit });
        prop::collection::vec(flow, 1..20)
    }

    /// Returns the uses by a flow at its cheapest split, which a search by thirds finds.
    fn searched(flow: &OracleFlow, price: f64) -> [f64; 2] {
        let uses = |time: f64| {
            let [first, second] = [time, flow.deadline - time].map(|time| time.min(flow.interval));
            [flow.work[0] / first, flow.work[1] / second]
        };
        let cost = |time: f64| {
            let [first, second] = uses(time);
            price * first + (1.0 - price) * second
        };
        let (mut low, mut high) = (0.0, flow.deadline);
        for _ in 0..40 {
            let third = (high - low) / 3.0;
            if cost(low + third) <= cost(high - third) { high -= third } else { low += third }
        }
        uses((low + high) / 2.0)
    }

    /// Least use of the busier resource on a grid of prices, each flow at its cheapest split. The ratio of both prices
    /// grows by 4 % from one to the next.
    fn on_a_grid(flows: &[OracleFlow]) -> f64 {
        let busiest = |price: f64| {
            let uses = flows.iter().map(|flow| searched(flow, price));
            let [first, second] = uses.fold([0.0, 0.0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
            f64::max(first, second)
        };
        let price = |step: i32| 1.0 / (1.0 + (f64::from(step) * 0.04).exp());
        (-300..=300).map(|step| busiest(price(step))).fold(f64::MAX, f64::min)
    }

    proptest! {
        #[test]
        fn bisection_equals_the_closed_form(flows in flows(1.0..2.0)) {
            let sums = flows.iter().fold([0.0; 3], added);
            let [a, b, c] = sums;
            let margin = (1.0 - a) * (1.0 - b) - c * c;
            prop_assume!(margin.abs() > 1e-9);
            prop_assert_eq!(fits(&flows), sums_fit(sums));
        }

        #[test]
        fn bisection_equals_a_search_of_all_prices(flows in flows(0.3..1.5)) {
            let least = on_a_grid(&flows);
            prop_assert!(least > 1.0 || fits(&flows));
            prop_assert!(least < 1.02 || !fits(&flows), "{least}");
        }

        /// Random splits of all flows: none fits if the oracle says so.
        #[test]
        fn no_random_split_fits_a_refused_set(
            flows in flows(0.3..1.5), parts in prop::collection::vec(prop::collection::vec(0.05_f64..0.95, 20), 50),
        ) {
            prop_assume!(!fits(&flows));
            for parts in parts {
                let use_of = |(flow, part): (&OracleFlow, &f64)| {
                    let [first, second] = [flow.deadline * part, flow.deadline * (1.0 - part)];
                    [flow.work[0] / first.min(flow.interval), flow.work[1] / second.min(flow.interval)]
                };
                let uses: Vec<[f64; 2]> = flows.iter().zip(&parts).map(use_of).collect();
                let most = [0, 1].map(|index| uses.iter().map(|one| one[index]).sum::<f64>());
                prop_assert!(most[0] > 1.0 || most[1] > 1.0);
            }
        }
    }

    #[test]
    fn refused_flow_leaves_no_trace() {
        let flow = |work: f64, interval: f64| OracleFlow { work: [work; 2], deadline: 1.0, interval };
        let mut oracle = Oracle::default();
        assert!(oracle.accept(flow(0.4, 1.0)));
        assert!(!oracle.accept(flow(0.1, 0.1)));
        assert!(!oracle.accept(flow(0.101, 1.0)) && oracle.accept(flow(0.0999, 1.0)));
        assert_eq!(oracle.count(), 2);
    }
}
