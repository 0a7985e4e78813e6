//! Compiles the plugin's eBPF variant.

fn main() {
    println!("cargo::rerun-if-changed=ebpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    if let Err(problem) = millrace_bpf::compile_variant("ebpf/variant.c") {
        println!("cargo::error={problem}");
    }
}
