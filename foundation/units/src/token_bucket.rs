//! Token bucket: the generic cell rate algorithm of ITU-T I.371, annex A, in its virtual scheduling form.
//!
//! The state of a bucket is a single word: the time up to which the rate has paid for all tokens taken so
//! far. A request is granted if that time plus the cost of the request is at most the depth of the bucket
//! ahead of now. So at most burst + rate · t tokens are granted in any interval of length t. Times are
//! counted in ticks of a sixteenth of a nanosecond. The XDP programs use the same computation
//! (dataplane/offload/bpf/policer.h).

use crate::Instant;

const TICKS_PER_NANOSECOND: u64 = 16;
const TICKS_PER_SECOND: u64 = TICKS_PER_NANOSECOND * 1_000_000_000;
/// Number of fraction bits in the price of a token, which is counted in ticks.
const FRACTION: u32 = 16;

/// Rate and depth of a token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenRate {
    token: u64,
    depth: u64,
}

impl TokenRate {
    /// Returns the rate of `per_second` events a second in bursts of up to `burst` events; a token is an
    /// event. A rate of 0 grants nothing.
    ///
    /// The price of an event is rounded up to a whole tick. A full bucket grants exactly the burst, and the
    /// rate is never exceeded.
    pub fn of_events(per_second: u32, burst: u32) -> Self {
        if per_second == 0 {
            return Self { token: u64::MAX, depth: 0 };
        }
        let ticks = TICKS_PER_SECOND.div_ceil(per_second.into());
        Self { token: ticks << FRACTION, depth: ticks.saturating_mul(burst.into()) }
    }

    /// Returns the rate of `bits_per_second` bits a second, 128 or more, in bursts of up to `burst` bytes. A
    /// token is a byte.
    pub fn of_bytes(bits_per_second: u64, burst: u32) -> Self {
        let ticks = (u128::from(TICKS_PER_SECOND) * 8) << FRACTION;
        let token = saturated(ticks / u128::from(bits_per_second.max(1)));
        // The depth is rounded up like the cost, so a full bucket grants a packet of `burst` bytes.
        Self { token, depth: saturated((u128::from(burst) * u128::from(token)).div_ceil(1 << FRACTION)) }
    }

    /// Returns the price of a token in ticks, times 65,536.
    pub fn token(self) -> u64 {
        self.token
    }

    /// Returns the depth of the bucket in ticks: the time in which an empty bucket fills.
    pub fn depth(self) -> u64 {
        self.depth
    }

    /// Returns the cost of `tokens` in ticks, rounded up.
    #[inline]
    pub fn cost(self, tokens: u32) -> u64 {
        saturated((u128::from(self.token) * u128::from(tokens)).div_ceil(1 << FRACTION))
    }

    /// Takes a request of `cost` ticks from a bucket whose state is `paid`. Returns the new state, or `None`
    /// if the bucket has too few tokens.
    #[inline]
    pub fn pay(self, paid: u64, cost: u64, now: Instant) -> Option<u64> {
        let now = now.as_nanos().saturating_mul(TICKS_PER_NANOSECOND);
        let is_granted = paid.saturating_sub(now).saturating_add(cost) <= self.depth;
        is_granted.then(|| paid.max(now).saturating_add(cost))
    }
}

#[inline]
fn saturated(ticks: u128) -> u64 {
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Token bucket that belongs to one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    rate: TokenRate,
    paid: u64,
}

impl TokenBucket {
    /// Returns a full bucket with this rate and depth.
    pub fn new(rate: TokenRate) -> Self {
        Self { rate, paid: 0 }
    }

    /// Takes a token. Returns whether the bucket had one.
    #[inline]
    #[must_use]
    pub fn take(&mut self, now: Instant) -> bool {
        self.take_above(0, now)
    }

