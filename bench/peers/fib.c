/*
 * The peer of `bench route`: DPDK's rte_fib (DIR24_8) and rte_fib6 (TRIE), with next hops of 4 bytes.
 *
 * fib EAL-ARGUMENTS -- FILE
 *
 * FILE holds, in the machine's byte order: 4 words (family 4 or 6, prefixes, streams, addresses of a stream); then per
 * prefix 16 bytes of address in network order (IPv4: the first 4) and 2 words (length, next hop); then per stream its
 * addresses, 16 bytes each (IPv4: 4 bytes, as a word).
 *
 * Lines on standard input ask, each is answered by one line that begins with '=':
 *   lookup STREAM FUNCTION   time per lookup in ns, sum of the next hops
 *   update COUNT             removes and adds again that many prefixes; updates per second
 *   memory                   bytes allocated from DPDK's heap, of them in huge pages
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#define BULK 64
#define HUGE ((size_t)2 << 20)
#define NO_ROUTE 0

struct prefix {
	uint8_t address[16];
	uint32_t length;
	uint32_t next_hop;
};

static uint32_t family, prefixes, streams, addresses;
static struct prefix *table;
static void *stream_data;
static struct rte_fib *fib4;
static struct rte_fib6 *fib6;

static void fail(const char *what)
{
	printf("! %s\n", what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* DPDK without hugetlbfs has its memory in small pages of a memory file, which nobody would run it with. Put private
 * memory with transparent huge pages in its place, with the same contents. */
static int move_to_huge_pages(const struct rte_memseg_list *list, void *unused)
{
	size_t length = list->len, pages = length / 4096, i;
	unsigned char *resident = malloc(pages);
	char *new;

	(void)unused;
	new = mmap(NULL, length + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (new == MAP_FAILED || resident == NULL || mincore(list->base_va, length, resident) != 0)
		fail("cannot map memory");
	/* Huge pages move as a whole only when both sides are aligned alike. */
	new += ((uintptr_t)list->base_va - (uintptr_t)new) & (HUGE - 1);
	madvise(new, length, MADV_HUGEPAGE);
	for (i = 0; i < pages; i++)
		if (resident[i] & 1)
			memcpy(new + i * 4096, (char *)list->base_va + i * 4096, 4096);
	if (mremap(new, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, list->base_va) == MAP_FAILED)
		fail("cannot move memory");
	free(resident);
	return 0;
}

static size_t huge_bytes(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	size_t kib = 0;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "AnonHugePages: %zu", &kib) == 1)
			break;
	if (file != NULL)
		fclose(file);
	return kib << 10;
}

static void load(const char *name)
{
	FILE *file = fopen(name, "rb");
	uint32_t head[4];
	size_t size;

	if (file == NULL || fread(head, sizeof(head), 1, file) != 1)
		fail("cannot read the file");
	family = head[0], prefixes = head[1], streams = head[2], addresses = head[3];
	table = malloc(prefixes * sizeof(*table));
	size = (size_t)streams * addresses * (family == 4 ? 4 : 16);
	stream_data = malloc(size);
	if (table == NULL || stream_data == NULL || fread(table, sizeof(*table), prefixes, file) != prefixes ||
	    fread(stream_data, size, 1, file) != 1)
		fail("the file is too short");
	fclose(file);
}

static uint32_t word(const struct prefix *prefix)
{
	return (uint32_t)prefix->address[0] << 24 | prefix->address[1] << 16 | prefix->address[2] << 8 |
	       prefix->address[3];
}

static int add(const struct prefix *prefix)
{
	if (family == 4)
		return rte_fib_add(fib4, word(prefix), prefix->length, prefix->next_hop);
	return rte_fib6_add(fib6, prefix->address, prefix->length, prefix->next_hop);
}

static int del(const struct prefix *prefix)
{
	if (family == 4)
		return rte_fib_delete(fib4, word(prefix), prefix->length);
	return rte_fib6_delete(fib6, prefix->address, prefix->length);
}

static void build(void)
{
	struct rte_fib_conf conf4 = { .type = RTE_FIB_DIR24_8, .default_nh = NO_ROUTE, .max_routes = 2 * prefixes };
	struct rte_fib6_conf conf6 = { .type = RTE_FIB6_TRIE, .default_nh = NO_ROUTE, .max_routes = 2 * prefixes };
	double start = now();
	uint32_t i;

	conf4.dir24_8.nh_sz = RTE_FIB_DIR24_8_4B;
	conf4.dir24_8.num_tbl8 = 1 << 17;
	conf6.trie.nh_sz = RTE_FIB6_TRIE_4B;
	conf6.trie.num_tbl8 = 1 << 19;
	if (family == 4)
		fib4 = rte_fib_create("4", SOCKET_ID_ANY, &conf4);
	else
		fib6 = rte_fib6_create("6", SOCKET_ID_ANY, &conf6);
	if (fib4 == NULL && fib6 == NULL)
		fail("cannot create the table");
	for (i = 0; i < prefixes; i++)
		if (add(&table[i]) != 0)
			fail("cannot add a prefix");
	printf("= ready %.3f\n", now() - start);
}

static void lookup(uint32_t stream, int function)
{
	uint64_t hops[BULK], sum = 0;
	double start;
	uint32_t at, i;

	if (stream >= streams ||
	    (family == 4 ? rte_fib_select_lookup(fib4, function) : rte_fib6_select_lookup(fib6, function)) != 0) {
		printf("= none\n");
		return;
	}
	start = now();
	for (at = 0; at + BULK <= addresses; at += BULK) {
		if (family == 4)
			rte_fib_lookup_bulk(fib4, (uint32_t *)stream_data + (size_t)stream * addresses + at, hops, BULK);
		else
			rte_fib6_lookup_bulk(fib6, (uint8_t (*)[16])stream_data + (size_t)stream * addresses + at, hops,
					     BULK);
		for (i = 0; i < BULK; i++)
			sum += hops[i];
	}
	printf("= %.4f %" PRIu64 "\n", (now() - start) * 1e9 / at, sum);
}

static void update(uint32_t count)
{
	uint32_t step = prefixes / count, i;
	double start = now();

	for (i = 0; i < count; i++)
		if (del(&table[i * step]) != 0)
			fail("cannot delete a prefix");
	for (i = 0; i < count; i++)
		if (add(&table[i * step]) != 0)
			fail("cannot add a prefix");
	printf("= %.0f\n", 2.0 * count / (now() - start));
}

static void memory(void)
{
	struct rte_malloc_socket_stats stats;
	size_t used = 0;
	int socket;

	for (socket = 0; socket < RTE_MAX_NUMA_NODES; socket++)
		if (rte_malloc_get_socket_stats(socket, &stats) == 0)
			used += stats.heap_allocsz_bytes;
	printf("= %zu %zu\n", used, huge_bytes());
}

int main(int argc, char **argv)
{
	char line[80];
	unsigned int a, b;
	int skip = rte_eal_init(argc, argv);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (skip < 0 || skip + 1 >= argc)
		fail("usage: fib EAL-ARGUMENTS -- FILE");
	rte_memseg_list_walk(move_to_huge_pages, NULL);
	load(argv[skip + 1]);
	build();
	while (fgets(line, sizeof(line), stdin) != NULL) {
		if (sscanf(line, "lookup %u %u", &a, &b) == 2)
			lookup(a, b);
		else if (sscanf(line, "update %u", &a) == 1 && a > 0 && a <= prefixes)
			update(a);
		else if (strncmp(line, "memory", 6) == 0)
			memory();
		else
			printf("= ?\n");
	}
	return 0;
}
