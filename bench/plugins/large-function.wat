(func (param $from i32) (param $count i32) (result i32) (local $sum i32) (local $wide i64)
  (if (i32.gt_u (local.get $count) (i32.const 16)) (then (local.set $count (i32.const 16))))
  (block $done
    (loop $again
      (br_if $done (i32.eqz (local.get $count)))
      (local.set $wide (i64.mul (i64.load offset=OFFSET (local.get $from)) (i64.const NUMBER)))
      (local.set $sum (i32.xor (i32.rotl (local.get $sum) (i32.const 5)) (i32.wrap_i64 (local.get $wide))))
      (i32.store offset=OFFSET (local.get $from) (local.get $sum))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $again)))
  RESULT)
