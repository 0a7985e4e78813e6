//! The configuration file: schema, checks and errors.
