//! The Linux side: a mirror of the kernel's links, addresses, routes and neighbours.
