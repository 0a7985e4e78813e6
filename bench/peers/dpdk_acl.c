/*
 * DPDK's access control library, measured on a set of filters and some traces.
 *
 *   dpdk_acl FILTERS PROCESSOR TRACE...
 *
 * FILTERS: a line each, best first: `4|6 SOURCE/LENGTH DESTINATION/LENGTH PROTOCOL FIRST LAST FIRST LAST`, source ports
 * before destination ports, protocol -1 for any. TRACE: records of 48 bytes: source and destination of 16 bytes each
 * (IPv4 in the first four), source and destination port in network order, protocol, zeros.
 *
 * It obeys lines on its standard input, each answered by a line:
 *   build        builds the table anew: nanoseconds that took, and bytes that it takes
 *   lookup N     nanoseconds for trace N (from 0) in calls of BATCH packets, after a run through it that doesn't count
 *   digest N     a number of what was found for it: FNV-1a over the lines of the filters, from 1, 0 for none
 * It ends with its input.
 */
#include "dpdk.h"

#include <arpa/inet.h>

#include <rte_acl.h>
#include <rte_malloc.h>

#define BATCH 64
#define RECORD 48
#define TRACES 4
/* Megabytes for the table. */
#define MEMORY "4096"

/* Packets as the library reads them: addresses and ports aligned to the words that it walks by. */
struct packet {
	uint8_t protocol;
	uint8_t padding[3];
	uint8_t rest[36];
};

enum { V4_FIELDS = 5, V6_FIELDS = 11 };

static int v6;
static struct rte_acl_rule *rules;
static size_t rule_size;
static uint32_t rule_count;
static struct trace {
	struct packet *packets;
	const uint8_t **pointers;
	uint32_t *found;
	uint32_t count;
} traces[TRACES];

/* Fields: protocol, the words of the source, those of the destination, source port, destination port. */
static void configure(struct rte_acl_config *config)
{
	unsigned words = v6 ? 8 : 2;
	memset(config, 0, sizeof(*config));
	config->num_categories = 1;
	config->num_fields = v6 ? V6_FIELDS : V4_FIELDS;
	config->defs[0] = (struct rte_acl_field_def){ RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, 0 };
	for (unsigned i = 1; i <= words; i++)
		config->defs[i] = (struct rte_acl_field_def){ RTE_ACL_FIELD_TYPE_MASK, 4, i, i, 4 * i };
	for (unsigned i = 1; i <= 2; i++)
		config->defs[words + i] = (struct rte_acl_field_def){
			RTE_ACL_FIELD_TYPE_RANGE, 2, words + i, words + 1, 4 * (words + 1) + 2 * (i - 1) };
}

static void set_prefix(struct rte_acl_field *fields, const char *text)
{
	char address[64];
	int length, words = v6 ? 4 : 1;
	uint32_t bits[4];
	if (sscanf(text, "%63[^/]/%d", address, &length) != 2 || inet_pton(v6 ? AF_INET6 : AF_INET, address, bits) != 1)
		fail(text);
	for (int i = 0; i < words; i++, length -= 32) {
		fields[i].value.u32 = ntohl(bits[i]);
		fields[i].mask_range.u32 = length < 0 ? 0 : length > 32 ? 32 : length;
	}
}

static void read_rules(const char *name)
{
	FILE *file = fopen(name, "r");
	char line[512], source[128], destination[128];
	int family, protocol;
	unsigned ports[4];
	uint32_t room = 0;
	if (!file)
		fail(name);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%d %127s %127s %d %u %u %u %u", &family, source, destination, &protocol, &ports[0], &ports[1],
			   &ports[2], &ports[3]) != 8)
			fail(line);
		if (rule_count == 0) {
			v6 = family == 6;
			rule_size = RTE_ACL_RULE_SZ(v6 ? V6_FIELDS : V4_FIELDS);
		}
		if (rule_count == room) {
			room = room ? 2 * room : 1024;
			rules = realloc(rules, room * rule_size);
			if (!rules)
				fail("no memory");
		}
		struct rte_acl_rule *rule = (void *)((char *)rules + rule_count * rule_size);
		struct rte_acl_field *field = rule->field;
		int words = v6 ? 4 : 1;
		memset(rule, 0, rule_size);
		rule_count++;
		rule->data.category_mask = 1;
		rule->data.priority = RTE_ACL_MAX_PRIORITY - rule_count;
		rule->data.userdata = rule_count;
		field[0].value.u8 = protocol < 0 ? 0 : protocol;
		field[0].mask_range.u8 = protocol < 0 ? 0 : 0xff;
		set_prefix(field + 1, source);
		set_prefix(field + 1 + words, destination);
		for (int i = 0; i < 2; i++) {
			field[1 + 2 * words + i].value.u16 = ports[2 * i];
			field[1 + 2 * words + i].mask_range.u16 = ports[2 * i + 1];
		}
	}
	fclose(file);
}

