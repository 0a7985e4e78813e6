/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Host output: packets that the kernel itself sends out of a port with a scheduler. The program redirects
 * them to a TAP device that the router reads. There the kernel cuts GSO packets and completes checksums as
 * for any device. Frames that the router sends by AF_XDP, or by AF_PACKET past the queueing disciplines,
 * don't meet this program. Linux 6.6.
 */
#include "helpers.h"

#define TCX_NEXT (-1)
#define ENODEV 19
#define ICMPV6 58
#define ROUTER_SOLICITATION 133
#define REDIRECT 137

/* Interface index of the TAP device. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} catcher SEC(".maps");

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
	__u32 *to = bpf_map_lookup_elem(&catcher, &zero);

	/*
	 * The TAP device disappears with the process that reads it. Packets then pass, since no process would
	 * send them.
	 */
	if (!to || !*to || is_neighbour_message(skb) || bpf_check_mtu(skb, *to, &mtu, 0, 0) == -ENODEV)
		return TCX_NEXT;
	return bpf_redirect(*to, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
