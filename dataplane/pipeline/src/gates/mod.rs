//! Gates: the stage that runs instances over a batch, the tables of bindings, and packets that wait for instances.

pub(crate) mod from_plugins;
#[expect(clippy::indexing_slicing, reason = "groups of a batch by numbers that were given in it")]
pub(crate) mod groups;
pub(crate) mod links;
pub(crate) mod resume;
mod run;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
pub(crate) mod stage;
pub(crate) mod table;
pub(crate) mod tables;

pub(crate) use stage::{Copies, Gates, Outlet, Treatment};