static void read_trace(struct trace *trace, const char *name)
{
	FILE *file = fopen(name, "rb");
	uint8_t record[RECORD];
	if (!file || fseek(file, 0, SEEK_END) != 0)
		fail(name);
	trace->count = ftell(file) / RECORD;
	rewind(file);
	trace->packets = calloc(trace->count, sizeof(*trace->packets));
	trace->pointers = calloc(trace->count, sizeof(*trace->pointers));
	trace->found = calloc(trace->count, sizeof(*trace->found));
	if (!trace->packets || !trace->pointers || !trace->found)
		fail("no memory");
	unsigned address = v6 ? 16 : 4;
	/* IPv4 packets stand close together, as they would in a table of their own. */
	size_t stride = v6 ? sizeof(struct packet) : 16;
	for (uint32_t i = 0; i < trace->count; i++) {
		struct packet *packet = (void *)((char *)trace->packets + i * stride);
		if (fread(record, RECORD, 1, file) != 1)
			fail(name);
		packet->protocol = record[36];
		memcpy(packet->rest, record, address);
		memcpy(packet->rest + address, record + 16, address);
		memcpy(packet->rest + 2 * address, record + 32, 4);
		trace->pointers[i] = (const uint8_t *)packet;
	}
	fclose(file);
}

static size_t allocated(void)
{
	struct rte_malloc_socket_stats stats;
	size_t sum = 0;
	for (int socket = 0; socket < RTE_MAX_NUMA_NODES; socket++)
		if (rte_malloc_get_socket_stats(socket, &stats) == 0)
			sum += stats.heap_allocsz_bytes;
	return sum;
}

static struct rte_acl_ctx *build(void)
{
	struct rte_acl_param parameters = { .name = "bench", .socket_id = SOCKET_ID_ANY, .rule_size = rule_size,
					    .max_rule_num = rule_count };
	struct rte_acl_config config;
	struct rte_acl_ctx *table = rte_acl_create(&parameters);
	configure(&config);
	if (!table || rte_acl_add_rules(table, rules, rule_count) != 0)
		fail("the filters were refused");
	if (rte_acl_build(table, &config) != 0)
		fail("the table cannot be built");
	return table;
}

static void look_up(struct rte_acl_ctx *table, struct trace *trace)
{
	for (uint32_t done = 0; done < trace->count; done += BATCH) {
		uint32_t count = trace->count - done < BATCH ? trace->count - done : BATCH;
		if (rte_acl_classify(table, trace->pointers + done, trace->found + done, count, 1) != 0)
			fail("lookup failed");
	}
}

static uint64_t digest(const struct trace *trace)
{
	uint64_t digest = 0xcbf29ce484222325;
	for (uint32_t i = 0; i < trace->count; i++)
		digest = (digest ^ trace->found[i]) * 0x100000001b3;
	return digest;
}

int main(int count, char **arguments)
{
	if (count < 4 || count > 3 + TRACES)
		fail("usage: dpdk_acl FILTERS PROCESSOR TRACE...");
	start_library("dpdk_acl", arguments[2], MEMORY);
	read_rules(arguments[1]);
	for (int i = 3; i < count; i++)
		read_trace(&traces[i - 3], arguments[i]);
	struct rte_acl_ctx *table = NULL;
	char line[64];
	unsigned number;
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "build\n") == 0) {
			rte_acl_free(table);
			size_t before = allocated();
			uint64_t start = now();
			table = build();
			printf("%" PRIu64 " %zu\n", now() - start, allocated() - before);
		} else if (!table) {
			fail("build comes first");
		} else if (sscanf(line, "lookup %u", &number) == 1 && number < TRACES) {
			look_up(table, &traces[number]);
			uint64_t start = now();
			look_up(table, &traces[number]);
			printf("%" PRIu64 "\n", now() - start);
		} else if (sscanf(line, "digest %u", &number) == 1 && number < TRACES) {
			look_up(table, &traces[number]);
			printf("%" PRIu64 "\n", digest(&traces[number]));
		} else {
			fail(line);
		}
		fflush(stdout);
	}
	return 0;
}
