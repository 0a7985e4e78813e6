;; Memory and the functions that the router calls at the start, the same for all plugins. The function
;; `millrace_reserve` never reuses memory.
(memory (export "memory") 4)
(global $free (mut i32) (i32.const 1024))
(func (export "millrace_abi") (result i32) i32.const 1)
(func (export "millrace_reserve") (param $bytes i32) (result i32)
  global.get $free
  (global.set $free
    (i32.and (i32.add (i32.add (global.get $free) (local.get $bytes)) (i32.const 7)) (i32.const -8))))
(func (export "millrace_release") (param i32 i32))
(func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)