    /// Takes a token if at least `kept` tokens remain afterwards. Returns whether it took one.
    #[inline]
    #[must_use]
    pub fn take_above(&mut self, kept: u32, now: Instant) -> bool {
        let cost = self.rate.cost(1);
        let reserve = self.rate.cost(kept);
        let paid = self.rate.pay(self.paid, cost.saturating_add(reserve), now);
        if let Some(paid) = paid {
            self.paid = paid.saturating_sub(reserve);
        }
        paid.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference model: grants a request unless some interval that ends with it would get more than the depth
    /// plus its own length.
    #[derive(Default)]
    struct Intervals {
        granted: Vec<(u128, u128)>,
    }

    impl Intervals {
        fn takes(&mut self, cost: u128, kept: u128, depth: u128, now: u128) -> bool {
            let mut sum = cost + kept;
            let mut fits = sum <= depth;
            for (at, cost) in self.granted.iter().rev() {
                sum += cost;
                fits &= sum <= depth + (now - at);
            }
            if fits {
                self.granted.push((now, cost));
            }
            fits
        }
    }

    #[test]
    fn full_bucket_grants_a_packet_of_the_burst_at_any_rate_of_bytes() {
        for bits in
            [1_000, 3_000_000, 6_000_000, 7_000_000, 9_000_000, 30_000_000, 10_000_000_000, 1_000_000_000_000]
        {
            let rate = TokenRate::of_bytes(bits, 1514);
            assert!(rate.cost(1514) <= rate.depth(), "{bits}");
            assert!(rate.cost(1515) > rate.depth() || bits > 1_000_000_000, "{bits}");
        }
    }

    #[test]
    fn full_bucket_grants_exactly_the_burst_at_any_rate() {
        for rate in [1, 3, 7, 999, 1_000_003, 300_000_000] {
            let mut bucket = TokenBucket::new(TokenRate::of_events(rate, 77));
            let now = Instant::from_millis(3_600_000);
            assert_eq!((0..1000).filter(|_| bucket.take(now)).count(), 77, "{rate}");
        }
    }

    #[test]
    fn rate_of_zero_grants_nothing() {
        for now in [Instant::ZERO, Instant::from_millis(1), Instant::FOREVER] {
            assert!(!TokenBucket::new(TokenRate::of_events(0, 5)).take(now));
        }
    }

    #[test]
    fn bounds_of_time_and_rate_do_not_overflow() {
        for rate in [TokenRate::of_events(1, u32::MAX), TokenRate::of_bytes(1, u32::MAX)] {
            for now in [Instant::ZERO, Instant::FOREVER, Instant::ZERO] {
                assert!(rate.pay(u64::MAX, rate.cost(u32::MAX), now).is_none_or(|paid| paid == u64::MAX));
                let mut bucket = TokenBucket { rate, paid: u64::MAX };
                let _ = bucket.take_above(u32::MAX, now);
            }
        }
    }

    proptest! {
        #[test]
        fn events_are_granted_as_by_the_slow_twin(
            rate in prop_oneof![1..20_u32, 1..2_000_u32, any::<u32>().prop_map(|rate| rate.max(1))],
            burst in 0..60_u32,
            requests in prop::collection::vec((prop_oneof![Just(0), 0..2_000_000_u64, 0..2_000_000_000_u64], 0..4_u32), 1..200),
        ) {
            let mut bucket = TokenBucket::new(TokenRate::of_events(rate, burst));
            let price = (16_000_000_000_u128).div_ceil(rate.into());
            let (mut twin, mut now) = (Intervals::default(), 0);
            for (gap, kept) in requests {
                now += gap;
                let expected = twin.takes(price, price * u128::from(kept), price * u128::from(burst), u128::from(now) * 16);
                prop_assert_eq!(bucket.take_above(kept, Instant::from_nanos(now)), expected);
            }
        }

        #[test]
        fn bytes_are_granted_as_by_the_slow_twin(
            rate in 1_000..1_000_000_000_000_u64,
            burst in 1_514..1_000_000_u32,
            packets in prop::collection::vec((0..65_536_u32, prop_oneof![Just(0), 0..5_000_u64, 0..50_000_000_u64]), 1..200),
        ) {
            let limit = TokenRate::of_bytes(rate, burst);
            let token = (128_000_000_000_u128 << 16) / u128::from(rate);
            let depth = (u128::from(burst) * token).div_ceil(1 << 16);
            let (mut twin, mut paid, mut now) = (Intervals::default(), 0, 0);
            for (length, gap) in packets {
                now += gap;
                let expected = twin.takes((u128::from(length) * token).div_ceil(1 << 16), 0, depth, u128::from(now) * 16);
                let after = limit.pay(paid, limit.cost(length), Instant::from_nanos(now));
                prop_assert_eq!(after.is_some(), expected);
                paid = after.unwrap_or(paid);
            }
        }
    }
}
