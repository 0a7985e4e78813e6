//! Routes that filters prescribe, whatever the route table says (*unified routing and classification*, Router Plugins,
//! section 8; primary filters of the NPR, section 3.2).
//!
//! They have numbers like routes, so that a flow record holds either in the same place.

use std::collections::HashMap;

use millrace_forward::{NextHop, NextHops};
use millrace_plugin::{Action, Way};
use millrace_units::NextHopIndex;

/// Set in the numbers of these routes, and in no other.
const FILTER: u32 = 1 << 31;
const DROP: u32 = FILTER;
const REJECT: u32 = FILTER | 1;
const HOST: u32 = FILTER | 2;
const FIRST_WAY: u32 = FILTER | 3;
/// Set in the numbers of ways that copies take.
const COPY: u32 = 1 << 30;

/// A route that a filter prescribes.
#[derive(Clone, Copy, Debug)]
pub enum FilterRoute<'a> {
    /// Drop.
    Drop,
    /// Drop, and tell the source that it is prohibited.
    Reject,
    /// The host gets it.
    Host,
    /// Send there.
    Forward(&'a NextHops),
}

/// The ways that filters have named so far. There are as many as there are neighbours that filters name.
#[derive(Debug, Default)]
pub struct FilterRoutes {
    ways: Vec<NextHops>,
    numbers: HashMap<Way, u32>,
}

impl FilterRoutes {
    /// Gives a way its number.
    pub fn add(&mut self, way: Way) {
        if !self.numbers.contains_key(&way)
            && let Ok(hops) = NextHops::new(&[NextHop::new(way.port, way.via)])
        {
            self.numbers.insert(way, FIRST_WAY + self.ways.len() as u32);
            self.ways.push(hops);
        }
    }

    /// The number of the route that an action prescribes: of several ways the first.
    pub fn index(&self, action: &Action) -> Option<NextHopIndex> {
        match action {
            Action::Drop => Some(NextHopIndex(DROP)),
            Action::Reject => Some(NextHopIndex(REJECT)),
            Action::Host => Some(NextHopIndex(HOST)),
            Action::Send(ways) => self.of(*ways.first()?),
            Action::Accept | Action::Instance(_) | Action::Copy(_) | Action::Queue(_) | Action::Police(_) => {
                None
            }
        }
    }

    /// The number of a way.
    pub fn of(&self, way: Way) -> Option<NextHopIndex> {
        self.numbers.get(&way).copied().map(NextHopIndex)
    }

    /// The number of a way for copies.
    pub fn for_copies(&self, way: Way) -> Option<NextHopIndex> {
        self.of(way).map(|index| NextHopIndex(index.0 | COPY))
    }

    /// The route of a number; `None` for the numbers of the route table.
    #[inline]
    pub fn route(&self, index: NextHopIndex) -> Option<FilterRoute<'_>> {
        if !is_filter(index) {
            return None;
        }
        match index.0 & !COPY {
            DROP => Some(FilterRoute::Drop),
            REJECT => Some(FilterRoute::Reject),
            HOST => Some(FilterRoute::Host),
            way => self.ways.get((way - FIRST_WAY) as usize).map(FilterRoute::Forward),
        }
    }
}

/// Whether a filter prescribed the route.
#[inline]
pub fn is_filter(index: NextHopIndex) -> bool {
    index.0 & FILTER != 0 && index != crate::route::NO_ROUTE
}

/// Whether the packet with this route is a copy of another.
#[inline]
pub fn is_copy(index: NextHopIndex) -> bool {
    is_filter(index) && index.0 & COPY != 0
}
