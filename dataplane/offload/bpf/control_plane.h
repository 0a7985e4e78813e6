/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Control-plane policing: each class of packets for the router itself enters the kernel at a rate of its own,
 * so that a flood loses packets of its own class only. Packets that the kernel gets for other receivers, or
 * for none here, are not policed. dataplane/pipeline/src/punt/control_plane.rs does the same for ports
 * without such a program.
 */
#ifndef MILLRACE_CONTROL_PLANE_H
#define MILLRACE_CONTROL_PLANE_H

#include "classifier.h"
#include "policer.h"

#define ETH_LLC_MOST 1500
#define ETHERTYPE_LLDP 0x88cc
#define ETHERTYPE_SLOW 0x8809
#define ETHERTYPE_EAPOL 0x888e

#define IP_ICMP 1
#define IP_IGMP 2
#define IP_TCP 6
#define IP_UDP 17
#define IP_ICMPV6 58
#define IP_EIGRP 88
#define IP_OSPF 89
#define IP_PIM 103
#define IP_VRRP 112
#define ND_FIRST 133
#define ND_LAST 137
#define OFFSET_MASK 0x1fff

#define PORT_BGP 179
#define PORT_RIP 520
#define PORT_RIPNG 521
#define PORT_LDP 646
#define PORT_BFD 3784
#define PORT_BFD_ECHO 3785
#define PORT_BFD_MULTIHOP 4784

/*
 * Socket states that don't prove the sender's address: a listener, and a request that waits for the last
 * handshake packet.
 */
#define SOCKET_LISTENS 10
#define SOCKET_REQUESTED 12

/* Classes, in the order of `ControlClass` in foundation/packet/src/control_class.rs. */
enum control_class {
	ESTABLISHED,
	BGP,
	OSPF,
	ROUTING,
	ICMP,
	OPTIONS,
	NEIGHBOURS,
	OTHER,
	CLASSES,
	NOT_POLICED = CLASSES,
};

/*
 * Token buckets of the classes. A packet costs as much as a byte in the buckets of filters; at a cost of zero
 * all packets pass.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES);
	__type(key, __u32);
	__type(value, struct policer);
} control_plane SEC(".maps");

/* Arguments of the kernel's connection lookup. */
union connection {
	struct {
		__be32 from, to;
		__be16 source, destination;
	} ipv4;
	struct {
		__u8 from[16], to[16];
		__be16 source, destination;
	} ipv6;
};

/*
 * Whether the packet belongs to a TCP connection of the kernel. A flooder doesn't know the peer's port.
 */
static __always_inline int is_established(void *context, union connection *connection, const __u32 size)
{
	struct bpf_sock *found = bpf_skc_lookup_tcp(context, connection, size, BPF_F_CURRENT_NETNS, 0);
	__u32 state;

	if (!found)
		return 0;
	state = found->state;
	bpf_sk_release(found);
	return state != SOCKET_LISTENS && state != SOCKET_REQUESTED;
}

static __always_inline enum control_class class_of_ports(__u8 protocol, __u16 source, __u16 destination)
{
	if (protocol == IP_TCP)
		return source == PORT_BGP || destination == PORT_BGP ? BGP : OTHER;
	switch (destination) {
	case PORT_RIP:
	case PORT_RIPNG:
	case PORT_LDP:
	case PORT_BFD:
	case PORT_BFD_ECHO:
	case PORT_BFD_MULTIHOP:
		return ROUTING;
	default:
		return OTHER;
	}
}

/* Returns the class of a packet by its protocol alone. */
static __always_inline enum control_class class_of_protocol(__u8 protocol)
{
	switch (protocol) {
	case IP_OSPF:
		return OSPF;
	case IP_EIGRP:
	case IP_PIM:
	case IP_VRRP:
		return ROUTING;
	case IP_ICMP:
	case IP_ICMPV6:
		return ICMP;
	default:
		return OTHER;
	}
}

static __always_inline enum control_class class_of_ipv4(void *context, const struct frame *frame, __u32 offset)
{
	union connection connection = {};
	__u8 version_ihl, protocol;
	__be16 fragment;

	if (load(frame, offset + 16, &connection.ipv4.to, 4) || load(frame, offset + 12, &connection.ipv4.from, 4) ||
	    load(frame, offset, &version_ihl, 1) || load(frame, offset + 9, &protocol, 1) ||
	    load(frame, offset + 6, &fragment, 2))
		return OTHER;
	/*
	 * Link-local multicast is for the router. Packets to other multicast groups may be in transit.
	 */
	if ((connection.ipv4.to & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) &&
	    (connection.ipv4.to & bpf_htonl(0xffffff00)) != bpf_htonl(0xe0000000))
		return NOT_POLICED;
	if (version_ihl != 0x45 || protocol == IP_IGMP)
		return OPTIONS;
	if ((protocol != IP_TCP && protocol != IP_UDP) || (fragment & bpf_htons(OFFSET_MASK)))
		return class_of_protocol(protocol);
	if (load(frame, offset + 20, &connection.ipv4.source, 2) || load(frame, offset + 22, &connection.ipv4.destination, 2))
		return OTHER;
	if (protocol == IP_TCP && is_established(context, &connection, sizeof(connection.ipv4)))
		return ESTABLISHED;
	return class_of_ports(protocol, bpf_ntohs(connection.ipv4.source), bpf_ntohs(connection.ipv4.destination));
}

