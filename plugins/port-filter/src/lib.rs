//! Plugin port-filter.
