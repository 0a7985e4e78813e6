/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Programs of one port. Linux 5.15 suffices for millrace_xdp; millrace_xdp_sg and millrace_hand need 5.18,
 * millrace_tcx 6.6. Each program is loaded only when it is used.
 */
#include "classifier.h"
#include "control_plane.h"
#include "flow_cache.h"
#include "frame_tape.h"

#define TCX_NEXT (-1)
#define TCX_DROP 2
#define PACKET_OUTGOING 4

#define QUEUES 256

/* Counters of a port. Rust reads them as an array of words: src/counters.rs. */
struct counters {
	__u64 seen, seen_bytes;
	__u64 by_verdict[6];
	__u64 forwarded, undeliverable, made_way, filtered, policed, variant_dropped;
	__u64 fallback_passed, fallback_dropped, handed_back;
	__u64 entered[CLASSES], refused[CLASSES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/*
 * The witness: a socket of the process that closes before all others when the process dies. From then on
 * every port falls back at once, without waiting until the sockets of other ports are closed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} witness SEC(".maps");

/*
 * Number of frames that millrace_hand has punted to the kernel on this processor and that millrace_xdp
 * (generic) or millrace_tcx will meet again. The kernel receives them synchronously, with soft interrupts
 * off, so no other frame comes between.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} pending SEC(".maps");

static __always_inline int is_handed_back(struct counters *count)
{
	__u32 zero = 0;
	__u64 *waiting = bpf_map_lookup_elem(&pending, &zero);

	if (!waiting || !*waiting)
		return 0;
	*waiting -= 1;
	count->handed_back++;
	return 1;
}

static __always_inline int fall_back(struct counters *count, const struct config *port)
{
	if (port->fallback == XDP_PASS)
		count->fallback_passed++;
	else
		count->fallback_dropped++;
	return port->fallback == XDP_PASS;
}

static __always_inline void count_verdict(struct counters *count, enum verdict verdict)
{
	switch (verdict) {
	case USER_SPACE: count->by_verdict[USER_SPACE]++; break;
	case OTHER_ETHERTYPE: count->by_verdict[OTHER_ETHERTYPE]++; break;
	case NOT_OURS: count->by_verdict[NOT_OURS]++; break;
	case LOCAL: count->by_verdict[LOCAL]++; break;
	case MULTICAST: count->by_verdict[MULTICAST]++; break;
	case VLAN: count->by_verdict[VLAN]++; break;
	}
}

static __always_inline int count_forwarded(struct counters *count, int action)
{
	switch (action) {
	case XDP_REDIRECT: count->forwarded++; return action;
	case MAKE_WAY: count->made_way++; return XDP_DROP;
	case FILTERED: count->filtered++; return XDP_DROP;
	case POLICED: count->policed++; return XDP_DROP;
	case VARIANT_DROPPED: count->variant_dropped++; return XDP_DROP;
	default: count->undeliverable++; return XDP_DROP;
	}
}

/*
 * Whether a frame that classify() gave to the kernel enters it. Control-plane policing drops a frame for the
 * router itself that exceeds the rate of its class.
 */
static __always_inline int enters(void *context, const struct frame *frame, struct counters *count, enum verdict verdict,
				  const struct network *network)
{
	__u32 class = class_of(context, frame, verdict, network);

	if (class >= CLASSES)
		return 1;
	if (may_enter(class)) {
		count->entered[class]++;
		return 1;
	}
	count->refused[class]++;
	return 0;
}

static __always_inline int receive_xdp(struct xdp_md *context, __u64 length, const int sg)
{
	struct frame frame = { (void *)(long)context->data, (void *)(long)context->data_end, 0 };
	__u32 zero = 0, queue = context->rx_queue_index;
	struct counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct config *port = bpf_map_lookup_elem(&config, &zero);
	struct network network = {};
	enum verdict verdict;
	int action;

	if (!count || !port || is_handed_back(count))
		return XDP_PASS;
	count->seen++;
	count->seen_bytes += length;
	verdict = classify(&frame, port, &network);
	if (verdict != USER_SPACE && !enters(context, &frame, count, verdict, &network))
		return XDP_DROP;
	if (verdict == USER_SPACE &&
	    (!bpf_map_lookup_elem(&sockets, &queue) || !bpf_map_lookup_elem(&witness, &zero)))
		return fall_back(count, port) ? XDP_PASS : XDP_DROP;
	if (verdict == USER_SPACE) {
		action = forward_here(context, length, sg);
		if (action != GO_UP)
			return count_forwarded(count, action);
	}
	count_verdict(count, verdict);
	if (verdict != USER_SPACE)
		return XDP_PASS;
	return bpf_redirect_map(&sockets, queue, port->fallback);
}

SEC("xdp")
int millrace_xdp(struct xdp_md *context)
{
	return receive_xdp(context, linear_length(context), 0);
}

SEC("xdp.frags")
int millrace_xdp_sg(struct xdp_md *context)
{
	return receive_xdp(context, bpf_xdp_get_buff_len(context), 1);
}

SEC("classifier")
int millrace_tcx(struct __sk_buff *skb)
{
	struct frame frame = { 0, 0, skb };
	__u32 zero = 0;
	struct counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct config *port = bpf_map_lookup_elem(&config, &zero);
	struct network network = {};
	enum verdict verdict;

	if (!count || !port || is_handed_back(count))
		return TCX_NEXT;
	count->seen++;
	count->seen_bytes += skb->len;
	verdict = classify(&frame, port, &network);
	if (verdict != USER_SPACE && !enters(skb, &frame, count, verdict, &network))
		return TCX_DROP;
	count_verdict(count, verdict);
	return verdict == USER_SPACE ? TCX_DROP : TCX_NEXT;
}

/*
 * Socket filter. The kernel runs it before millrace_tcx, once for each socket; only millrace_tcx counts
 * frames.
 */
SEC("socket")
int millrace_filter(struct __sk_buff *skb)
{
	struct frame frame = { 0, 0, skb };
	__u32 zero = 0;
	struct config *port = bpf_map_lookup_elem(&config, &zero);
	__u64 *waiting = bpf_map_lookup_elem(&pending, &zero);
	struct network network = {};

	if (!port || !waiting || *waiting || skb->pkt_type == PACKET_OUTGOING)
		return 0;
	return classify(&frame, port, &network) == USER_SPACE ? 0xffffffff : 0;
}

/*
 * Runs on live frames without being attached: each frame becomes the next frame of the tape, and the kernel
 * receives it.
 */
SEC("xdp")
int millrace_hand(struct xdp_md *context)
{
	__u32 zero = 0;
	__u64 *waiting = bpf_map_lookup_elem(&pending, &zero);
	struct tape_cursor *cursor = take_from_tape(context);

	if (!waiting || !cursor)
		return XDP_DROP;
	if (cursor->meets_again)
		*waiting += 1;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
