/*
 * sample-c: sends one in `one-in` copies to a port, and consumes the others.
 *
 * An example of a setting that names a port: because of the format in the schema the router takes the port's
 * name, and the plugin gets its number. At gates of the position copy, the verdict to send by a port applies
 * to the copy.
 *
 *   millrace plugin load sample-c.wasm
 *   millrace instance create sample-c s1 to=probe one-in=100 mode=random
 *   millrace bind s1 --gate tap --filter 'in lan'
 *   millrace control s1 read --json
 *   {"copies":1000,"sent":9,"sent_bytes":882}
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"sample-c\",\"version\":\"0.1.0\","
                "\"summary\":\"Sends one of every N copies to a port, and discards the others.\","
                "\"positions\":[\"copy\"],\"features\":[\"to-ports\"],"
                "\"messages\":{\"read\":\"the counters\",\"reset\":\"sets all counters to zero\"},"
                "\"settings\":{\"type\":\"object\",\"properties\":{"
                "\"to\":{\"type\":\"string\",\"format\":\"port\",\"description\":\"port for the copies\"},"
                "\"one-in\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":4294967295,\"default\":1,"
                "\"description\":\"the number N: one of every N copies is sent\"},"
                "\"mode\":{\"enum\":[\"every\",\"random\"],\"default\":\"every\","
                "\"description\":\"the last of every N copies, or each copy with the same probability\"},"
                "\"seed\":{\"type\":\"integer\",\"minimum\":1,\"default\":1,"
                "\"description\":\"seed of the random numbers\"}},"
                "\"required\":[\"to\"],\"additionalProperties\":false},"
                "\"window\":0}");

/* Settings of an instance. */
static uint64_t to;
static uint64_t one_in = 1;
static bool at_random;
/* State of the random number generator; never 0. */
static uint64_t random_state;
/* Number of copies since the last sent one. */
static uint64_t passed;
static uint64_t copies, sent, sent_bytes;

/* Applies one setting. Returns NULL, or the error. */
static const char *take(struct millrace_json key, struct millrace_json value) {
    if (millrace_json_is(key, "\"to\""))
        return millrace_json_number(value, UINT16_MAX, &to) ? NULL : "to: give the name of a port";
    if (millrace_json_is(key, "\"one-in\"")) {
        bool right = millrace_json_number(value, UINT32_MAX, &one_in) && one_in > 0;
        return right ? NULL : "one-in: give a whole number of 1 to 4294967295";
    }
    if (millrace_json_is(key, "\"mode\"")) {
        at_random = millrace_json_is(value, "\"random\"");
        return at_random || millrace_json_is(value, "\"every\"") ? NULL : "mode: give every or random";
    }
    if (millrace_json_is(key, "\"seed\"")) {
        bool right = millrace_json_number(value, UINT64_MAX, &random_state) && random_state > 0;
        return right ? NULL : "seed: give a whole number of 1 or more";
    }
    return "there is no such setting; give to, one-in, mode, seed";
}

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    struct millrace_json key, value;
    size_t at = 0;
    if (!millrace_json_get(settings, bytes, "\"to\"").start)
        return millrace_fail("to: it is missing; give the name of a port");
    random_state = 1;
    while (millrace_json_next(settings, bytes, &at, &key, &value)) {
        const char *wrong = take(key, value);
        if (wrong)
            return millrace_fail(wrong);
    }
    /* A small state yields small numbers at first: the multiplication spreads the seed's bits. An odd
     * factor never yields 0. */
    random_state *= 0x9e3779b97f4a7c15;
    return 0;
}

/* Marsaglia, Xorshift RNGs (2003): 64 bits, shifts of 13, 7 and 17. */
static uint64_t draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Whether the next copy is sent. */
static bool choose(void) {
    /* The upper half of the number, as a fraction of 2^32, is below 1 / one_in. */
    if (at_random)
        return ((draw() >> 32) * one_in) >> 32 == 0;
    passed = (passed + 1) % one_in;
    return passed == 0;
}

void millrace_packets(struct millrace_call *call) {
    copies += call->count;
    for (uint32_t index = 0; index < call->count; index++) {
        struct millrace_packet *packet = millrace_packet(call, index);
        packet->verdict = MILLRACE_CONSUME;
        if (!choose())
            continue;
        packet->verdict = MILLRACE_TO_PORT;
        packet->target = (uint16_t)to;
        sent++;
        sent_bytes += packet->length;
    }
}

static int32_t read(void) {
    char memory[128];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    millrace_add(&text, "{\"copies\":");
    millrace_add_number(&text, copies);
    millrace_add(&text, ",\"sent\":");
    millrace_add_number(&text, sent);
    millrace_add(&text, ",\"sent_bytes\":");
    millrace_add_number(&text, sent_bytes);
    millrace_add(&text, "}");
    return millrace_reply_text(&text);
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    struct millrace_json message = {name, name_bytes}, key, value;
    size_t at = 0;
    if (millrace_json_next(arguments, bytes, &at, &key, &value))
        return millrace_fail("no argument is taken here");
    if (millrace_json_is(message, "reset"))
        copies = sent = sent_bytes = 0;
    else if (!millrace_json_is(message, "read"))
        return millrace_fail("unknown message; give read or reset");
    return read();
}
