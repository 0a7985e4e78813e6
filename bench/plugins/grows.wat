;; Takes memory until the router refuses more.
(func (export "millrace_packets") (param i32)
  (loop $on (br_if $on (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable)
