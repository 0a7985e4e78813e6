//! Sets of filters as they are found in routers and firewalls, and packets that meet them.
//!
//! The sets come from files in the format of *ClassBench* (Taylor and Turner, INFOCOM 2005), where these are at hand, or
//! are generated in the style of one of its seeds. Both have a name, and are the same in every run.

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

/// Filters, best first.
#[derive(Clone, Debug)]
pub struct FilterSet {
    /// What to call it: `acl1 10k`, `fw 50k IPv6`.
    pub name: String,
    /// The filters, in the order in which they win.
    pub filters: Vec<Filter>,
}

impl FilterSet {
    /// The priority of the filter at `place`: falling, so that their order alone decides.
    pub fn priority(&self, place: usize) -> i32 {
        i32::try_from(self.filters.len() - place).unwrap_or(i32::MAX)
    }
}
