//! Filters and the tables that match packets against them.
