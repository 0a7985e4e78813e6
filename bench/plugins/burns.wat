;; Runs an empty loop for each packet. The bytes 44 to 47 of the frame hold the number of iterations, at least 1.
(func (export "millrace_packets") (param $call i32)
  (local $at i32) (local $left i32) (local $iterations i32)
  (local.set $at (i32.wrap_i64 (i64.load offset=16 (local.get $call))))
  (local.set $left (i32.load offset=4 (local.get $call)))
  (loop $next
    (local.set $iterations (i32.load offset=44 (i32.wrap_i64 (i64.load offset=8 (local.get $at)))))
    (loop $on
      (br_if $on (local.tee $iterations (i32.sub (local.get $iterations) (i32.const 1)))))
    (local.set $at (i32.add (local.get $at) (i32.const 64)))
    (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1))))))
