//! Whole ports under a virtual clock, compared with slow twins and with the bounds that the papers prove.

mod active_queues;
mod bad_input;
mod batches;
mod changes_together;
mod fair_queues;
mod flow_leaves;
mod hfsc;
mod hierarchy;
mod marks;
mod other_kinds;
mod passing;
mod random_trees;
mod support;
mod token_bucket;
