(func (export "millrace_packets") (param i32) unreachable)
