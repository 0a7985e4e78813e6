//! Owns the router's state, and joins control to the pipeline.

mod claim;
mod error;
mod feed;
mod lookup;
mod model;
pub mod offline;
pub mod replay;
mod routes;
mod show;
pub mod view;
mod worker_handle;

pub use error::ControlError;
