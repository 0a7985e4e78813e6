//! Routes, next hops, neighbours, TTL, fragments and ICMP errors.
