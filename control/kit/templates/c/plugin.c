/*
 * PLUGIN_NAME: counts packets, and drops those that are longer than a setting allows.
 *
 *   millrace plugin build
 *   millrace plugin load PLUGIN_NAME.wasm
 *   millrace instance create PLUGIN_NAME i1 longest=1000
 *   millrace bind i1 --gate monitor --filter 'proto udp'
 *   millrace control i1 read
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"PLUGIN_NAME\",\"version\":\"0.1.0\","
                "\"summary\":\"Counts packets, and drops those that are too long.\","
                "\"positions\":[\"early\",\"late\"],"
                "\"messages\":{\"read\":\"the counters\"},"
                "\"settings\":{\"type\":\"object\",\"properties\":{"
                "\"longest\":{\"type\":\"integer\",\"minimum\":0,\"description\":\"bytes of a packet at most\"}},"
                "\"additionalProperties\":false},"
                "\"state-version\":1}");

/* An instance: its setting and its counters. The router gives each instance variables of its own. */
static uint64_t longest = UINT64_MAX;
static uint64_t packets;
static uint64_t dropped;

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    struct millrace_json key, value;
    for (size_t at = 0; millrace_json_next(settings, bytes, &at, &key, &value);) {
        if (!millrace_json_is(key, "\"longest\""))
            return millrace_fail("there is no such setting; give longest");
        if (!millrace_json_number(value, UINT32_MAX, &longest))
            return millrace_fail("longest: give bytes");
    }
    return 0;
}

void millrace_packets(struct millrace_call *call) {
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        packets++;
        if (packet->length > longest) {
            dropped++;
            millrace_drop(packet, 0);
        }
    }
}

/* Counters for the next version, or the next start: `plugin upgrade` loses none. */
int32_t millrace_save(void) {
    const uint64_t counters[2] = {packets, dropped};
    return millrace_reply(counters, sizeof counters);
}

int32_t millrace_restore(const uint8_t *state, size_t bytes, uint32_t version) {
    if (version != 1 || bytes != sizeof packets + sizeof dropped)
        return millrace_fail("the state is of another version");
    memcpy(&packets, state, sizeof packets);
    memcpy(&dropped, state + sizeof packets, sizeof dropped);
    return 0;
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    (void)arguments, (void)bytes;
    if (!millrace_json_is((struct millrace_json){name, name_bytes}, "read"))
        return millrace_fail("unknown message; give read");
    char memory[128];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    millrace_add(&text, "{\"packets\":");
    millrace_add_number(&text, packets);
    millrace_add(&text, ",\"dropped\":");
    millrace_add_number(&text, dropped);
    millrace_add(&text, "}");
    return millrace_reply_text(&text);
}
