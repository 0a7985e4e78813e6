//! Admission and placement: decides where a service fits on the processors of a router, and promises its share.
//!
//! The room is pure: it does no I/O, reads no clock, and starts no thread.
//!
//! - [`hardware`] describes processors, switches, ports and paths; [`component`] each thing that can run out.
//! - [`request`] describes a service and its packets; [`impact`] its use of components on each processor.
//! - [`utilization_vector`] adds impacts up, and refuses what exceeds the provisioning; [`norm`] measures vectors.
//! - [`placement`] chooses processors, by one algorithm a file.
//! - [`deadline`] splits the deadline of a packet over processor and link, and bounds delays.
//! - [`exact`] finds the largest placement by a solver, to measure the algorithms against.
//! - [`levels`] describes a router on a general-purpose machine by its levels.
//! - [`scenario`] places requests on a described router.
//! - [`workload`] draws the random workloads of VERA's experiments.
#![forbid(unsafe_code)]

pub mod component;
pub mod deadline;
pub mod exact;
pub mod hardware;
pub mod impact;
pub mod levels;
pub mod norm;
pub mod part;
pub mod placement;
pub mod random;
pub mod request;
pub mod scenario;
pub mod utilization_vector;
pub mod workload;
