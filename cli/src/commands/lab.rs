//! The command `lab`.
