/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Flow cache: the XDP program forwards plain flows that a worker has classified, until something changes.
 * Other packets are upcalls: they go to the worker unchanged. The twin of the parsing and the rewriting in
 * Rust is src/flow_cache/forward_twin.rs; a property test compares both.
 *
 * One cache serves all ports of a router: its maps are pinned in a private file system, where the programs of
 * each port find them (src/flow_cache/directory.rs).
 */
#ifndef MILLRACE_FLOW_CACHE_H
#define MILLRACE_FLOW_CACHE_H

#include "helpers.h"
#include "policer.h"

/* Programs without shared maps need no such file system. */
#ifdef ALONE
#define PINNING 0
#else
#define PINNING 1
#endif
/* Placeholders: user space sets the real sizes when it makes the maps (src/flow_cache/mod.rs). */
#define FLOWS 1
#define BUCKETS 1
/* Words of a bucket, which fills a cache line. */
#define WORDS 16
#define TREATMENTS 65536
/* Number of 32-bit words of a key, all of which the hash can use. */
#define HASHED 10
/* Maximum number of eBPF variants of plugins, one for each instance with a variant. */
#define FORMS 256
/* Maximum number of ports with offloaded flows; a port's number in the router is below it. */
#define PORTS 256
/* Maximum number of workers of a router. */
#define WORKERS 64
/* Maximum number of receive queues of a port. */
#define RX_QUEUES 64

#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58

#define TCP_LENGTH 20
#define UDP_LENGTH 8
/* Bits of the fragment field that only fragments set: all but the reserved bit and "don't fragment". */
#define FRAGMENT 0x3fff
/* Length of the shortest Ethernet frame, without its check sequence. Shorter frames are padded. */
#define SHORTEST_FRAME 60

/*
 * Maximum number of bytes over which the program completes a partial checksum, and number of bytes per step.
 */
#define LONGEST_SUM 4096
#define SUM_STEP 64

#define GO_UP (-1)
/* Drop during the take-over of a flow from an overloaded worker that still has packets of the flow. */
#define MAKE_WAY (-2)
/* Drop by a filter. */
#define FILTERED (-3)
/* Drop by a policer. */
#define POLICED (-4)
/* Drop by the eBPF variant of a plugin. */
#define FORMED (-5)

/* Verdicts of eBPF variants: include/form.h of foundation/bpf. */
enum form_verdict {
	FORM_PASS,
	FORM_DROP,
	FORM_UP,
};

/* Flow key, equal to FlowKey of foundation/packet byte by byte. */
struct flow_key {
	__u8 source[16], destination[16];
	__u16 source_port, destination_port; /* native byte order */
	__u8 protocol, family;
	__u16 port;
};

/*
 * Bucket of the hash table. Each word names a flow: the lower bits are the flow's number plus one, the upper
 * bits are bits of its hash. 0 is a free word. A search visits all words of the flow's bucket from a start
 * word on, and then, if none is free, a second bucket.
 */
struct bucket {
	__u32 words[WORDS];
} __attribute__((aligned(64)));

/*
 * Flow entry, in one cache line. Entries lie in the order of insertion, not of hashes, since flows that
 * arrive one after the other often do so again. User space changes `version` before and after any other
 * change. A program that finds it unchanged has therefore read a whole entry. src/flow_cache/layout.rs has
 * the same layout.
 */
struct cached_flow {
	struct flow_key key; /* all zero in a free entry */
	__u64 version; /* upper half: generation of validity; lower half: number of changes */
	__u64 bytes;
	__u32 packets; /* wraps */
	__u16 treatment;
	__u8 settled; /* whether no upcall of the flow is in flight, as far as known */
	__u8 reserved;
} __attribute__((aligned(64)));

/* Rarely used part of a flow entry. */
struct aside {
	__u64 last_up; /* the port's upcall count at the flow's last upcall */
	__u64 floor; /* the port's upcall count when the entry came into use */
	__u64 dropped, dropped_bytes;
};

/* Treatment of packets, shared by many flows. It doesn't change while a flow refers to it. */
struct treatment {
	__u16 out; /* output port */
	__u16 mtu;
	__u8 link[2 * ETH_ALEN]; /* destination and source */
	__u16 worker; /* worker whose generation must match */
	__u16 drops; /* whether a filter drops all packets */
	__u16 policer; /* index of the token bucket plus one; 0 for none */
	__u16 form; /* index of the plugin's eBPF variant plus one; 0 for none */
	__u8 reserved[8];
};

