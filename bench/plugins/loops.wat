(func (export "millrace_packets") (param i32) (loop $on (br $on)))
