/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Flow cache: the XDP program forwards plain flows that a worker has classified, until something changes.
 * Other packets are upcalls: they go to the worker unchanged.
 *
 * One cache serves all ports of a router: its maps are pinned in a private file system, where the programs of
 * each port find them (src/flow_cache/directory.rs).
 */
#ifndef MILLRACE_FLOW_CACHE_H
#define MILLRACE_FLOW_CACHE_H

#include "flow_cache_packet.h"
#include "flow_cache_table.h"

/* Drop during the take-over of a flow from an overloaded worker that still has packets of the flow. */
#define MAKE_WAY (-2)
/* Drop by a filter. */
#define FILTERED (-3)
/* Drop by a policer. */
#define POLICED (-4)
/* Drop by the eBPF variant of a plugin. */
#define VARIANT_DROPPED (-5)

/* Verdicts of eBPF variants: include/ebpf_variant.h of foundation/bpf. */
enum variant_verdict {
	VARIANT_PASS,
	VARIANT_DROP,
	VARIANT_UPCALL,
};

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
 * this function. Neither compiler nor verifier may take VARIANT_UPCALL as the only result: hence the barrier, and
 * the global function.
 */
__attribute__((noinline)) int call_variant(struct xdp_md *context, __u32 place)
{
	int nobody = VARIANT_UPCALL;

	asm volatile("" : "+r"(nobody));
	bpf_tail_call(context, &variants, place);
	return nobody;
}

/* Works as call_variant() for frames of several buffers. */
__attribute__((noinline)) int call_variant_sg(struct xdp_md *context, __u32 place)
{
	int nobody = VARIANT_UPCALL;

	asm volatile("" : "+r"(nobody));
	bpf_tail_call(context, &variants_sg, place);
	return nobody;
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
	if (treatment->variant) {
		said = sg ? call_variant_sg(context, treatment->variant - 1) : call_variant(context, treatment->variant - 1);
		if (said == VARIANT_DROP)
			return drop_here(at.slot, bytes, VARIANT_DROPPED);
		/* After the call the verifier no longer knows the packet's bounds. */
		data = (void *)(long)context->data;
		end = (void *)(long)context->data_end;
		if (said != VARIANT_PASS || data + ETH_HLEN + sizeof(struct ipv4_header) > end)
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
