/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Host output: packets that the kernel itself sends out of a port with a scheduler. The program redirects
 * them to a TAP device that the router reads. There the kernel cuts GSO packets and completes checksums as
 * for any device. Frames that the router sends by AF_XDP, or by AF_PACKET past the queueing disciplines,
 * don't meet this program. Linux 6.6.
 *
 * A packet of a process in a control group with a queue carries the queue's number to the router, in place of
 * its source MAC address, which is that of the device.
 */
#include "helpers.h"

#define TCX_NEXT (-1)
#define ENODEV 19
#define ICMPV6 58
#define ROUTER_SOLICITATION 133
#define REDIRECT 137

#define SOURCE_MAC 6
#define MOST_QUEUES 4096
/* Deepest level of a principal's control group. */
#define DEEPEST 12

/*
 * Interface index of the TAP device, MAC address of the port's device, and the mark that stands before the
 * number of a queue. dataplane/offload/src/host_output.rs writes it. The kernel sends frames from elsewhere with the
 * mark itself.
 */
struct settings {
	__u32 catcher;
	__u8 mac[ETH_ALEN];
	__u8 mark[4];
	__u16 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* Numbers of queues, by the ids of control groups of version 2. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_QUEUES);
	__type(key, __u64);
	__type(value, __u16);
} queues SEC(".maps");

/* Returns the queue of the sending process: that of its control group, or of a group above it. */
static __always_inline __u16 *queue_of_sender(struct __sk_buff *skb)
{
	__u64 group = bpf_skb_cgroup_id(skb);
	__u16 *queue = bpf_map_lookup_elem(&queues, &group);
	int level;

	for (level = 1; !queue && level <= DEEPEST; level++) {
		group = bpf_skb_ancestor_cgroup_id(skb, level);
		if (!group)
			break;
		queue = bpf_map_lookup_elem(&queues, &group);
	}
	return queue;
}

/*
 * Writes the number of the sender's queue, if it has one. Returns 0 for a frame of another device that has the mark
 * already, as a bridge may forward one.
 */
static __always_inline int mark_queue(struct __sk_buff *skb, const struct settings *own)
{
	__u8 source[ETH_ALEN];
	int i, is_own = 1, is_marked = 1;
	__u16 *queue;

	if (bpf_skb_load_bytes(skb, SOURCE_MAC, source, sizeof(source)))
		return 1;
	for (i = 0; i < ETH_ALEN; i++)
		is_own &= source[i] == own->mac[i];
	for (i = 0; i < 4; i++)
		is_marked &= source[i] == own->mark[i];
	if (!is_own)
		return !is_marked;
	queue = queue_of_sender(skb);
	if (!queue)
		return 1;
	for (i = 0; i < 4; i++)
		source[i] = own->mark[i];
	__builtin_memcpy(source + 4, queue, 2);
	bpf_skb_store_bytes(skb, SOURCE_MAC, source, sizeof(source), 0);
	return 1;
}

/* Whether a packet is ARP or neighbour discovery: a full queue must not cost the port its neighbours. */
static __always_inline int is_neighbour_message(struct __sk_buff *skb)
{
	__u8 next_header, kind;

	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return 1;
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(skb, ETH_HLEN + 6, &next_header, 1) ||
	    next_header != ICMPV6 || bpf_skb_load_bytes(skb, ETH_HLEN + 40, &kind, 1))
		return 0;
	return kind >= ROUTER_SOLICITATION && kind <= REDIRECT;
}

SEC("classifier")
int millrace_host(struct __sk_buff *skb)
{
	__u32 zero = 0, mtu = 0;
	const struct settings *own = bpf_map_lookup_elem(&settings, &zero);

	/*
	 * The TAP device disappears with the process that reads it. Packets then pass, since no process would
	 * send them.
	 */
	if (!own || !own->catcher || is_neighbour_message(skb) ||
	    bpf_check_mtu(skb, own->catcher, &mtu, 0, 0) == -ENODEV || !mark_queue(skb, own))
		return TCX_NEXT;
	return bpf_redirect(own->catcher, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
