/*
 * IPv4 forwarding over DPDK's libraries on packets in memory: headers checked, rte_fib (DIR24_8), TTL and checksum, MAC
 * addresses, into an rte_ring. Buffers are taken from a pool, frames copied into them, and given back: that is the source.
 *
 *   dpdk_forward FILE PROCESSOR
 *
 * FILE, in the machine's byte order: 2 words (prefixes, frames); per prefix of 24 bits a word of address; per frame 64 bytes,
 * of which the first 60 are the frame.
 *
 * It obeys lines on its standard input, each answered by a line:
 *   forward PACKETS BATCH   nanoseconds for so many packets, and how many were forwarded
 *   source PACKETS BATCH    the same for the source alone
 * It ends with its input.
 */
#include "dpdk.h"

#include <rte_ether.h>
#include <rte_fib.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>
#include <rte_ring.h>

#define MOST_BATCH 256
#define BUFFERS 4095
#define FRAME 60
#define STRIDE 64
/* Buffers ahead of which headers are fetched. */
#define AHEAD 4
/* Megabytes for tables and buffers. */
#define MEMORY "1024"

static uint32_t prefix_count, frame_count;
static uint32_t *prefixes;
static uint8_t *frames;
static struct rte_mempool *pool;
static struct rte_ring *ring;
static struct rte_fib *fib;
static struct rte_ether_hdr next_hop_header;
static struct rte_ether_addr own;

static void read_file(const char *name)
{
	FILE *file = fopen(name, "rb");
	uint32_t head[2];
	if (!file || fread(head, sizeof(head), 1, file) != 1)
		fail("the file cannot be read");
	prefix_count = head[0], frame_count = head[1];
	prefixes = malloc((size_t)prefix_count * sizeof(*prefixes));
	frames = aligned_alloc(STRIDE, (size_t)frame_count * STRIDE);
	if (!prefixes || !frames || fread(prefixes, sizeof(*prefixes), prefix_count, file) != prefix_count ||
	    fread(frames, STRIDE, frame_count, file) != frame_count)
		fail("the file is too short");
	fclose(file);
	memcpy(&own, frames, sizeof(own));
	next_hop_header.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	next_hop_header.dst_addr.addr_bytes[0] = 2;
	next_hop_header.src_addr = own;
}

static void build(void)
{
	struct rte_fib_conf conf = { .type = RTE_FIB_DIR24_8, .max_routes = 2 * prefix_count + 16 };
	conf.dir24_8.nh_sz = RTE_FIB_DIR24_8_4B;
	conf.dir24_8.num_tbl8 = 1 << 10;
	fib = rte_fib_create("fib", SOCKET_ID_ANY, &conf);
	pool = rte_pktmbuf_pool_create("pool", BUFFERS, 512, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	ring = rte_ring_create("ring", 1024, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (!fib || !pool || !ring)
		fail("tables cannot be made");
	if (rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512) != 0)
		rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DEFAULT);
	for (uint32_t at = 0; at < prefix_count; at++)
		if (rte_fib_add(fib, prefixes[at], 24, 1))
			fail("a prefix cannot be added");
}

/* Packets with the next frames. */
static inline void make(struct rte_mbuf **packets, uint32_t count)
{
	static uint32_t next;
	if (rte_pktmbuf_alloc_bulk(pool, packets, count))
		fail("no buffers");
	for (uint32_t i = 0; i < count; i++) {
		memcpy(rte_pktmbuf_append(packets[i], FRAME), frames + (size_t)next * STRIDE, FRAME);
		next = next + 1 == frame_count ? 0 : next + 1;
	}
}

/* Whether a packet is a plain one for us that may go on; and where to. */
static inline int is_sound(struct rte_mbuf *packet, uint32_t *destination)
{
	const struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(packet, struct rte_ether_hdr *);
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(ethernet + 1);
	*destination = rte_be_to_cpu_32(ip->dst_addr);
	return rte_is_same_ether_addr(&ethernet->dst_addr, &own) &&
	       ethernet->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) && ip->version_ihl == 0x45 &&
	       rte_be_to_cpu_16(ip->total_length) + sizeof(*ethernet) <= rte_pktmbuf_data_len(packet) &&
	       ip->time_to_live > 1 && rte_raw_cksum(ip, sizeof(*ip)) == 0xffff;
}

static inline void rewrite(struct rte_mbuf *packet)
{
	struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(packet, struct rte_ether_hdr *);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ethernet + 1);
	uint32_t sum = ip->hdr_checksum + rte_cpu_to_be_16(0x0100);
	ip->time_to_live--;
	ip->hdr_checksum = sum + (sum >= 0xffff);
	*ethernet = next_hop_header;
}

/* Forwards packets; how many came out. */
static inline uint32_t forward(struct rte_mbuf **packets, uint32_t count)
{
	struct rte_mbuf *sound[MOST_BATCH], *out[MOST_BATCH];
	uint32_t destinations[MOST_BATCH], kept = 0, leaving = 0;
	uint64_t hops[MOST_BATCH];
	for (uint32_t i = 0; i < count; i++) {
		if (i + AHEAD < count)
			rte_prefetch0(rte_pktmbuf_mtod(packets[i + AHEAD], void *));
		if (is_sound(packets[i], &destinations[kept]))
			sound[kept++] = packets[i];
		else
			rte_pktmbuf_free(packets[i]);
	}
	rte_fib_lookup_bulk(fib, destinations, hops, kept);
	for (uint32_t i = 0; i < kept; i++) {
		if (hops[i] == 0) {
			rte_pktmbuf_free(sound[i]);
			continue;
		}
		rewrite(sound[i]);
		sound[leaving++] = sound[i];
	}
	rte_ring_enqueue_bulk(ring, (void **)sound, leaving, NULL);
	leaving = rte_ring_dequeue_burst(ring, (void **)out, leaving, NULL);
	rte_pktmbuf_free_bulk(out, leaving);
	return leaving;
}

static void run(int forwards, uint32_t count, uint32_t batch)
{
	struct rte_mbuf *packets[MOST_BATCH];
	uint64_t done = 0, start = now();
	if (batch == 0 || batch > MOST_BATCH)
		fail("no such batch");
	for (uint32_t made = 0; made < count; made += batch) {
		make(packets, batch);
		if (forwards)
			done += forward(packets, batch);
		else
			rte_pktmbuf_free_bulk(packets, batch);
	}
	printf("%" PRIu64 " %" PRIu64 "\n", now() - start, done);
}

int main(int count, char **arguments)
{
	char line[100];
	unsigned int packets, batch;
	if (count != 3)
		fail("usage: dpdk_forward FILE PROCESSOR");
	read_file(arguments[1]);
	start_library("dpdk_forward", arguments[2], MEMORY);
	build();
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "forward %u %u", &packets, &batch) == 2)
			run(1, packets, batch);
		else if (sscanf(line, "source %u %u", &packets, &batch) == 2)
			run(0, packets, batch);
		else
			fail(line);
		fflush(stdout);
	}
	return 0;
}
