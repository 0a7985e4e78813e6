;; A plugin whose settings say what it does to packets: `{"script":"…"}`, four characters for each step: operation, packet, and two
;; numbers. A character stands for 0 to 31, from `]` on. A call goes through eight steps, and goes on where the last one ended.
(module
  (@custom "millrace.manifest" "MANIFEST")
  (import "millrace" "packet_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "millrace" "packet_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "millrace" "packet_resize" (func $resize (param i32 i32) (result i32)))
  (import "millrace" "packet_make" (func $make (param i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (global $reserved (mut i32) (i32.const 2048))
  (global $script (mut i32) (i32.const 0))
  (global $end (mut i32) (i32.const 0))
  (global $at (mut i32) (i32.const 0))
  (global $made (mut i32) (i32.const 0))

  (func (export "millrace_abi") (result i32) i32.const 1)
  (func (export "millrace_reserve") (param $bytes i32) (result i32)
    global.get $reserved
    (global.set $reserved
      (i32.and (i32.add (i32.add (global.get $reserved) (local.get $bytes)) (i32.const 7)) (i32.const -8))))
  (func (export "millrace_release") (param i32 i32))
  ;; The script begins behind `{"script":"` and ends before `"}`.
  (func (export "millrace_init") (param $settings i32) (param $bytes i32) (result i32)
    (global.set $script (i32.add (local.get $settings) (i32.const 11)))
    (global.set $at (global.get $script))
    (global.set $end (i32.add (local.get $settings) (i32.sub (local.get $bytes) (i32.const 2))))
    i32.const 0)

  (func $next (result i32)
    (i32.sub (i32.load8_u (global.get $at)) (i32.const 0x5d))
    (global.set $at (i32.add (global.get $at) (i32.const 1))))

  (func (export "millrace_packets") (param $call i32)
    (local $steps i32) (local $operation i32) (local $packet i32) (local $a i32) (local $b i32)
    (local $count i32) (local $description i32) (local $number i32)
    (local.set $steps (i32.const 8))
    (local.set $count (i32.load offset=4 (local.get $call)))
    (block $done
      (loop $step
        (br_if $done (i32.eqz (local.get $steps)))
        (local.set $steps (i32.sub (local.get $steps) (i32.const 1)))
        (if (i32.gt_s (i32.add (global.get $at) (i32.const 4)) (global.get $end))
          (then (global.set $at (global.get $script))))
        (br_if $done (i32.gt_s (i32.add (global.get $at) (i32.const 4)) (global.get $end)))
        (local.set $operation (i32.and (call $next) (i32.const 7)))
        (local.set $packet (i32.rem_u (call $next) (i32.add (local.get $count) (i32.const 1))))
        (local.set $a (call $next))
        (local.set $b (call $next))
        ;; Behind the last packet there is none: functions get a number that they don't know, and verdicts no description.
        (local.set $number (i32.const 999))
        (local.set $description (i32.const 512))
        (if (i32.lt_u (local.get $packet) (local.get $count))
          (then
            (local.set $description
              (i32.add
                (i32.wrap_i64 (i64.load offset=16 (local.get $call)))
                (i32.mul (local.get $packet) (i32.const 64))))
            (local.set $number (i32.load16_u offset=30 (local.get $description)))))
        (block $b7 (block $b6 (block $b5 (block $b4 (block $b3 (block $b2 (block $b1 (block $b0
          (br_table $b0 $b1 $b2 $b3 $b4 $b5 $b6 $b7 (local.get $operation)))
          ;; 0: resize, by -124 to 155 bytes.
          (drop (call $resize (local.get $number)
            (i32.add (i32.sub (i32.mul (local.get $a) (i32.const 8)) (i32.const 124)) (local.get $b))))
          (br $step))
          ;; 1: write the script itself, anywhere in the packet.
          (drop (call $write (local.get $number) (i32.mul (local.get $a) (i32.const 4)) (global.get $script) (local.get $b)))
          (br $step))
          ;; 2: verdict, reason, target.
          (i32.store8 offset=48 (local.get $description) (i32.and (local.get $a) (i32.const 15)))
          (i32.store8 offset=49 (local.get $description) (local.get $b))
          (i32.store16 offset=50 (local.get $description) (i32.shr_u (local.get $b) (i32.const 2)))
          (br $step))
          ;; 3: until when it is held, or which ports.
          (i64.store offset=56 (local.get $description)
            (i64.add (i64.load offset=8 (local.get $call))
              (i64.extend_i32_u (i32.mul (local.get $b) (i32.const 1000000)))))
          (br $step))
          ;; 4: a byte of the window.
          (i32.store8
            (i32.add (i32.and (i32.wrap_i64 (i64.load offset=8 (local.get $description))) (i32.const 0xffff))
              (i32.mul (local.get $a) (i32.const 3)))
            (i32.mul (local.get $b) (i32.const 8)))
          (br $step))
          ;; 5: read.
          (drop (call $read (local.get $number) (i32.mul (local.get $a) (i32.const 8)) (i32.const 1024)
            (i32.mul (local.get $b) (i32.const 32))))
          (br $step))
          ;; 6: a packet of its own, a few at most: each comes by here again.
          (if (i32.lt_u (global.get $made) (i32.const 6))
            (then
              (global.set $made (i32.add (global.get $made) (i32.const 1)))
              (drop (call $make
                (i32.add (i32.wrap_i64 (i64.load offset=8 (local.get $description))) (i32.const 14))
                (i32.mul (local.get $a) (i32.const 8)) (i32.and (local.get $b) (i32.const 7))))))
          (br $step))
        ;; 7: a trap, now and then.
        (if (i32.eq (local.get $a) (local.get $b)) (then unreachable))
        (br $step)))))
