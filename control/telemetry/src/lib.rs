//! Rates and captures for people and programs.
#![forbid(unsafe_code)]

mod capture_file;
mod rate;

pub use capture_file::{CaptureFile, CaptureFileError};
pub use rate::Rate;
