//! Injection of frames into the kernel by running an XDP program on them (`BPF_PROG_TEST_RUN` with live
//! frames, Linux 5.18).

mod anchor;
mod frame_tape;
mod handback;
mod live_run;
mod sender;
mod sink;
mod source;
mod template;

pub use handback::KernelHandback;
pub use sender::BatchSender;
pub use sink::FrameSink;
pub use source::{Flows, FrameSource};

#[cfg(test)]
mod handback_test;
#[cfg(test)]
mod sender_test;
#[cfg(test)]
mod source_test;
