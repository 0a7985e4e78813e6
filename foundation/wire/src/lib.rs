//! Protocol headers: checked views, representations and checksums.
