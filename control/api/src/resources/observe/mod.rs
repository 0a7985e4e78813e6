//! Handlers of the resources that observe the router: events, rates, metrics, drops, traces and captures.

pub(crate) mod audit;
pub(crate) mod capture;
pub(crate) mod drops;
pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod rates;
pub(crate) mod trace;
