//! Frames put into the kernel by running an XDP program on them (`BPF_PROG_TEST_RUN` with live frames, Linux 5.18).

mod handback;
mod source;

pub use handback::KernelHandback;
pub use source::{Flows, FrameSource};
