//! Access: API tokens.

pub(crate) mod tokens;
