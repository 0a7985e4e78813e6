//! Handlers of the resources by which one observes the router.

pub(crate) mod audit;
pub(crate) mod capture;
pub(crate) mod drops;
pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod rates;
pub(crate) mod trace;
