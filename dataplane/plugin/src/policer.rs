//! Policers: token buckets at gates, which drop packets above a rate and burst.
//!
//! A policer counts bytes ([`TokenRate`]) in one atomic word, so several threads and kernel programs can take
//! tokens at once.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_units::{Instant, TokenRate};

/// Number of attempts to take tokens if other threads change the bucket at the same time.
const TRIES: usize = 4;

/// State of a token bucket (one word), in memory that workers and kernel programs share.
pub trait SharedBucket: fmt::Debug + Send + Sync {
    /// Returns the word that holds the state of the bucket.
    fn word(&self) -> &AtomicU64;
    /// Returns the number under which kernel programs know the bucket.
    fn place(&self) -> u16;
}

/// Token bucket of a filter, with rate and burst in bytes of whole frames.
pub struct Policer {
    rate: u64,
    burst: u32,
    price: TokenRate,
    own: AtomicU64,
    shared: OnceLock<Box<dyn SharedBucket>>,
}

impl Policer {
    /// Lowest rate, in bits per second.
    pub const SLOWEST: u64 = 1_000;
    /// Highest rate, in bits per second.
    pub const FASTEST: u64 = 1_000_000_000_000;
    /// Smallest burst, in bytes: a packet of 1,500 bytes with its link header.
    pub const LEAST_BURST: u32 = 1_514;
    /// Largest burst, in bytes.
    pub const MOST_BURST: u32 = 1 << 26;

    /// Creates a full bucket that fills at `rate` bits per second and holds `burst` bytes, link headers
    /// included. Clamps both values to the limits of this type.
    pub fn new(rate: u64, burst: u32) -> Self {
        let rate = rate.clamp(Self::SLOWEST, Self::FASTEST);
        let burst = burst.clamp(Self::LEAST_BURST, Self::MOST_BURST);
        Self {
            rate,
            burst,
            price: TokenRate::of_bytes(rate, burst),
            own: AtomicU64::new(0),
            shared: OnceLock::new(),
        }
    }

    /// Returns the rate in bits per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns the burst in bytes.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns rate and burst in the form in which the token bucket computes with them.
    pub fn price(&self) -> TokenRate {
        self.price
    }

    /// Takes the tokens for a packet of `bytes` bytes. Returns `false`, and takes no tokens, if the bucket
    /// holds too few.
    #[inline]
    pub fn takes(&self, bytes: u32, now: Instant) -> bool {
        take(self.word(), self.price, self.price.cost(bytes), now)
    }

    /// Returns the number under which kernel programs know the bucket; `None` if the bucket is not shared
    /// with them.
    pub fn place(&self) -> Option<u16> {
        self.shared.get().map(|shared| shared.place())
    }

    /// Moves the bucket, with the tokens that it holds now, into memory that kernel programs share. No thread
    /// may take tokens during the move. Does nothing if the bucket is already shared.
    pub fn share(&self, bucket: Box<dyn SharedBucket>) {
        if self.shared.get().is_none() {
            bucket.word().store(self.own.load(Ordering::Relaxed), Ordering::Relaxed);
            let _ = self.shared.set(bucket);
        }
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        self.shared.get().map_or(&self.own, |shared| shared.word())
    }
}

/// Takes tokens like `take` in dataplane/offload/bpf/policer.h; both must stay the same.
#[inline]
fn take(word: &AtomicU64, price: TokenRate, cost: u64, now: Instant) -> bool {
    let mut paid = word.load(Ordering::Relaxed);
    for _ in 0..TRIES {
        let Some(until) = price.pay(paid, cost, now) else { return false };
        match word.compare_exchange(paid, until, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => paid = other,
        }
    }
    // Other threads changed the bucket during each attempt. So let the packet pass, and take its tokens
    // without a check.
    word.fetch_add(cost, Ordering::Relaxed);
    true
}

impl fmt::Debug for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policer")
            .field("rate", &self.rate)
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

