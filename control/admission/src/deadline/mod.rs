//! Deadlines: the split of one deadline over the resources that a packet passes (Pradhan, Gopalan and Chiueh,
//! "Design Issues in System Support for Programmable Routers", 2001, section 5).
//!
//! A flow asks that each packet leaves the router within a deadline, and names the work of a packet for each
//! resource. The [`Ledger`] subtracts the time of other work that nothing pre-empts, splits the rest over the
//! resources, and grants a share of each: work divided by time. Granted shares stay until the flow is released.

mod bound;
mod calculus;
mod figure;
mod flow_sets;
mod grant;
mod ledger;
mod mix;
mod oracle;
mod request;
mod resource;
mod servers;
mod simulation;
mod split;

pub use calculus::{RateLatency, TokenBucket};
pub use figure::{FigurePoint, figure_one};
pub use flow_sets::{Accepted, compare};
pub use grant::{Grant, GrantedStage};
pub use ledger::{Criterion, Ledger};
pub use oracle::{Oracle, OracleFlow};
pub use request::{Demand, FlowRequest, Refusal, Stage};
pub use resource::{Resource, Unit};
pub use simulation::{SimulatedFlow, SimulationError, SimulationOutcome, SimulationSettings, simulate};

#[cfg(test)]
mod tests;
