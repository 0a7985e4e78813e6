//! Realistic filter sets of routers and firewalls, and packets that match them.
//!
//! The sets come from ClassBench files (*ClassBench*: Taylor and Turner, INFOCOM 2005), or are generated in
//! the style of a ClassBench seed. Each set has a name, and is the same in every run.

mod address;
mod generate;
mod read;
mod style;
mod trace;

use millrace_classify::Filter;

pub use generate::generate;
pub use read::{parse, read};
pub use style::Style;
pub use trace::{Popularity, trace};

/// Named set of filters.
#[derive(Clone, Debug)]
pub struct FilterSet {
    /// Name of the set: `acl1 10k`, `fw 50k IPv6`.
    pub name: String,
    /// Filters, from the highest precedence to the lowest.
    pub filters: Vec<Filter>,
}

impl FilterSet {
    /// Returns the priority of the filter at index `place`. It decreases with the index, so the filters'
    /// order alone decides.
    pub fn priority(&self, place: usize) -> i32 {
        i32::try_from(self.filters.len() - place).unwrap_or(i32::MAX)
    }
}
