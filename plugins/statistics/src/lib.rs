//! Plugin statistics.
