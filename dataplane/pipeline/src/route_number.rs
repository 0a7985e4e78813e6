//! Route numbers in packets and flow records: of FIB routes, of filter routes, and the number for no route.

use millrace_units::NextHopIndex;

/// Number of routes with an account: a route has one if its number is lower than this.
pub const ROUTES: u32 = 1 << 16;
/// Route number of packets without a route.
pub(crate) const NO_ROUTE: NextHopIndex = NextHopIndex(u32::MAX);
/// Bit that is set in the numbers of filter routes only.
pub(crate) const FILTER: u32 = 1 << 31;
/// Bit that is set in the numbers of routes for copies.
pub(crate) const COPY: u32 = 1 << 30;

/// Returns whether a route number belongs to a route that a filter prescribes.
#[inline]
pub fn is_filter(index: NextHopIndex) -> bool {
    index.0 & FILTER != 0 && index != NO_ROUTE
}

/// Returns whether the packet with this route number is a copy.
#[inline]
pub fn is_copy(index: NextHopIndex) -> bool {
    is_filter(index) && index.0 & COPY != 0
}
