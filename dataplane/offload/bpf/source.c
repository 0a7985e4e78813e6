/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Traffic generator: turns each live frame into a varied copy of a template and sends it out of a device. The
 * sink at the other end counts and drops every arriving frame.
 */
#include "helpers.h"

#define SLOTS 256
#define SLOT_BYTES 4064
#define FARTHEST 255

/*
 * Template of a frame, with offsets from the start of the frame in bytes; 0 means absent. Rust writes it:
 * src/injector/template.rs.
 */
struct slot {
	__u32 length;
	__u16 address, port, payload, address_sum, port_sum, reserved[5];
	__u64 reserved2;
	__u8 bytes[SLOT_BYTES];
};

struct control {
	__u32 ifindex, templates, addresses, ports, sequence, timestamp;
	__u64 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

struct arrived {
	__u64 frames, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct arrived);
} arrived SEC(".maps");

/* Device out of which millrace_pass, the smallest program that forwards, sends every frame. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} pass_to SEC(".maps");

/* Returns `size` bytes of a frame from an offset below 256; null when the frame is too short. */
static __always_inline void *reach(struct xdp_md *context, __u32 offset, const __u32 size)
{
	void *at = (void *)(long)context->data + (offset & FARTHEST);

	return at + size > (void *)(long)context->data_end ? 0 : at;
}

/* Adds to a 16-bit field. Returns the one's complement difference of the sums (RFC 1624, eqn. 3). */
static __always_inline __u32 add16(struct xdp_md *context, __u32 offset, __u32 add)
{
	__be16 *field = reach(context, offset, sizeof(*field));
	__u32 difference;

	if (!field)
		return 0;
	difference = (__u16)~bpf_ntohs(*field);
	*field = bpf_htons(bpf_ntohs(*field) + add);
	return difference + bpf_ntohs(*field);
}

static __always_inline __u32 add32(struct xdp_md *context, __u32 offset, __u32 add)
{
	__u8 *field = reach(context, offset, 4);
	__u32 value, difference;

	if (!field)
		return 0;
	value = (__u32)field[0] << 24 | field[1] << 16 | field[2] << 8 | field[3];
	difference = (__u16)~(value >> 16) + (__u32)(__u16)~value;
	value += add;
	field[0] = value >> 24;
	field[1] = value >> 16;
	field[2] = value >> 8;
	field[3] = value;
	return difference + (value >> 16) + (value & 0xffff);
}

/* Overwrites 8 bytes that are zero in the template. Returns the difference of the sums. */
static __always_inline __u32 put64(struct xdp_md *context, __u32 offset, __u64 value)
{
	__u8 *field = reach(context, offset, 8);
	int i;

	if (!field)
		return 0;
#pragma clang loop unroll(full)
	for (i = 0; i < 8; i++)
		field[i] = value >> (56 - 8 * i);
	return (value >> 48) + (value >> 32 & 0xffff) + (value >> 16 & 0xffff) + (value & 0xffff);
}

static __always_inline void adjust_sum(struct xdp_md *context, __u32 offset, __u32 difference)
{
	__be16 *field = reach(context, offset, sizeof(*field));
	__u32 sum;

	if (!field || !*field)
		return;
	sum = (__u16)~bpf_ntohs(*field) + difference;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (__u16)~sum;
	*field = bpf_htons(sum ? sum : 0xffff);
}

static __always_inline void vary(struct xdp_md *context, struct slot *slot, struct control *run, __u64 number)
{
	__u32 address = 0, port = 0, payload = 0;

	if (slot->address && run->addresses > 1)
		address = add32(context, slot->address, number % run->addresses);
	if (slot->port && run->ports > 1) {
		__u64 turn = run->addresses > 1 ? number / run->addresses : number;

		port = add16(context, slot->port, turn % run->ports);
	}
	if (slot->payload && run->sequence)
		payload += put64(context, slot->payload, number);
	if (slot->payload && run->timestamp)
		payload += put64(context, slot->payload + 8, bpf_ktime_get_ns());
	if (slot->address_sum && address)
		adjust_sum(context, slot->address_sum, address);
	if (slot->port_sum && (address || port || payload))
		adjust_sum(context, slot->port_sum, address + port + payload);
}

SEC("xdp")
int millrace_source(struct xdp_md *context)
{
	__u32 zero = 0, turn, length, have = linear_length(context);
	struct control *run = bpf_map_lookup_elem(&control, &zero);
	struct slot *slot;
	__u64 number;

	if (!run || !run->templates)
		return XDP_DROP;
	number = run->number++;
	turn = number % run->templates;
	slot = bpf_map_lookup_elem(&slots, &turn);
	if (!slot)
		return XDP_DROP;
	length = slot->length;
	if (length < ETH_HLEN || length > SLOT_BYTES)
		return XDP_DROP;
	if (length != have && bpf_xdp_adjust_tail(context, (int)length - (int)have))
		return XDP_DROP;
	if (bpf_xdp_store_bytes(context, 0, slot->bytes, length))
		return XDP_DROP;
	vary(context, slot, run, number);
	return bpf_redirect(run->ifindex, 0);
}

SEC("xdp")
int millrace_sink(struct xdp_md *context)
{
	__u32 zero = 0;
	struct arrived *count = bpf_map_lookup_elem(&arrived, &zero);

	if (count) {
		count->frames++;
		count->bytes += linear_length(context);
	}
	return XDP_DROP;
}

SEC("xdp")
int millrace_pass(struct xdp_md *context)
{
	(void)context;
	return bpf_redirect_map(&pass_to, 0, XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
