//! The packet's journey, stage by stage, and the worker that runs it.