/*
 * Upcalls of a port: the number of upcalls, and the number of those that the workers are done with (forwarded
 * or dropped). A flow is forwarded here only while none of its upcalls is in flight, so that no packet
 * overtakes another.
 */
struct way {
	__u64 up, done;
	__u64 overloaded; /* a bit for each receive queue whose worker is overloaded */
	__u8 reserved[40];
} __attribute__((aligned(64)));

/*
 * Upcalls by one receive queue of a port. They are counted here first, and then in their port's struct way.
 */
struct queue_way {
	__u64 up;
	__u64 read[2]; /* used by user space only */
	__u8 reserved[40];
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, PINNING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, POLICERS);
	__type(key, __u32);
	__type(value, struct policer);
} policers SEC(".maps");

struct sent {
	__u64 packets, bytes;
};

/* Port of the program, and parameters of the hash table. */
struct place {
	__u16 port;
	__u16 cached; /* whether the flow cache is on for the port */
	__u32 mask; /* number of buckets, a power of two, minus one */
	__u32 numbers; /* mask of the lower bits of a word */
	__u32 secrets[HASHED];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, PINNING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, PINNING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct cached_flow);
} cached_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, PINNING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct aside);
} asides SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, PINNING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TREATMENTS);
	__type(key, __u32);
	__type(value, struct treatment);
} treatments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, PINNING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WORKERS);
	__type(key, __u32);
	__type(value, __u64);
} generations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, PINNING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, PINNING);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PORTS * RX_QUEUES);
	__type(key, __u32);
	__type(value, struct queue_way);
} queue_ways SEC(".maps");

/* Programs with multi-buffer frames can't share such a map with other programs. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(pinning, PINNING);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps"), devices_sg SEC(".maps");

/* One map for each kind of program, as for devices. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(pinning, PINNING);
	__uint(max_entries, FORMS);
	__type(key, __u32);
	__type(value, __u32);
} forms SEC(".maps"), forms_sg SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(pinning, PINNING);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, struct sent);
} sent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct place);
} place SEC(".maps");

struct ipv4_header {
	__u8 version_length, service;
	__be16 total_length, identification, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__u8 source[4], destination[4];
};

struct ipv6_header {
	__be32 version_class_label;
	__be16 payload_length;
	__u8 next_header, hop_limit;
	__u8 source[16], destination[16];
};

struct transport_header {
	__be16 source_port, destination_port;
	__u16 udp_length, udp_checksum;
	__u32 acknowledged;
	__u16 flags, window, tcp_checksum, urgent;
};

/* Parsed packet that may be forwarded here. */
struct candidate {
	struct flow_key key __attribute__((aligned(8)));
	__u32 network_length;
	int partial; /* whether the checksum is partial */
};

/* Adds the 32-bit words of an aligned header to a sum. */
static __always_inline __u64 add_words(__u64 sum, const void *from, const int count)
{
	const __u32 *words = from;
	int i;

#pragma clang loop unroll(full)
	for (i = 0; i < count; i++)
		sum += words[i];
	return sum;
}

static __always_inline void copy_words(void *to, const void *from, const int count)
{
	const __u32 *words = from;
	__u32 *copies = to;
	int i;

#pragma clang loop unroll(full)
	for (i = 0; i < count; i++)
		copies[i] = words[i];
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Whether a frame of this length holds just this packet, padded at most to the shortest frame. */
static __always_inline int fits(__u64 frame_length, __u32 network_length)
{
	__u64 wanted = ETH_HLEN + network_length;

	return frame_length == wanted || (frame_length <= SHORTEST_FRAME && frame_length > wanted);
}

/*
 * Reads the transport ports. A checksum equal to the folded pseudo header is a partial one that the sender
 * left to its NIC (dataplane/port/src/stateless_offload/partial_checksum.rs).
 */
static __always_inline int read_transport(struct candidate *packet, const void *header, const void *end, __u32 length,
					  __u64 pseudo)
{
	const struct transport_header *transport = header;
	__u8 protocol = packet->key.protocol;
	__u16 checksum;

	if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6)
		return 0;
	if (protocol == PROTOCOL_TCP) {
		if (length < TCP_LENGTH || header + TCP_LENGTH > end)
			return GO_UP;
		checksum = transport->tcp_checksum;
	} else if (protocol == PROTOCOL_UDP) {
		if (length < UDP_LENGTH || header + UDP_LENGTH > end)
			return GO_UP;
		checksum = transport->udp_checksum;
	} else {
		return GO_UP;
	}
	if (checksum == fold(pseudo + bpf_htons(protocol) + bpf_htons((__u16)length)))
		packet->partial = 1;
	packet->key.source_port = bpf_ntohs(transport->source_port);
	packet->key.destination_port = bpf_ntohs(transport->destination_port);
	return 0;
}

