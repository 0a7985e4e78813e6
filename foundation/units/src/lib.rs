//! Newtypes for what Millrace counts, measures and names.
