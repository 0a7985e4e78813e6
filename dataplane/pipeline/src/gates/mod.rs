//! Gates: the stage that runs instances over a batch, the tables of bindings, and packets that wait for instances.

#[expect(clippy::indexing_slicing, reason = "groups of a batch by numbers that were given in it")]
pub(crate) mod groups;
pub(crate) mod resume;
mod run;
#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
pub(crate) mod stage;

pub(crate) use stage::{Copies, Gates, Outlet, Treatment};
