//! Protocol headers: checked views, representations and checksums. Each protocol has one module with the same
//! structure, as far as the router needs it:
//!
//! - a **view** (`Frame`, `Packet` or `Tag`) over any `AsRef<[u8]>`: getters that read the octets in place,
//!   and setters if the buffer is `AsMut<[u8]>`. A table lists the fields with their offsets in octets;
//! - a **representation** (`Repr`) of headers that the router writes: a plain value with `emit`.
//!
//! # Panics
//! No function panics, whatever the octets are, because none indexes. `new_checked` verifies every length
//! that a getter relies upon. After `new_unchecked`, or after a setter has changed a length field, some
//! octets may be missing. Getters then return zeros (an empty slice for a range), and setters change nothing.
//! This crate has no `unsafe`.
//!
//! # When getters are meaningful
//! `new_checked` checks only lengths, so that the caller can still report an error about a packet with
//! invalid fields. Other functions check validity (versions, checksums, reserved values): [`ipv4::sanity`],
//! [`ipv6::sanity`], [`ndp::validate`], each `verify_checksum`, and each `Repr::parse`.
//!
//! # When `emit` is complete
//! `emit` writes all fields if the buffer has room for the header. In a shorter buffer it omits the fields
//! without room. If a length can be too large for its header, the documentation of the field says what
//! happens.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bytes;
mod error;
mod icmp;
mod link;
mod network;
mod transport;

pub mod checksum;
pub mod protocol;
pub mod tlv;

pub use error::WireError;
pub use icmp::{HEADER_LEN as ICMP_HEADER_LEN, icmpv6, ndp};
pub use link::ethernet::EtherType;
pub use link::mac_addr::MacAddr;
pub use link::{arp, ethernet, mac_addr, vlan};
pub use network::ipv4::Ipv4Fault;
pub use network::ipv6::Ipv6Fault;
pub use network::{ipv4, ipv6, ipv6_ext};
pub use protocol::Protocol;
pub use transport::tcp;
