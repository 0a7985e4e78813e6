//! Programs and maps in the kernel: system calls, embedded object files, mapped memory, and programs of
//! earlier processes.

pub(crate) mod leftover;
pub(crate) mod longest_path;
pub(crate) mod mapped_map;
pub(crate) mod object;
pub(crate) mod syscall;