static __always_inline int read_ipv4(struct candidate *packet, const void *header, const void *end, __u64 length)
{
	const struct ipv4_header *ip = header;

	if (header + sizeof(*ip) > end || ip->version_length != 0x45 || ip->fragment & bpf_htons(FRAGMENT) || ip->ttl <= 1)
		return GO_UP;
	packet->network_length = bpf_ntohs(ip->total_length);
	if (packet->network_length < sizeof(*ip) || !fits(length, packet->network_length) ||
	    fold(add_words(0, ip, sizeof(*ip) / 4)) != 0xffff)
		return GO_UP;
	copy_words(packet->key.source, ip->source, 1);
	copy_words(packet->key.destination, ip->destination, 1);
	packet->key.family = 4;
	packet->key.protocol = ip->protocol;
	return read_transport(packet, header + sizeof(*ip), end, packet->network_length - sizeof(*ip),
			      add_words(0, ip->source, 2));
}

static __always_inline int read_ipv6(struct candidate *packet, const void *header, const void *end, __u64 length)
{
	const struct ipv6_header *ip = header;
	__u32 payload;

	if (header + sizeof(*ip) > end || (ip->version_class_label & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000) ||
	    ip->hop_limit <= 1)
		return GO_UP;
	payload = bpf_ntohs(ip->payload_length);
	packet->network_length = payload + sizeof(*ip);
	if (!payload || !fits(length, packet->network_length))
		return GO_UP;
	copy_words(packet->key.source, ip->source, 4);
	copy_words(packet->key.destination, ip->destination, 4);
	packet->key.family = 6;
	packet->key.protocol = ip->next_header;
	return read_transport(packet, header + sizeof(*ip), end, payload, add_words(0, &packet->key, 8));
}

/*
 * Returns `size` bytes that begin `left` bytes before the end of a packet; null where they exceed the frame.
 * The packet has `length` bytes from `start` on. The mask shows the verifier a bound that always holds.
 */
static __always_inline const void *before_end(const void *start, const void *end, __u32 length, __u32 left, __u32 size)
{
	const void *from;
	__u32 at = length - left;

	asm volatile("" : "+r"(at));
	from = start + (at & (LONGEST_SUM - 1));
	return from + size > end ? 0 : from;
}

/*
 * Returns the unfolded sum of `length` bytes from `start` on; negative if they are too many. The loops count
 * down the remaining bytes, whose bounds the verifier knows. So it need not check each length separately.
 */
static __always_inline __s64 sum_to_end(const void *start, const void *end, __u32 length)
{
	__u32 left = length;
	const void *from;
	__s64 sum = 0;

	if (length >= LONGEST_SUM)
		return -1;
	while (left >= SUM_STEP) {
		from = before_end(start, end, length, left, SUM_STEP);
		if (!from)
			return -1;
		sum = bpf_csum_diff(0, 0, from, SUM_STEP, sum);
		left -= SUM_STEP;
	}
	while (left >= 4) {
		from = before_end(start, end, length, left, 4);
		if (!from)
			return -1;
		sum = bpf_csum_diff(0, 0, from, 4, sum);
		left -= 4;
	}
	sum = (__u32)sum;
	if (left >= 2) {
		from = before_end(start, end, length, left, 2);
		if (!from)
			return -1;
		sum += *(const __u16 *)from;
		left -= 2;
	}
	if (left) {
		from = before_end(start, end, length, left, 1);
		if (!from)
			return -1;
		sum += bpf_htons((__u16)(*(const __u8 *)from << 8));
	}
	return sum;
}

