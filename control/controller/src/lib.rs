//! Owns the router's state and joins control to the pipeline.
