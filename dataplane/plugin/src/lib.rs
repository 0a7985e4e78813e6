//! Gates, paths and the instances bound to them.
