;; What stands between the router and a plugin's functions: one call of `run` lasts as long as the instance, so that a
;; call of the plugin needs no stack of its own. `next` says what is to be done, and knows by being called again that it
;; is done. `pause` does nothing, but asks on entry whether time is up: `next` sets the clock so that it is.
(module
  (import "router" "next" (func $next (result i32 i64)))
  (import "plugin" "packets" (func $packets (param i32)))
  (import "plugin" "flow_ended" (func $flow_ended (param i32)))
  (import "plugin" "periodic" (func $periodic (param i64)))
  (func $pause)
  (func (export "run")
    (local $what i32)
    (local $argument i64)
    loop $again
      call $next
      local.set $argument
      local.set $what
      block $leave
        block $periodic_is_due
          block $flow_has_ended
            block $packets_wait
              block $nothing
                local.get $what
                br_table $nothing $packets_wait $flow_has_ended $periodic_is_due $leave
              end
              call $pause
              br $again
            end
            local.get $argument
            i32.wrap_i64
            call $packets
            br $again
          end
          local.get $argument
          i32.wrap_i64
          call $flow_ended
          br $again
        end
        local.get $argument
        call $periodic
        br $again
      end
    end))
