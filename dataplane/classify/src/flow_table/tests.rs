//! The table beside its slow twin.

mod limits;
mod model;
mod twin;
