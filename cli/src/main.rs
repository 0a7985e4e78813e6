//! Millrace, a software router that is programmed while it forwards.

fn main() {}
