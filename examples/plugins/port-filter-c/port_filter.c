/*
 * port-filter-c: drops packets whose destination port lies in one of up to five ranges.
 *
 * An example of verdicts, of settings that a message changes while packets flow, and of a line in the
 * daemon's log. Later fragments have no ports and pass: no host can reassemble them without the first one.
 * Packets with a cut transport header have no readable ports; the plugin drops them, so that they don't evade
 * it.
 *
 *   millrace plugin load port-filter-c.wasm
 *   millrace instance create port-filter-c web ports=80,443,8000-8999
 *   millrace bind web --gate firewall --filter 'in lan'
 *   millrace control web set ports=80
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"port-filter-c\",\"version\":\"0.1.0\","
                "\"summary\":\"Drops packets whose destination port lies in one of up to five ranges.\","
                "\"positions\":[\"early\",\"late\"],"
                "\"capabilities\":[\"log\"],"
                "\"messages\":{\"read\":\"the ports and the counters\","
                "\"set\":\"ports=80,443,1000-2000: changes the ports\"},"
                "\"settings\":{\"type\":\"object\",\"properties\":{"
                "\"ports\":{\"type\":[\"string\",\"integer\"],"
                "\"description\":\"up to five ports or ranges, as in 80,443,1000-2000\"}},"
                "\"additionalProperties\":false},"
                "\"window\":0}");

#define MOST_RANGES 5

/* The plugin's own drop reasons. */
enum { REASON_PORT = 0, REASON_CUT = 1 };

struct range {
    uint16_t first;
    uint16_t last;
};

/* Variables of an instance. */
static struct range ranges[MOST_RANGES];
static size_t range_count;
static uint64_t packets;
static uint64_t dropped;

/* Reads a port at the front of a text, up to `end`. Returns whether there is one. */
static bool read_port(const char **text, const char *end, uint16_t *port) {
    struct millrace_json digits = {*text, 0};
    uint64_t number;
    while (*text < end && **text >= '0' && **text <= '9')
        digits.length++, (*text)++;
    if (!millrace_json_number(digits, 65535, &number))
        return false;
    *port = (uint16_t)number;
    return true;
}

/* Applies the setting `ports`; a wrong one changes nothing. */
static int32_t set(const void *settings, size_t bytes) {
    struct millrace_json key, value;
    struct range new_ranges[MOST_RANGES];
    size_t at = 0, count = 0;
    if (!millrace_json_next(settings, bytes, &at, &key, &value))
        return 0;
    if (!millrace_json_is(key, "\"ports\"") || millrace_json_next(settings, bytes, &at, &key, &(struct millrace_json){0}))
        return millrace_fail("there is no such setting; give ports");
    /* `ports=80` arrives as a number, `ports=80,443` as a text in quotes. */
    const char *text = value.start, *end = value.start + value.length;
    if (*text == '"')
        text++, end--;
    while (text < end) {
        if (count == MOST_RANGES)
            return millrace_fail("ports: at most 5 ranges are taken");
        struct range *range = &new_ranges[count++];
        bool right = read_port(&text, end, &range->first);
        range->last = range->first;
        if (right && text < end && *text == '-')
            right = (text++, read_port(&text, end, &range->last));
        bool another = text < end && *text == ',' && text + 1 < end;
        if (!right || range->first > range->last || (text < end && !another))
            return millrace_fail("ports: give ports from 0 to 65535 and ranges, as in 80,1000-2000");
        text += another;
    }
    memcpy(ranges, new_ranges, count * sizeof *ranges);
    range_count = count;
    return 0;
}

int32_t millrace_init(const uint8_t *settings, size_t bytes) { return set(settings, bytes); }

static bool has_ports(uint8_t protocol) {
    /* TCP, UDP, SCTP and UDP-Lite. */
    return protocol == 6 || protocol == 17 || protocol == 132 || protocol == 136;
}

static bool in_ranges(uint16_t port) {
    for (size_t index = 0; index < range_count; index++)
        if (port >= ranges[index].first && port <= ranges[index].last)
            return true;
    return false;
}

void millrace_packets(struct millrace_call *call) {
    packets += call->count;
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        if (range_count == 0 || packet->exceptions & MILLRACE_FRAGMENT)
            continue;
        bool cut = packet->exceptions & MILLRACE_CUT;
        if (cut || (has_ports(packet->protocol) && in_ranges(packet->destination_port))) {
            millrace_drop(packet, cut ? REASON_CUT : REASON_PORT);
            dropped++;
        }
    }
}

static void write_ranges(struct millrace_text *to) {
    for (size_t index = 0; index < range_count; index++) {
        millrace_add(to, index ? "," : "");
        millrace_add_number(to, ranges[index].first);
        if (ranges[index].last == ranges[index].first)
            continue;
        millrace_add(to, "-");
        millrace_add_number(to, ranges[index].last);
    }
}

static int32_t read(void) {
    char memory[256];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    millrace_add(&text, "{\"ports\":\"");
    write_ranges(&text);
    millrace_add(&text, "\",\"packets\":");
    millrace_add_number(&text, packets);
    millrace_add(&text, ",\"dropped\":");
    millrace_add_number(&text, dropped);
    millrace_add(&text, "}");
    return millrace_reply_text(&text);
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    struct millrace_json message = {name, name_bytes};
    if (millrace_json_is(message, "set")) {
        int32_t result = set(arguments, bytes);
        if (result)
            return result;
        millrace_log(MILLRACE_INFORMATION, "the ports were changed");
    } else if (!millrace_json_is(message, "read")) {
        return millrace_fail("unknown message; give read or set");
    }
    return read();
}
