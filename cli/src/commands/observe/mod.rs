//! Commands that show packets, counters and events.

pub(super) mod capture;
pub(super) mod drops;
pub(super) mod events;
pub(super) mod hardware;
pub(super) mod messages;
pub(super) mod rates;
pub(super) mod show;
pub(super) mod top;
pub(super) mod trace;
