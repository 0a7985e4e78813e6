//! Compiles the plugin's eBPF variant.

fn main() {
    println!("cargo::rerun-if-changed=driver");
    println!("cargo::rerun-if-env-changed=CLANG");
    if let Err(problem) = millrace_bpf::compile_form("driver/form.c") {
        println!("cargo::error={problem}");
    }
}
