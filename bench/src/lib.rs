//! Benchmarks, each beside a peer.
