//! What a plugin and the router say to each other.
