/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Runs on live frames without being attached: each frame becomes the next frame of the tape and leaves by one
 * device.
 */
#include "frame_tape.h"

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} send_to SEC(".maps");

SEC("xdp")
int millrace_send(struct xdp_md *context)
{
	return take_from_tape(context) ? bpf_redirect_map(&send_to, 0, XDP_DROP) : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
