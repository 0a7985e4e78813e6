//! Packets that plugins hold or change, at gates of every position.

mod held_packets;
mod queue_gates;
mod verdicts;
mod writing_plugins;
