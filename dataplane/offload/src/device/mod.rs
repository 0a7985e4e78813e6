//! Properties of devices, queried from the kernel by netlink and ethtool.

pub(crate) mod ethtool;
pub(crate) mod facts;
pub(crate) mod genetlink;
pub(crate) mod netlink;
pub(crate) mod rtnetlink;
