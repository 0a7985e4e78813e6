//! Gates stage: runs instances over a batch, and takes their outputs.

#[expect(
    clippy::indexing_slicing,
    reason = "members of a group are places of its packets, and all notes of a group go by them"
)]
mod copies;
mod fates;
#[expect(clippy::indexing_slicing, reason = "groups of a batch by numbers that were given in it")]
pub(crate) mod groups;
mod outlet;
mod outputs;
mod run;
pub(crate) mod stage;

pub(crate) use copies::Copies;
pub(crate) use fates::refused_by;
pub(crate) use outlet::Outlet;
pub(crate) use run::GateRun;
pub(crate) use stage::{Gates, Treatment};
