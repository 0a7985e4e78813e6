//! Test harness of the conformance cases: a router in this process under a virtual clock, with frames as
//! input and output.
//!
//! # Adding a case
//! Find the module below `tests/conformance` for the group of the case's id. Write a function whose name
//! begins with the id. Most cases are three lines:
//!
//! ```
//! use millrace_packet::DropReason;
//! use millrace_tests::{Ipv4Frame, Scenario};
//!
//! // V4-02: a wrong header checksum.
//! let mut router = Scenario::standard();
//! router.expect_drop("a", &Ipv4Frame::udp().checksum_xor(1), DropReason::Ip4Checksum);
//! ```
//!
//! The standard scenario has three ports. Behind each is a host whose MAC address is known:
//!
//! | port | MAC address         | addresses                     | its host                | host's MAC address  |
//! |------|---------------------|-------------------------------|-------------------------|---------------------|
//! | `a`  | `02:00:00:00:00:0a` | `10.1.0.1/24`, `fd00:1::1/64` | `10.1.0.2`, `fd00:1::2` | `02:00:00:00:00:a2` |
//! | `b`  | `02:00:00:00:00:0b` | `10.2.0.1/24`, `fd00:2::1/64` | `10.2.0.2`, `fd00:2::2` | `02:00:00:00:00:b2` |
//! | `c`  | `02:00:00:00:00:0c` | `10.3.0.1/24`, `fd00:3::1/64` | `10.3.0.2`, `fd00:3::2` | `02:00:00:00:00:c2` |
//!
//! Routes lead to `10.9.0.0/16` and `fd00:9::/48`, with the host behind `b` as next hop. By default a frame
//! ([`Ipv4Frame::udp`], [`Ipv6Frame::udp`]) comes from the host behind `a` and goes to `10.9.0.1` or
//! `fd00:9::1`, so it leaves by `b`. A test can set any field, also to wrong values. Checksums follow the
//! fields unless the test sets them.
//!
//! [`Scenario`] has the checks of most cases: [`expect_drop`](Scenario::expect_drop),
//! [`expect_forwarded`](Scenario::expect_forwarded) (compares every byte of the output with the input),
//! [`expect_error4`](Scenario::expect_error4) and [`expect_error6`](Scenario::expect_error6) (compare the
//! whole error with the packet that it quotes). Other methods are [`send`](Scenario::send),
//! [`take`](Scenario::take), [`advance`](Scenario::advance). [`Scenario::with`] adds to the standard
//! configuration, [`Scenario::new`] starts from another one. When a scenario is dropped, it checks that no
//! packet is unaccounted: every received or created packet was sent, delivered, consumed, dropped for a
//! reason, or is still held.
#![forbid(unsafe_code)]

mod arp_frame;
mod checksum;
mod ipv4_frame;
mod ipv6_frame;
mod link;
mod nd_frame;
mod output;
mod scenario;

pub use arp_frame::ArpFrame;
pub use checksum::{checksum, checksum_parts, transport_checksum4, transport_checksum6};
pub use ipv4_frame::Ipv4Frame;
pub use ipv6_frame::Ipv6Frame;
pub use link::{Frame, Link, RawFrame, station};
pub use nd_frame::NdFrame;
pub use output::{IcmpView, Output};
pub use scenario::{STANDARD, Scenario};
