//! Reading of values from documents: configuration files, JSON bodies and query arguments.
//!
//! A document is parsed into a [`Tree`], and serde reads types from it. An error is data ([`ReadError`]): the
//! path of the value, the fault, and the valid values. [`ReadError::message`] alone words it.

mod deserializer;
mod error;
mod placed;
mod tree;
mod wording;

pub use error::ReadError;
pub(crate) use error::{Fault, PathStep, Present};
pub(crate) use placed::Placed;
pub use tree::Tree;
pub(crate) use tree::{Entry, Node};
pub use wording::Document;