/* Completes a partial checksum. The field itself contributes the sum of the pseudo header. */
static __always_inline int complete(const struct candidate *packet, void *data, const void *end)
{
	__u32 transport = packet->key.family == 4 ? ETH_HLEN + sizeof(struct ipv4_header) :
						    ETH_HLEN + sizeof(struct ipv6_header);
	__u32 field = packet->key.protocol == PROTOCOL_TCP ? 16 : 6;
	__u16 *checksum = data + transport + field;
	__s64 sum;

	if ((void *)(checksum + 1) > end)
		return -1;
	sum = sum_to_end(data + transport, end, ETH_HLEN + packet->network_length - transport);
	if (sum < 0)
		return -1;
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	*checksum = ~fold(sum);
	if (!*checksum && packet->key.protocol == PROTOCOL_UDP)
		*checksum = 0xffff;
	return 0;
}

/* Decrements TTL or hop limit with the checksum (RFC 1624), and writes the link header. */
static __always_inline void rewrite(void *data, const __u8 *link, __u8 family)
{
	void *header = data + ETH_HLEN;

	if (family == 4) {
		struct ipv4_header *ip = header;
		__u32 sum = ip->checksum + bpf_htons(0x0100);

		ip->checksum = sum + (sum >= 0xffff);
		ip->ttl--;
	} else {
		struct ipv6_header *ip = header;

		ip->hop_limit--;
	}
	__builtin_memcpy(data, link, 2 * ETH_ALEN);
}

static __always_inline void count_sent(__u32 port, __u64 length)
{
	struct sent *count = bpf_map_lookup_elem(&sent, &port);

	if (!count)
		return;
	count->packets++;
	count->bytes += length;
}

/*
 * Returns the hash of a flow key: products of sums (NH of UMAC, RFC 4418). Without the secrets nobody finds
 * keys that collide more often than others.
 */
static __always_inline __u64 hash_of(const struct flow_key *key, const __u32 *secrets)
{
	const __u32 *words = (const void *)key;
	__u64 sum = (__u64)(__u32)(words[0] + secrets[0]) * (__u32)(words[4] + secrets[4]) +
		    (__u64)(__u32)(words[8] + secrets[8]) * (__u32)(words[9] + secrets[9]);
	int i;

	if (key->family == 6) {
#pragma clang loop unroll(full)
		for (i = 1; i < 4; i++)
			sum += (__u64)(__u32)(words[i] + secrets[i]) * (__u32)(words[i + 4] + secrets[i + 4]);
	}
	/* Final mix of MurmurHash3. */
	sum = (sum ^ sum >> 33) * 0xff51afd7ed558ccd;
	sum = (sum ^ sum >> 33) * 0xc4ceb9fe1a85ec53;
	return sum ^ sum >> 33;
}

static __always_inline int is_of(const struct cached_flow *flow, const struct flow_key *key)
{
	const __u64 *has = (const void *)&flow->key, *wanted = (const void *)key;

	return !((has[0] ^ wanted[0]) | (has[1] ^ wanted[1]) | (has[2] ^ wanted[2]) | (has[3] ^ wanted[3]) |
		 (has[4] ^ wanted[4]));
}

/* Inspected entry, and its version as read before its other fields. */
struct looked {
	__u64 version;
	__u32 slot;
	int is_it; /* whether the entry has the flow's key */
};

/* Returns the entry that a word names, if the word has the bits of this hash. Sets `at`. */
static __always_inline struct cached_flow *look(const struct place *here, const struct flow_key *key, __u64 hash, __u32 word,
						struct looked *at)
{
	struct cached_flow *flow;

	at->is_it = 0;
	if ((word ^ (__u32)hash) & ~here->numbers)
		return 0;
	at->slot = (word & here->numbers) - 1;
	flow = bpf_map_lookup_elem(&cached_flows, &at->slot);
	if (!flow)
		return 0;
	at->version = *(volatile __u64 *)&flow->version;
	at->is_it = is_of(flow, key);
	return flow;
}

static __always_inline struct bucket *bucket_of(const struct place *here, __u64 hash)
{
	__u32 number = hash & here->mask;

	return bpf_map_lookup_elem(&buckets, &number);
}

/*
 * Searches all words of a bucket, the first one again, for a flow. Returns null if none matches, and sets
 * *is_full if no word is free.
 */
static __always_inline struct cached_flow *look_at_all(const struct place *here, const struct flow_key *key, __u64 hash,
						       const struct bucket *bucket, struct looked *at, int *is_full)
{
	struct cached_flow *flow;
	__u32 turn, word;

	*is_full = 1;
#pragma clang loop unroll(disable)
	for (turn = 0; turn < WORDS; turn++) {
		word = *(volatile __u32 *)&bucket->words[((hash >> 60) + turn) % WORDS];
		*is_full &= !!word;
		flow = look(here, key, hash, word, at);
		if (flow && at->is_it)
			return flow;
	}
	return 0;
}

