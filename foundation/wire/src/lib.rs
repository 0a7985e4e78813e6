//! Protocol headers: checked views, representations and checksums. One protocol, one file, one skeleton:
//!
//! - a `field` module with the offsets, in octets, of the header's fields;
//! - a **view** (`Frame`, `Packet` or `Header`) over any `AsRef<[u8]>`: getters that read the octets in place,
//!   and setters when the buffer is `AsMut<[u8]>`;
//! - a **representation** (`Repr`): a plain value with `parse`, `buffer_len` and `emit`;
//! - `Display`, for traces.
//!
//! # When getters may panic
//! Never after `new_checked` has accepted the buffer, whatever its octets are: `new_checked` verifies every
//! length that a getter relies upon. After `new_unchecked`, or after a setter changed a length field, getters may
//! panic until `check` has accepted the view. No octets ever cause undefined behaviour: this crate has no `unsafe`.
//!
//! # When getters are meaningful
//! `new_checked` looks at lengths only, so that an error can still be reported about a packet whose fields are
//! wrong. Validity (versions, checksums, reserved values) has its own functions: [`ipv4::sanity`],
//! [`ipv6::sanity`], [`ndp::validate`], each `verify_checksum`, and each `Repr::parse`.
//!
//! # When `emit` may panic
//! When the buffer is shorter than `buffer_len`. Nothing else panics; a length that does not fit its field is
//! documented at the field.
#![forbid(unsafe_code)]

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
