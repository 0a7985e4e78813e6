//! Classification of frames by the programs in the kernel, compared with a twin in Rust.

pub(crate) mod dry_runs;
#[cfg(test)]
mod tests;
pub(crate) mod twin;
