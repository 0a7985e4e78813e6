//! Tests of the flow table, with its reference model.

mod limits;
mod model;
mod twin;
