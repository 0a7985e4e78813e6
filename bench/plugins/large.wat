;; Calls the first of the functions below and drops each packet. All of them are reachable, and have a typical
;; mixture of code: arithmetic, loops, branches, memory, calls. They are called by number, without names, which
;; would only lengthen the module.
(func (export "millrace_packets") (param $call i32) (local $at i32) (local $left i32)
  (local.set $at (i32.wrap_i64 (i64.load offset=16 (local.get $call))))
  (local.set $left (i32.load offset=4 (local.get $call)))
  (loop $next
    (drop (call 1 (i32.const 0) (local.get $left)))
    (i32.store8 offset=48 (local.get $at) (i32.const 1))
    (local.set $at (i32.add (local.get $at) (i32.load16_u offset=2 (local.get $call))))
    (local.set $left (i32.sub (local.get $left) (i32.const 1)))
    (br_if $next (local.get $left))))
FUNCTIONS
