/*
 * statistics-c: counts packets and bytes by IP protocol.
 *
 * The smallest useful plugin in C: state, a setting, and two messages. Packets always pass.
 *
 *   millrace plugin load statistics-c.wasm
 *   millrace instance create statistics-c i1
 *   millrace bind i1 --gate monitor --filter 'proto udp'
 *   millrace control i1 read --json
 *   {"total":{"packets":2,"bytes":1600},"protocols":{"17":{"packets":2,"bytes":1600}}}
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"statistics-c\",\"version\":\"0.1.0\","
                "\"summary\":\"Counts packets and bytes by IP protocol.\","
                "\"positions\":[\"early\",\"late\",\"copy\"],"
                "\"messages\":{\"read\":\"the counters\",\"reset\":\"sets all counters to zero\"},"
                "\"settings\":{\"type\":\"object\",\"properties\":{"
                "\"by-protocol\":{\"type\":\"boolean\",\"default\":true,"
                "\"description\":\"whether to count by protocol beside the totals\"}},"
                "\"additionalProperties\":false},"
                /* The plugin reads no byte of a packet: its description has the counted values. */
                "\"window\":0}");

struct count {
    uint64_t packets;
    uint64_t bytes;
};

/* Variables of an instance: the router gives each instance its own memory. */
static bool by_protocol = true;
static struct count total;
static struct count protocols[256];

/* Whether an object has no keys other than `known`, which has its quotes; NULL: no keys at all. */
static bool only(const void *object, size_t bytes, const char *known) {
    struct millrace_json key, value;
    size_t at = 0;
    while (millrace_json_next(object, bytes, &at, &key, &value))
        if (!known || !millrace_json_is(key, known))
            return false;
    return true;
}

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    if (!only(settings, bytes, "\"by-protocol\""))
        return millrace_fail("there is no such setting; give by-protocol");
    struct millrace_json value = millrace_json_get(settings, bytes, "\"by-protocol\"");
    by_protocol = !millrace_json_is(value, "false");
    if (value.start && by_protocol && !millrace_json_is(value, "true"))
        return millrace_fail("by-protocol: give true or false");
    return 0;
}

static void add(struct count *count, uint64_t bytes) {
    count->packets++;
    count->bytes += bytes;
}

void millrace_packets(struct millrace_call *call) {
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        add(&total, packet->length);
        if (by_protocol)
            add(&protocols[packet->protocol], packet->length);
    }
}

static void write(struct millrace_text *to, const struct count *count) {
    millrace_add(to, "{\"packets\":");
    millrace_add_number(to, count->packets);
    millrace_add(to, ",\"bytes\":");
    millrace_add_number(to, count->bytes);
    millrace_add(to, "}");
}

static int32_t read(void) {
    /* 256 protocols, less than 80 bytes each. */
    static char memory[256 * 80 + 128];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    const char *comma = "";
    millrace_add(&text, "{\"total\":");
    write(&text, &total);
    millrace_add(&text, ",\"protocols\":{");
    for (uint32_t number = 0; number < 256; number++) {
        if (!protocols[number].packets)
            continue;
        millrace_add(&text, comma);
        millrace_add(&text, "\"");
        millrace_add_number(&text, number);
        millrace_add(&text, "\":");
        write(&text, &protocols[number]);
        comma = ",";
    }
    millrace_add(&text, "}}");
    return millrace_reply_text(&text);
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    struct millrace_json message = {name, name_bytes};
    if (!only(arguments, bytes, NULL))
        return millrace_fail("no argument is taken here");
    if (millrace_json_is(message, "reset")) {
        memset(&total, 0, sizeof total);
        memset(protocols, 0, sizeof protocols);
    } else if (!millrace_json_is(message, "read")) {
        return millrace_fail("unknown message; give read or reset");
    }
    return read();
}
