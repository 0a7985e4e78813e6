//! Programs and maps in the kernel: system calls, embedded objects, mapped memory, and earlier processes'
//! programs.

pub(crate) mod leftover;
pub(crate) mod longest_way;
pub(crate) mod mapped_map;
pub(crate) mod object;
pub(crate) mod syscall;
