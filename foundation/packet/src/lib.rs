//! Packet memory: pool, packets as chains of frames, batches, flow keys and drop reasons.
