//! Plugin null.