static __always_inline enum control_class class_of_ipv6(void *context, const struct frame *frame, __u32 offset)
{
	union connection connection = {};
	__u8 next, hop_limit, type;

	if (load(frame, offset + 24, connection.ipv6.to, 16) || load(frame, offset + 8, connection.ipv6.from, 16) ||
	    load(frame, offset + 6, &next, 1) || load(frame, offset + 7, &hop_limit, 1))
		return OTHER;
	if (connection.ipv6.to[0] == 0xff && (connection.ipv6.to[1] & 0x0f) > 2)
		return NOT_POLICED;
	/* Hop-by-hop options, Router Alert among them. */
	if (!next)
		return OPTIONS;
	/* Valid neighbour discovery comes from the link, with a hop limit of 255 (RFC 4861, 6.1 and 7.1). */
	if (next == IP_ICMPV6 && hop_limit == 255 && !load(frame, offset + 40, &type, 1) && type >= ND_FIRST &&
	    type <= ND_LAST)
		return NEIGHBOURS;
	if (next != IP_TCP && next != IP_UDP)
		return class_of_protocol(next);
	if (load(frame, offset + 40, &connection.ipv6.source, 2) || load(frame, offset + 42, &connection.ipv6.destination, 2))
		return OTHER;
	if (next == IP_TCP && is_established(context, &connection, sizeof(connection.ipv6)))
		return ESTABLISHED;
	return class_of_ports(next, bpf_ntohs(connection.ipv6.source), bpf_ntohs(connection.ipv6.destination));
}

static __always_inline enum control_class class_of_others(__be16 type)
{
	__u16 number = bpf_ntohs(type);

	if (number == ETH_P_ARP)
		return NEIGHBOURS;
	/* A length: LLC frames of IS-IS and spanning tree protocols. */
	if (number <= ETH_LLC_MOST)
		return ROUTING;
	/* Headers after a third tag are not read: kernel devices may receive such frames. */
	return is_tag(type) || number == ETHERTYPE_LLDP || number == ETHERTYPE_SLOW || number == ETHERTYPE_EAPOL ? OTHER :
														   NOT_POLICED;
}

/*
 * Whether a packet is for an address of the router, multicast or broadcast, whatever its frame's link header.
 */
static __always_inline int is_for_router(const struct frame *frame, const struct network *network)
{
	__u8 to6[16];
	__be32 to4;

	if (network->type == bpf_htons(ETH_P_IP)) {
		if (load(frame, network->offset + 16, &to4, sizeof(to4)))
			return 0;
		return (to4 & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || to4 == bpf_htonl(0xffffffff) || !to4 ||
		       bpf_map_lookup_elem(&local4, &to4);
	}
	if (load(frame, network->offset + 24, to6, sizeof(to6)))
		return 0;
	return to6[0] == 0xff || bpf_map_lookup_elem(&local6, to6);
}

/*
 * Returns the verdict by which a frame is policed. A frame of another VLAN or to another station whose packet
 * is for the router itself gets the verdict of an untagged frame to the port's MAC address: kernel devices
 * above the port (VLANs, bridges) receive such frames.
 */
static __always_inline enum verdict behind_the_port(const struct frame *frame, enum verdict verdict,
						    const struct network *network)
{
	__u8 first;

	if (verdict != VLAN && verdict != NOT_OURS)
		return verdict;
	if (network->type != bpf_htons(ETH_P_IP) && network->type != bpf_htons(ETH_P_IPV6))
		return OTHER_ETHERTYPE;
	if (is_for_router(frame, network))
		return LOCAL;
	if (verdict == NOT_OURS || load(frame, 0, &first, sizeof(first)) || !(first & 1))
		return verdict;
	return MULTICAST;
}

/* Returns the class of a frame that classify() gave to the kernel, together with its network header. */
static __always_inline enum control_class class_of(void *context, const struct frame *frame, enum verdict verdict,
						   const struct network *network)
{
	switch (behind_the_port(frame, verdict, network)) {
	case LOCAL:
	case MULTICAST:
		return network->type == bpf_htons(ETH_P_IP) ? class_of_ipv4(context, frame, network->offset) :
							      class_of_ipv6(context, frame, network->offset);
	case OTHER_ETHERTYPE:
		return class_of_others(network->type);
	default:
		return NOT_POLICED;
	}
}

/* Whether a packet of a class may enter the kernel. */
static __always_inline int may_enter(__u32 class)
{
	struct policer *bucket = bpf_map_lookup_elem(&control_plane, &class);

	return !bucket || !bucket->byte || takes(bucket, 1);
}

#endif
