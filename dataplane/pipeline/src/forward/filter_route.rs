//! Routes that filters prescribe, in place of the FIB (*unified routing and classification*, Router Plugins,
//! section 8; primary filters of the NPR, section 3.2).
//!
//! Their route numbers are outside the range of FIB routes. So a flow record holds a FIB route or a filter
//! route in the same field.

use std::collections::HashMap;

use millrace_forward::{NextHop, NextHops};
use millrace_plugin::{Action, Way};
use millrace_units::NextHopIndex;

use crate::route_number::{COPY, FILTER, is_filter};

const DROP: u32 = FILTER;
const REJECT: u32 = FILTER | 1;
const HOST: u32 = FILTER | 2;
const FIRST_WAY: u32 = FILTER | 3;

/// Route that a filter prescribes.
#[derive(Clone, Copy, Debug)]
pub enum FilterRoute<'a> {
    /// Drop.
    Drop,
    /// Drop, and send the source an ICMP error (administratively prohibited).
    Reject,
    /// Deliver to the host.
    Host,
    /// Forward to these next hops.
    Forward(&'a NextHops),
}

/// Egresses (port and gateway) that filters have prescribed so far, each once.
#[derive(Debug, Default)]
pub struct FilterRoutes {
    ways: Vec<NextHops>,
    numbers: HashMap<Way, u32>,
}

impl FilterRoutes {
    /// Assigns route numbers to an egress (port and gateway), if it has none.
    pub fn add(&mut self, way: Way) {
        if !self.numbers.contains_key(&way)
            && let Ok(hops) = NextHops::new(&[NextHop::new(way.port, way.via)])
        {
            self.numbers.insert(way, FIRST_WAY + self.ways.len() as u32);
            self.ways.push(hops);
        }
    }

    /// Returns the number of the route that an action prescribes. For an action with several egresses,
    /// returns the number of the first one.
    pub fn index(&self, action: &Action) -> Option<NextHopIndex> {
        match action {
            Action::Drop => Some(NextHopIndex(DROP)),
            Action::Reject => Some(NextHopIndex(REJECT)),
            Action::Host => Some(NextHopIndex(HOST)),
            Action::Send(ways) => self.of(*ways.first()?),
            Action::Accept
            | Action::Instance(_)
            | Action::Copy(_)
            | Action::Queue(_)
            | Action::Police(_)
            | Action::Principal(_) => None,
        }
    }

    /// Returns the route number of an egress.
    pub fn of(&self, way: Way) -> Option<NextHopIndex> {
        self.numbers.get(&way).copied().map(NextHopIndex)
    }

    /// Returns the route number of copies to an egress.
    pub fn for_copies(&self, way: Way) -> Option<NextHopIndex> {
        self.of(way).map(|index| NextHopIndex(index.0 | COPY))
    }

    /// Returns the filter route of a number; `None` if the number belongs to the FIB.
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
