//! Compiles the plugin's form for the driver.

fn main() {
    println!("cargo::rerun-if-changed=driver");
    println!("cargo::rerun-if-env-changed=CLANG");
    millrace_bpf::inputs().iter().for_each(|path| println!("cargo::rerun-if-changed={path}"));
    if let Err(problem) = millrace_bpf::compile_form("driver/form.c") {
        println!("cargo::error={problem}");
    }
}