/// Compares rate and burst, not the level of the bucket.
impl PartialEq for Policer {
    fn eq(&self, other: &Self) -> bool {
        (self.rate, self.burst) == (other.rate, other.burst)
    }
}

impl Eq for Policer {}

impl Hash for Policer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.rate, self.burst).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_bucket_lets_a_burst_through_and_then_the_rate() {
        let policer = Policer::new(8_000_000, 10_000);
        let start = Instant::from_millis(5_000);
        let burst = (0..100).filter(|_| policer.takes(1_000, start)).count();
        assert_eq!(burst, 10);
        // The bucket fills with one byte per microsecond.
        let later = |micros: u64| Instant::from_nanos(start.as_nanos() + micros * 1_000);
        assert!(!policer.takes(1_000, later(998)));
        assert!(policer.takes(1_000, later(1_001)) && !policer.takes(2, later(1_001)));
        let after_long = (0..100).filter(|_| policer.takes(1_000, later(1_000_000))).count();
        assert_eq!(after_long, 10, "it holds no more than the burst");
    }

    #[test]
    fn configured_rate_and_burst_are_clamped_to_the_bounds() {
        let policer = Policer::new(1, 1);
        assert_eq!((policer.rate(), policer.burst()), (Policer::SLOWEST, Policer::LEAST_BURST));
        assert!(policer.takes(1_514, Instant::from_millis(1)) && !policer.takes(64, Instant::from_millis(2)));
        let fastest = Policer::new(u64::MAX, u32::MAX);
        assert!((0..1000).all(|_| fastest.takes(65_535, Instant::from_millis(1))));
    }

    #[test]
    fn shared_bucket_keeps_its_fill_level() {
        #[derive(Debug)]
        struct Elsewhere(Arc<AtomicU64>);
        impl SharedBucket for Elsewhere {
            fn word(&self) -> &AtomicU64 {
                &self.0
            }
            fn place(&self) -> u16 {
                7
            }
        }
        let (policer, word, now) =
            (Policer::new(8_000, 2_000), Arc::new(AtomicU64::new(0)), Instant::from_millis(9));
        assert!(policer.takes(1_500, now) && policer.place().is_none());
        policer.share(Box::new(Elsewhere(word.clone())));
        assert_eq!(policer.place(), Some(7));
        assert!(!policer.takes(1_500, now) && policer.takes(400, now));
        assert!(word.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn threads_take_no_more_from_one_bucket_than_one_would() {
        let (policer, now) = (Policer::new(1_000_000, 1_000_000), Instant::from_millis(1));
        let taken = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..20_000).filter(|_| policer.takes(100, now)).count()))
                .collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum::<usize>()
        });
        // The bucket holds 10,000 packets. A thread may exceed it after other threads won all four attempts.
        assert!((10_000..10_050).contains(&taken), "{taken}");
    }

    proptest! {
        #[test]
        fn no_interval_sees_more_than_burst_and_rate(
            rate in 1_000..10_000_000_000_u64,
            burst in 1_514..1_000_000_u32,
            packets in prop::collection::vec((64..1_515_u32, 0..3_000_000_u64), 1..200),
        ) {
            let policer = Policer::new(rate, burst);
            let mut now = 1_000_000_000;
            let mut through: Vec<(u64, u32)> = Vec::new();
            for (length, wait) in packets {
                now += wait;
                if policer.takes(length, Instant::from_nanos(now)) {
                    through.push((now, length));
                }
            }
            for (first, (start, _)) in through.iter().enumerate() {
                let mut bytes = 0_u128;
                for (at, length) in &through[first..] {
                    bytes += u128::from(*length);
                    let most = u128::from(burst) + u128::from(rate) * u128::from(at - start) / 8_000_000_000 + 2;
                    prop_assert!(bytes <= most, "{bytes} bytes in {} ns, at most {most}", at - start);
                }
            }
        }
    }
}
