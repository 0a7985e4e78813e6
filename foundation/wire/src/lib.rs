//! Protocol headers: checked views, representations and checksums. One protocol, one file, one skeleton:
//!
//! - a `field` module with the offsets, in octets, of the header's fields;
//! - a **view** (`Frame`, `Packet` or `Header`) over any `AsRef<[u8]>`: getters that read the octets in place,
//!   and setters when the buffer is `AsMut<[u8]>`;
//! - a **representation** (`Repr`): a plain value with `parse`, `buffer_len` and `emit`;
//! - `Display`, for traces.
//!
//! # Panics
//! None, whatever the octets are: no function of this crate indexes. `new_checked` verifies every length that a getter
//! relies upon. After `new_unchecked`, or after a setter changed a length field, a getter of octets that are not there
//! returns zeros (an empty slice for a range), and a setter changes nothing. This crate has no `unsafe`.
//!
//! # When getters are meaningful
//! `new_checked` looks at lengths only, so that an error can still be reported about a packet whose fields are
//! wrong. Validity (versions, checksums, reserved values) has its own functions: [`ipv4::sanity`],
//! [`ipv6::sanity`], [`ndp::validate`], each `verify_checksum`, and each `Repr::parse`.
//!
//! # When `emit` is whole
//! When the buffer has `buffer_len` octets or more; fields that have no room in a shorter one are not written. A length
//! that does not fit its field is documented at the field.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bytes;
mod error;

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
pub mod mac_addr;
pub mod ndp;
pub mod protocol;
pub mod tcp;
pub mod tlv;
pub mod udp;
pub mod vlan;

pub use error::WireError;
pub use ethernet::EtherType;
pub use ipv4::Ipv4Fault;
pub use ipv6::Ipv6Fault;
pub use mac_addr::MacAddr;
pub use protocol::Protocol;
