//! Work that a host left to its NIC: checksums and segmentation. On a virtual link no NIC does it, so the
//! port does.

pub mod partial_checksum;
pub mod segment;
#[cfg(test)]
mod test_frame;
mod transport_header;
