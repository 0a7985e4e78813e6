//! Tests of the command line as a whole.

mod names;
mod words;
