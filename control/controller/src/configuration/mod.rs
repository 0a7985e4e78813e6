//! The configuration of a running router: what it is, what another one would change, and how that is changed: all of it or nothing.

mod apply;
mod base;
mod bindings;
mod carry_out;
mod confirm;
mod expected;
mod history;
mod keep;
mod lists;
mod ports;
mod routes;
mod running;
mod single;
pub mod words;

pub use apply::{Apply, ConfirmTime};
pub use confirm::Pending;
pub use history::RollBack;
pub use keep::{Keep, Save};
pub use lists::AddedFilters;

pub(crate) use base::Base;
pub(crate) use confirm::Waiting;
pub(crate) use single::checked;
