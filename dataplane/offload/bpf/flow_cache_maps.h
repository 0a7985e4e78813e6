/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Maps of the flow cache. src/flow_cache/layout.rs has the same layout. */
#ifndef MILLRACE_FLOW_CACHE_MAPS_H
#define MILLRACE_FLOW_CACHE_MAPS_H

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
#define VARIANTS 256
/* Maximum number of ports with offloaded flows; a port's number in the router is below it. */
#define PORTS 256
/* Maximum number of workers of a router. */
#define WORKERS 64
/* Maximum number of receive queues of a port. */
#define RX_QUEUES 64

/* Map that the programs of all ports share, and that user space maps into its memory. */
#define SHARED_ARRAY(name, entries, item) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(pinning, PINNING); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, entries); \
		__type(key, __u32); \
		__type(value, item); \
	} name SEC(".maps")

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
 * change. A program that finds it unchanged has therefore read a whole entry.
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
	__u16 variant; /* index of the plugin's eBPF variant plus one; 0 for none */
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

SHARED_ARRAY(policers, POLICERS, struct policer);
SHARED_ARRAY(buckets, BUCKETS, struct bucket);
SHARED_ARRAY(cached_flows, FLOWS, struct cached_flow);
SHARED_ARRAY(asides, FLOWS, struct aside);
SHARED_ARRAY(treatments, TREATMENTS, struct treatment);
SHARED_ARRAY(generations, WORKERS, __u64);
SHARED_ARRAY(ways, PORTS, struct way);
SHARED_ARRAY(queue_ways, PORTS * RX_QUEUES, struct queue_way);

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
	__uint(max_entries, VARIANTS);
	__type(key, __u32);
	__type(value, __u32);
} variants SEC(".maps"), variants_sg SEC(".maps");

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

#endif
