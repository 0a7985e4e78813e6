//! WebAssembly module of a given size that is a plugin. Its functions have a typical mixture of code
//! (arithmetic, loops, branches, memory, calls), and all of them are reachable.

use std::fmt::Write;

use crate::BenchError;

/// Approximate size of one function in the module in bytes.
const FUNCTION: usize = 119;

const MANIFEST: &str = r#"{\"abi\": 1, \"name\": \"bench\", \"version\": \"1.0.0\", \"summary\": \"Drops all.\", \"positions\": [\"late\"]}"#;

/// Function that calls the first function and drops each packet.
const PACKETS: &str = r#"(func (export "millrace_packets") (param $call i32) (local $at i32) (local $left i32)
  (local.set $at (i32.wrap_i64 (i64.load offset=16 (local.get $call))))
  (local.set $left (i32.load offset=4 (local.get $call)))
  (loop $next
    (drop (call 4 (i32.const 0) (local.get $left)))
    (i32.store8 offset=48 (local.get $at) (i32.const 1))
    (local.set $at (i32.add (local.get $at) (i32.load16_u offset=2 (local.get $call))))
    (local.set $left (i32.sub (local.get $left) (i32.const 1)))
    (br_if $next (local.get $left))))"#;

/// Returns a plugin of about the given number of bytes.
pub(super) fn of_about(bytes: usize) -> Result<Vec<u8>, BenchError> {
    let wasm = wat::parse_str(text(bytes / FUNCTION));
    wasm.map_err(|error| super::failed("write the module", error))
}

fn text(functions: usize) -> String {
    let mut text = format!(
        r#"(module (@custom "millrace.manifest" "{MANIFEST}")
  (memory (export "memory") 4)
  (func (export "millrace_abi") (result i32) i32.const 1)
  (func (export "millrace_reserve") (param i32) (result i32) i32.const 4096)
  (func (export "millrace_release") (param i32 i32))
  (func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)
"#
    );
    for number in 0..functions {
        // Each function calls the next one, up to eight functions deep.
        let next = if number % 8 == 7 || number + 1 == functions { None } else { Some(4 + number + 1) };
        function(&mut text, number, next);
    }
    text + PACKETS + ")"
}

fn function(text: &mut String, number: usize, next: Option<usize>) {
    let call = next.map_or("(local.get $sum)".to_owned(), |next| {
        format!("(call {next} (local.get $from) (local.get $sum))")
    });
    // Writing to a string can't fail.
    let _ = write!(
        text,
        r#"(func (param $from i32) (param $count i32) (result i32) (local $sum i32) (local $wide i64)
  (if (i32.gt_u (local.get $count) (i32.const 16)) (then (local.set $count (i32.const 16))))
  (block $done
    (loop $again
      (br_if $done (i32.eqz (local.get $count)))
      (local.set $wide (i64.mul (i64.load offset={offset} (local.get $from)) (i64.const {number})))
      (local.set $sum (i32.xor (i32.rotl (local.get $sum) (i32.const 5)) (i32.wrap_i64 (local.get $wide))))
      (i32.store offset={offset} (local.get $from) (local.get $sum))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $again)))
  {call})
"#,
        offset = 8192 + number * 8,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_a_plugin_of_about_the_wanted_length() {
        let wasm = of_about(100_000).unwrap();
        assert!((80_000..120_000).contains(&wasm.len()), "{}", wasm.len());
        assert_eq!(millrace_plugin::wasm::inspect(&wasm).unwrap().manifest.name, "bench");
    }
}
