//! Cases of IPv4 and ICMP.

mod broadcast;
mod forwarding;
mod fragment;
mod icmp_error;
mod martian;
mod multicast;
mod options;
mod own_address;
mod tiny_fragments;
mod ttl;
mod unreachable;
mod v4;
