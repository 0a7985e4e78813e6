//! Tests of whole ports under a virtual clock. Slow reference schedulers, and the bounds proved in the
//! papers, give the expected results.

mod active_queues;
mod bad_input;
mod batches;
mod changes_together;
mod fair_queues;
mod flow_leaves;
mod held_back;
mod hfsc;
mod hierarchy;
mod marks;
mod other_kinds;
mod passing;
mod random_trees;
mod support;
mod token_bucket;
