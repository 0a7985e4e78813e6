/*
 * What the programs over DPDK's libraries share.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_memory.h>
#include <rte_vect.h>

#define HUGE ((size_t)2 << 20)
#define PAGE 4096

static void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Without hugetlbfs the library's memory is a file in small pages, and the kernel may give files no huge ones. Nobody
 * would run it like that, so private memory that may have huge pages takes its place, with the same contents. */
static int move_to_huge_pages(const struct rte_memseg_list *list, void *unused)
{
	size_t length = list->len, pages = length / PAGE;
	unsigned char *resident = malloc(pages);
	char *from = list->base_va, *to;
	(void)unused;
	to = mmap(NULL, length + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (to == MAP_FAILED || !resident || mincore(from, length, resident) != 0)
		fail("no memory");
	/* Only aligned like the original can huge pages be moved whole. */
	to += ((uintptr_t)from - (uintptr_t)to) & (HUGE - 1);
	madvise(to, length, MADV_HUGEPAGE);
	for (size_t page = 0; page < pages; page++)
		if (resident[page] & 1)
			memcpy(to + page * PAGE, from + page * PAGE, PAGE);
	if (mremap(to, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, from) == MAP_FAILED)
		fail("memory cannot be moved");
	free(resident);
	return 0;
}

/* On one processor, with so many megabytes for tables. */
static void start_library(char *name, const char *processor, char *megabytes)
{
	char lcores[64];
	snprintf(lcores, sizeof(lcores), "--lcores=0@%s", processor);
	char *options[] = { name, lcores, "--no-huge", "-m", megabytes, "--no-pci", "--no-telemetry", "--no-shconf",
			    "--log-level=3" };
	if (rte_eal_init(sizeof(options) / sizeof(options[0]), options) < 0)
		fail("the library does not start");
	/* It uses no vectors of 512 bits otherwise, which it is faster by where there are some. */
	rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
	rte_memseg_list_walk(move_to_huge_pages, NULL);
}
