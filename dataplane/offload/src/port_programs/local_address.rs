//! The router's own addresses in the maps of the offload program.

use std::collections::HashSet;
use std::net::IpAddr;

/// Addresses to add to a map and to remove from it, so that it holds exactly `wanted`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Missing addresses, sorted.
    pub(crate) add: Vec<IpAddr>,
    /// Addresses no longer wanted, sorted.
    pub(crate) remove: Vec<IpAddr>,
}

/// Compares the addresses in a map with the wanted ones. Loopback addresses never enter the map: on a wire,
/// such a destination is a martian, which user space counts.
pub(crate) fn difference(present: &HashSet<IpAddr>, wanted: &[IpAddr]) -> Difference {
    let wanted: HashSet<IpAddr> = wanted.iter().copied().filter(|address| !address.is_loopback()).collect();
    let mut add: Vec<_> = wanted.difference(present).copied().collect();
    let mut remove: Vec<_> = present.difference(&wanted).copied().collect();
    add.sort_unstable();
    remove.sort_unstable();
    Difference { add, remove }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_differences_are_written_and_loopback_is_omitted() {
        let present = addresses(&["10.0.0.1", "10.0.0.2", "2001:db8::1"]).into_iter().collect();
        let wanted = addresses(&["10.0.0.2", "127.0.0.1", "::1", "2001:db8::2", "10.0.0.2"]);
        let difference = difference(&present, &wanted);
        assert_eq!(difference.add, addresses(&["2001:db8::2"]));
        assert_eq!(difference.remove, addresses(&["10.0.0.1", "2001:db8::1"]));
    }
}
