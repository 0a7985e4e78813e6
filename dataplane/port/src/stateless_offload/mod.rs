//! Stateless offloads in software: checksums and segmentation that a host left to its NIC. On a virtual link
//! no NIC does this work, so the port does.

pub mod partial_checksum;
pub mod segment;
#[cfg(test)]
mod test_frame;
mod transport_header;
