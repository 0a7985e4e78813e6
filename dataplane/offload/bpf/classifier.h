/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Classifier: decides whether the kernel keeps a frame or user space gets it. The XDP program, the tcx
 * program and the socket filter share it. Its twin in Rust is src/classifier/twin.rs; a property test
 * compares both.
 */
#ifndef MILLRACE_CLASSIFIER_H
#define MILLRACE_CLASSIFIER_H

#include "helpers.h"

#define VID_MASK 0x0fff

/* Verdicts, in the order of the counters in src/counters.rs. */
enum verdict {
	USER_SPACE,
	OTHER_ETHERTYPE,
	NOT_OURS,
	LOCAL,
	MULTICAST,
	VLAN,
};

/* VLAN tags in native byte order. An absent tag is all zero. */
struct vlan_stack {
	__u16 outer_tpid, outer_vid, inner_tpid, inner_vid;
};

/* Settings of a port: eight bytes, so that a change is one store. */
struct config {
	__u8 mac[ETH_ALEN];
	__u8 fallback; /* XDP_PASS or XDP_DROP */
	__u8 reserved;
} __attribute__((aligned(8)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __be32);
	__type(value, __u8);
} local4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u8[16]);
	__type(value, __u8);
} local6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, struct vlan_stack);
	__type(value, __u8);
} vlans SEC(".maps");

/* Frame in an XDP program (data, data_end) or in a program with a socket buffer (skb). */
struct frame {
	void *data, *data_end;
	struct __sk_buff *skb;
};

static __always_inline int load(const struct frame *frame, __u32 offset, void *to, const __u32 size)
{
	void *from;

	if (frame->skb)
		return bpf_skb_load_bytes(frame->skb, offset, to, size);
	from = frame->data + offset;
	if (from + size > frame->data_end)
		return -1;
	/* All loaded fields have even offsets. */
	__builtin_memcpy(to, __builtin_assume_aligned(from, 2), size);
	return 0;
}

static __always_inline int is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/* Adds a tag. A tag of VID 0 carries only a priority (802.1Q-2022, 6.9.1): the frame counts as untagged. */
static __always_inline void push_tag(struct vlan_stack *stack, __u16 tpid, __u16 vid)
{
	if (!vid)
		return;
	if (!stack->outer_vid) {
		stack->outer_tpid = tpid;
		stack->outer_vid = vid;
	} else {
		stack->inner_tpid = tpid;
		stack->inner_vid = vid;
	}
}

/* Reads one tag from the frame. A tag cut short stays unread, and *type remains the ethertype of a tag. */
static __always_inline void read_tag(const struct frame *frame, struct vlan_stack *stack, __u32 *offset, __be16 *type)
{
	struct {
		__be16 tci, next;
	} tag;

	if (!is_tag(*type) || load(frame, *offset, &tag, sizeof(tag)))
		return;
	push_tag(stack, bpf_ntohs(*type), bpf_ntohs(tag.tci) & VID_MASK);
	*type = tag.next;
	*offset += sizeof(tag);
}

/* Reads at most two tags. If the kernel has removed the outer tag, the socket buffer has it. */
static __always_inline void read_tags(const struct frame *frame, struct vlan_stack *stack, __u32 *offset, __be16 *type)
{
	if (frame->skb && frame->skb->vlan_present)
		push_tag(stack, bpf_ntohs(frame->skb->vlan_proto), frame->skb->vlan_tci & VID_MASK);
	else
		read_tag(frame, stack, offset, type);
	read_tag(frame, stack, offset, type);
}

static __always_inline enum verdict classify_ipv4(const struct frame *frame, __u32 offset)
{
	__u8 version_ihl;
	__be32 to;

	if (load(frame, offset + 16, &to, sizeof(to)) || load(frame, offset, &version_ihl, sizeof(version_ihl)))
		return USER_SPACE;
	if ((version_ihl >> 4) != 4 || (version_ihl & 0x0f) < 5)
		return USER_SPACE;
	if ((to & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || to == bpf_htonl(0xffffffff) || !to)
		return MULTICAST;
	return bpf_map_lookup_elem(&local4, &to) ? LOCAL : USER_SPACE;
}

static __always_inline enum verdict classify_ipv6(const struct frame *frame, __u32 offset)
{
	__u8 version, to[16];
	__u32 words[4];

	if (load(frame, offset + 24, to, sizeof(to)) || load(frame, offset, &version, sizeof(version)))
		return USER_SPACE;
	if ((version >> 4) != 6)
		return USER_SPACE;
	if (to[0] == 0xff)
		return MULTICAST;
	__builtin_memcpy(words, to, sizeof(to));
	if ((to[0] == 0xfe && (to[1] & 0xc0) == 0x80) || !(words[0] | words[1] | words[2] | words[3]))
		return LOCAL;
	return bpf_map_lookup_elem(&local6, to) ? LOCAL : USER_SPACE;
}

static __always_inline int is_own(const struct ethhdr *link, const struct config *port)
{
	const __u16 *to = (const void *)link->h_dest, *own = (const void *)port->mac;

	return !((to[0] ^ own[0]) | (to[1] ^ own[1]) | (to[2] ^ own[2]));
}

/* Network header of a frame: its offset, and the ethertype before it. */
struct network {
	__u32 offset;
	__be16 type;
};

static __always_inline enum verdict classify(const struct frame *frame, const struct config *port, struct network *network)
{
	struct vlan_stack stack = {};
	__u32 offset = ETH_HLEN;
	struct ethhdr link;
	__be16 type;
	int group;

	if (load(frame, 0, &link, sizeof(link)))
		return OTHER_ETHERTYPE;
	type = link.h_proto;
	group = link.h_dest[0] & 1;
	read_tags(frame, &stack, &offset, &type);
	network->offset = offset;
	network->type = type;
	if (is_tag(type))
		return VLAN;
	if (stack.outer_vid) {
		if (!bpf_map_lookup_elem(&vlans, &stack))
			return VLAN;
		return group || is_own(&link, port) ? USER_SPACE : NOT_OURS;
	}
	if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6))
		return OTHER_ETHERTYPE;
	if (group)
		return MULTICAST;
	if (!is_own(&link, port))
		return NOT_OURS;
	return type == bpf_htons(ETH_P_IP) ? classify_ipv4(frame, offset) : classify_ipv6(frame, offset);
}

#endif
