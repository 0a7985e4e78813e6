//! Admission and placement: decides where a service fits on the processors of a router, and promises its share.
//!
//! The room is pure: it does no I/O, reads no clock, and starts no thread.

pub mod deadline;
