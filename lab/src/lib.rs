//! Hosts, routers and links in network namespaces, from one file.
