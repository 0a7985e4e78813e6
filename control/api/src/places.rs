//! Room for clients that come from elsewhere, so that no address keeps others out.
//!
//! Who has shown a token that holds takes one of all places. Until then a connection counts for its address too, which has an eighth of
//! the places, so that connections that never show one leave room for those of others. What is beyond waits, and is turned away
//! when that takes too long.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::network;
use crate::shares::Shares;

/// Clients that are answered at one time.
const ALL: usize = 512;
/// Of these, those of an address (of IPv6: of a network of 64 bits) that have shown no token that holds.
const STRANGERS: usize = ALL / 8;
/// Clients that wait for a place at one time, beside those that have one.
const WAITING: usize = 512;
/// How long one waits for a place.
const PATIENCE: Duration = Duration::from_secs(10);

/// Room for clients. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    addresses: Shares<IpAddr>,
}

/// A place among all, as long as it is kept.
#[derive(Debug)]
pub(crate) struct Place {
    _all: OwnedSemaphorePermit,
}

/// A place among those of an address, kept until a token was shown.
#[derive(Debug)]
pub(crate) struct StrangersPlace {
    _one: OwnedSemaphorePermit,
}

impl Default for Places {
    fn default() -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        let addresses = Shares::new(STRANGERS, ALL + WAITING);
        Self { all: places(ALL), waiting: places(WAITING), addresses }
    }
}

impl Places {
    /// A place for who comes from an address; `None` where there was none in time, or too many wait.
    pub async fn enter(&self, from: IpAddr) -> Option<(Place, StrangersPlace)> {
        let address = self.addresses.of(network(from));
        if let Ok(one) = address.clone().try_acquire_owned()
            && let Ok(all) = self.all.clone().try_acquire_owned()
        {
            return Some((Place { _all: all }, StrangersPlace { _one: one }));
        }
        let _waits = self.waiting.try_acquire().ok()?;
        let entered = async {
            let one = address.acquire_owned().await.ok()?;
            let all = self.all.clone().acquire_owned().await.ok()?;
            Some((Place { _all: all }, StrangersPlace { _one: one }))
        };
        tokio::time::timeout(PATIENCE, entered).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Takes places for an address until one would have to wait.
    async fn fill(places: &Places, from: IpAddr) -> Vec<(Place, StrangersPlace)> {
        let mut taken = Vec::new();
        while let Ok(place) = tokio::time::timeout(Duration::from_millis(20), places.enter(from)).await {
            taken.push(place.expect("a place"));
        }
        taken
    }

    #[tokio::test]
    async fn who_shows_no_token_leaves_room_for_other_addresses() {
        let places = Places::default();
        let held = fill(&places, address(1)).await;
        assert_eq!(held.len(), STRANGERS);
        assert_eq!(fill(&places, address(2)).await.len(), STRANGERS);
        // A network of 64 bits is one address.
        let held6 = fill(&places, "fd00::1".parse().unwrap()).await;
        assert_eq!(held6.len(), STRANGERS);
        assert_eq!(fill(&places, "fd00::2".parse().unwrap()).await.len(), 0);
        drop(held);
        assert_eq!(fill(&places, address(1)).await.len(), STRANGERS);
    }

    #[tokio::test]
    async fn who_has_shown_a_token_counts_for_no_address() {
        let places = Places::default();
        let mut known = Vec::new();
        while known.len() < ALL {
            let shown = fill(&places, address(1)).await;
            assert!(!shown.is_empty());
            known.extend(shown.into_iter().map(|(place, _)| place));
        }
        // Now all places are taken; who waits gets the next.
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.enter(address(9)).await.is_some() }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(known.pop());
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn places_of_addresses_are_forgotten() {
        let places = Places::default();
        for number in 0..10_000_u32 {
            assert!(places.enter(IpAddr::V4(number.into())).await.is_some());
        }
        assert!(places.addresses.remembered() <= 2 * (ALL + WAITING));
    }
}
