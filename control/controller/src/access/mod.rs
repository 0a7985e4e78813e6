//! Access: API tokens and the audit log.

pub(crate) mod audit;
pub(crate) mod tokens;
