/*
 * DPDK's forwarding tables, rte_fib (DIR24_8) and rte_fib6 (TRIE) with next hops of 4 bytes, measured on a table and
 * streams of addresses.
 *
 *   dpdk_fib FILE PROCESSOR
 *
 * FILE, in the machine's byte order: 4 words (family 4 or 6, prefixes, streams, addresses of a stream); per prefix 16
 * bytes of address in network order (IPv4 in the first four) and 2 words (length, next hop, not 0); per stream its
 * addresses, of 16 bytes in network order, or for IPv4 a word.
 *
 * It obeys lines on its standard input, each answered by a line:
 *   build                         nanoseconds to make the table
 *   lookup STREAM FUNCTION BATCH  nanoseconds for the stream, and the sum of the next hops, 0 for none; "none" when this
 *                                 machine has no such lookup function
 *   update COUNT                  nanoseconds to remove and add again that many prefixes
 * It ends with its input.
 */
#include "dpdk.h"

#include <rte_fib.h>
#include <rte_fib6.h>

#define MOST_BATCH 256
/* Megabytes for the table. */
#define MEMORY "2048"

struct prefix {
	uint8_t address[16];
	uint32_t length;
	uint32_t next_hop;
};

static uint32_t family, prefix_count, stream_count, address_count;
static struct prefix *prefixes;
static void *addresses;
static struct rte_fib *fib4;
static struct rte_fib6 *fib6;

static void read_file(const char *name)
{
	FILE *file = fopen(name, "rb");
	uint32_t head[4];
	if (!file || fread(head, sizeof(head), 1, file) != 1)
		fail("the file cannot be read");
	family = head[0], prefix_count = head[1], stream_count = head[2], address_count = head[3];
	size_t size = (size_t)stream_count * address_count * (family == 4 ? 4 : 16);
	prefixes = malloc(prefix_count * sizeof(*prefixes));
	addresses = malloc(size);
	if (!prefixes || !addresses || fread(prefixes, sizeof(*prefixes), prefix_count, file) != prefix_count ||
	    fread(addresses, size, 1, file) != 1)
		fail("the file is too short");
	fclose(file);
}

static uint32_t word(const struct prefix *prefix)
{
	const uint8_t *octet = prefix->address;
	return (uint32_t)octet[0] << 24 | octet[1] << 16 | octet[2] << 8 | octet[3];
}

static void add(const struct prefix *prefix)
{
	if (family == 4 ? rte_fib_add(fib4, word(prefix), prefix->length, prefix->next_hop) :
			  rte_fib6_add(fib6, prefix->address, prefix->length, prefix->next_hop))
		fail("a prefix cannot be added");
}

static void delete(const struct prefix *prefix)
{
	if (family == 4 ? rte_fib_delete(fib4, word(prefix), prefix->length) :
			  rte_fib6_delete(fib6, prefix->address, prefix->length))
		fail("a prefix cannot be deleted");
}

static void build(void)
{
	struct rte_fib_conf conf4 = { .type = RTE_FIB_DIR24_8, .max_routes = 2 * prefix_count };
	struct rte_fib6_conf conf6 = { .type = RTE_FIB6_TRIE, .max_routes = 2 * prefix_count };
	conf4.dir24_8.nh_sz = RTE_FIB_DIR24_8_4B;
	conf4.dir24_8.num_tbl8 = 1 << 17;
	conf6.trie.nh_sz = RTE_FIB6_TRIE_4B;
	conf6.trie.num_tbl8 = 1 << 19;
	uint64_t start = now();
	if (family == 4)
		fib4 = rte_fib_create("fib", SOCKET_ID_ANY, &conf4);
	else
		fib6 = rte_fib6_create("fib", SOCKET_ID_ANY, &conf6);
	if (!fib4 && !fib6)
		fail("the table cannot be made");
	for (uint32_t at = 0; at < prefix_count; at++)
		add(&prefixes[at]);
	printf("%" PRIu64 "\n", now() - start);
}

static void look_up(uint32_t stream, int function, uint32_t batch)
{
	uint64_t next_hops[MOST_BATCH], sum = 0;
	if (stream >= stream_count || batch == 0 || batch > MOST_BATCH)
		fail("no such stream or batch");
	if (family == 4 ? rte_fib_select_lookup(fib4, function) : rte_fib6_select_lookup(fib6, function)) {
		printf("none\n");
		return;
	}
	uint64_t start = now();
	for (uint32_t at = 0; at < address_count; at += batch) {
		size_t first = (size_t)stream * address_count + at;
		uint32_t count = RTE_MIN(batch, address_count - at);
		if (family == 4)
			rte_fib_lookup_bulk(fib4, (uint32_t *)addresses + first, next_hops, count);
		else
			rte_fib6_lookup_bulk(fib6, (uint8_t(*)[16])addresses + first, next_hops, count);
		for (uint32_t i = 0; i < count; i++)
			sum += next_hops[i];
	}
	printf("%" PRIu64 " %" PRIu64 "\n", now() - start, sum);
}

static void update(uint32_t count)
{
	if (count == 0 || count > prefix_count)
		fail("no such number of prefixes");
	uint32_t step = prefix_count / count;
	uint64_t start = now();
	for (uint32_t at = 0; at < count; at++) {
		delete(&prefixes[at * step]);
		add(&prefixes[at * step]);
	}
	printf("%" PRIu64 "\n", now() - start);
}

int main(int count, char **arguments)
{
	char line[100];
	unsigned int a, b, c;
	if (count != 3)
		fail("usage: dpdk_fib FILE PROCESSOR");
	read_file(arguments[1]);
	start_library("dpdk_fib", arguments[2], MEMORY);
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "build\n") == 0 && !fib4 && !fib6)
			build();
		else if (!fib4 && !fib6)
			fail("build comes first");
		else if (sscanf(line, "lookup %u %u %u", &a, &b, &c) == 3)
			look_up(a, b, c);
		else if (sscanf(line, "update %u", &a) == 1)
			update(a);
		else
			fail(line);
		fflush(stdout);
	}
	return 0;
}