/*
 * Returns the entry of a flow that is not at its first word, or null. As a function of its own, it keeps its
 * variables off other stacks.
 */
static __attribute__((noinline)) struct cached_flow *look_further(const struct place *here, const struct flow_key *key,
								   struct looked *at)
{
	__u64 hash = hash_of(key, here->secrets);
	struct bucket *bucket = bucket_of(here, hash >> 36);
	struct cached_flow *flow;
	int is_full;

	if (!bucket)
		return 0;
	flow = look_at_all(here, key, hash, bucket, at, &is_full);
	if (flow || !is_full)
		return flow;
	bucket = bucket_of(here, hash >> 12);
	return bucket ? look_at_all(here, key, hash, bucket, at, &is_full) : 0;
}

/* Returns the entry of a flow, or null. */
static __always_inline struct cached_flow *find(const struct place *here, const struct flow_key *key, struct looked *at)
{
	__u64 hash = hash_of(key, here->secrets);
	struct bucket *bucket = bucket_of(here, hash >> 36);
	struct cached_flow *flow;

	if (!bucket)
		return 0;
	flow = look(here, key, hash, *(volatile __u32 *)&bucket->words[hash >> 60], at);
	return flow && at->is_it ? flow : look_further(here, key, at);
}

/*
 * Returns the treatment of a flow if its entry has the current generation. The entry was read whole if its
 * version has not changed since.
 */
static __always_inline const struct treatment *treatment_of(const struct cached_flow *flow, __u64 version)
{
	__u32 number = *(volatile const __u16 *)&flow->treatment, worker;
	const struct treatment *treatment = bpf_map_lookup_elem(&treatments, &number);
	__u64 *generation;

	if (!treatment)
		return 0;
	worker = treatment->worker;
	generation = bpf_map_lookup_elem(&generations, &worker);
	if (!generation || *(volatile __u64 *)generation != version >> 32 ||
	    *(volatile const __u64 *)&flow->version != version)
		return 0;
	return treatment;
}

/* Context for counting an upcall. */
struct ascent {
	const struct xdp_md *context;
	const struct place *here;
	struct way *way;
};

/* Counts an upcall, also for its flow if there is one. */
static __always_inline int go_up(const struct ascent *ascent, struct cached_flow *flow, __u32 slot)
{
	/* Ports with more receive queues have no offloaded flows. */
	__u32 number = ascent->here->port * RX_QUEUES + ascent->context->rx_queue_index;
	struct queue_way *queue = bpf_map_lookup_elem(&queue_ways, &number);
	struct aside *aside = flow ? bpf_map_lookup_elem(&asides, &slot) : 0;
	__u64 up;

	/* A reader that sees the second count also sees the first one. */
	if (queue)
		__sync_fetch_and_add(&queue->up, 1);
	up = __sync_fetch_and_add(&ascent->way->up, 1) + 1;
	if (aside) {
		aside->last_up = up;
		*(volatile __u8 *)&flow->settled = 0;
	}
	return GO_UP;
}

/* Whether the workers are done with all upcalls of the flow, so that none is in flight. */
static __always_inline int none_is_up(const struct way *way, struct cached_flow *flow, __u32 slot)
{
	const struct aside *aside;
	__u64 done;

	if (*(volatile __u8 *)&flow->settled)
		return 1;
	aside = bpf_map_lookup_elem(&asides, &slot);
	done = *(volatile const __u64 *)&way->done;
	if (!aside || done < aside->last_up || done < aside->floor)
		return 0;
	*(volatile __u8 *)&flow->settled = 1;
	return 1;
}

static __always_inline int drop_here(__u32 slot, __u64 length, int why)
{
	struct aside *aside = bpf_map_lookup_elem(&asides, &slot);

	if (aside) {
		aside->dropped++;
		aside->dropped_bytes += length;
	}
	return why;
}

/* Whether the token bucket of a flow, if it has one, has room for a packet. */
static __always_inline int has_room(const struct treatment *treatment, __u64 length)
{
	__u32 place = treatment->policer;
	struct policer *bucket;

	if (!place)
		return 1;
	place--;
	bucket = bpf_map_lookup_elem(&policers, &place);
	return !bucket || takes(bucket, length);
}

