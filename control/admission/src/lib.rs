//! Admission: decides whether the router can keep a promise before it makes the promise.
//!
//! The crate is pure: it reads no clock, does no I/O and starts no thread.
#![forbid(unsafe_code)]

pub mod deadline;
