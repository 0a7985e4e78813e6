//! Reads values from documents: configuration files, JSON bodies and query arguments.
//!
//! A document is parsed into a [`Tree`], from which serde reads types. An error is data ([`ReadError`]): the
//! path of the value, the fault, and the valid values. Only [`ReadError::message`] turns it into a text.

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
