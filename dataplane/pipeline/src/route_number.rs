//! Numbers of routes in packets and flow records: routes of the FIB, routes that filters prescribe, and none.

use millrace_units::NextHopIndex;

/// Number of routes with an account: only routes with lower numbers have one.
pub const ROUTES: u32 = 1 << 16;
/// Number that stands for no route.
pub(crate) const NO_ROUTE: NextHopIndex = NextHopIndex(u32::MAX);
/// Bit that is set in the numbers of filter routes only.
pub(crate) const FILTER: u32 = 1 << 31;
/// Bit that is set in the numbers of routes for copies.
pub(crate) const COPY: u32 = 1 << 30;

/// Returns whether a route number is a filter's.
#[inline]
pub fn is_filter(index: NextHopIndex) -> bool {
    index.0 & FILTER != 0 && index != NO_ROUTE
}

/// Returns whether the packet with this route number is a copy.
#[inline]
pub fn is_copy(index: NextHopIndex) -> bool {
    is_filter(index) && index.0 & COPY != 0
}