/*
 * Returns the verdict of the eBPF variant at an index. A program called in this way returns to the caller of
 * this function. Neither compiler nor verifier may take FORM_UP as the only result: hence the barrier, and
 * the global function.
 */
__attribute__((noinline)) int ask_form(struct xdp_md *context, __u32 place)
{
	int nobody = FORM_UP;

	asm volatile("" : "+r"(nobody));
	bpf_tail_call(context, &forms, place);
	return nobody;
}

/* Works as ask_form() for frames of several buffers. */
__attribute__((noinline)) int ask_form_sg(struct xdp_md *context, __u32 place)
{
	int nobody = FORM_UP;

	asm volatile("" : "+r"(nobody));
	bpf_tail_call(context, &forms_sg, place);
	return nobody;
}

/*
 * Whether a source address is valid: neither multicast nor zero. A worker drops frames from other
 * addresses.
 */
static __always_inline int is_station(const __u8 *address)
{
	return !(address[0] & 1) && (address[0] | address[1] | address[2] | address[3] | address[4] | address[5]);
}

static __always_inline int read_packet(struct candidate *packet, void *data, const void *end, __u64 length)
{
	const struct ethhdr *link = data;

	if (data + ETH_HLEN > end || !is_station(link->h_source))
		return GO_UP;
	if (link->h_proto == bpf_htons(ETH_P_IP))
		return read_ipv4(packet, data + ETH_HLEN, end, length);
	if (link->h_proto == bpf_htons(ETH_P_IPV6))
		return read_ipv6(packet, data + ETH_HLEN, end, length);
	return GO_UP;
}

/*
 * Returns the action for a frame that classify() gave to user space: forwarding or drop here, or GO_UP. `sg`:
 * the frame may have several buffers.
 */
static __always_inline int forward_here(struct xdp_md *context, __u64 length, const int sg)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	void *to = sg ? (void *)&devices_sg : (void *)&devices;
	struct candidate packet = {};
	const struct treatment *treatment;
	struct cached_flow *flow;
	struct ascent ascent = { .context = context };
	struct place *here;
	struct way *way;
	__u32 zero = 0, port;
	struct looked at;
	__u64 bytes;
	int said;

	here = bpf_map_lookup_elem(&place, &zero);
	if (!here || !here->cached)
		return GO_UP;
	port = here->port;
	way = bpf_map_lookup_elem(&ways, &port);
	if (!way)
		return GO_UP;
	ascent.here = here;
	ascent.way = way;
	packet.key.port = port;
	if (read_packet(&packet, data, end, length))
		return go_up(&ascent, 0, 0);
	flow = find(here, &packet.key, &at);
	if (!flow)
		return go_up(&ascent, 0, 0);
	treatment = treatment_of(flow, at.version);
	if (!treatment || packet.network_length > treatment->mtu)
		return go_up(&ascent, flow, at.slot);
	/* Bytes that a worker would count and charge: without padding. */
	bytes = ETH_HLEN + packet.network_length;
	if (treatment->drops)
		return drop_here(at.slot, bytes, FILTERED);
	/* A flow that overloads its worker always has upcalls in flight, and some of them are lost anyway. */
	if (!none_is_up(way, flow, at.slot))
		return way->overloaded ? MAKE_WAY : go_up(&ascent, flow, at.slot);
	port = treatment->out;
	/* Without an output device the frame is still unchanged. */
	if (bpf_redirect_map(to, port, XDP_DROP) != XDP_REDIRECT || (packet.partial && complete(&packet, data, end)))
		return go_up(&ascent, flow, at.slot);
	if (treatment->form) {
		said = sg ? ask_form_sg(context, treatment->form - 1) : ask_form(context, treatment->form - 1);
		if (said == FORM_DROP)
			return drop_here(at.slot, bytes, FORMED);
		/* After the call the verifier no longer knows the packet's bounds. */
		data = (void *)(long)context->data;
		end = (void *)(long)context->data_end;
		if (said != FORM_PASS || data + ETH_HLEN + sizeof(struct ipv4_header) > end)
			return go_up(&ascent, flow, at.slot);
		if (bpf_redirect_map(to, port, XDP_DROP) != XDP_REDIRECT)
			return XDP_DROP;
	}
	if (!has_room(treatment, bytes))
		return drop_here(at.slot, bytes, POLICED);
	rewrite(data, treatment->link, packet.key.family);
	flow->packets++;
	flow->bytes += bytes;
	count_sent(port, bytes);
	return XDP_REDIRECT;
}

#endif
