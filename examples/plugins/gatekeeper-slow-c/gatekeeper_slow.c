/*
 * gatekeeper-slow: the host companion of gatekeeper. It allows ports below 9005, and denies others. For a
 * denied port it requests a filter that drops the packets, so that no worker spends a call on them.
 *
 * `millrace control NAME read --companion` shows how many ports it was asked about, and how many of them it
 * denied.
 *
 * Each answer takes some milliseconds: a loop stands for a search in a large table.
 */
#include "millrace.h"

MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"gatekeeper-slow\",\"version\":\"0.1.0\","
                "\"summary\":\"Host companion of gatekeeper.\",\"positions\":[\"early\"],"
                "\"messages\":{\"read\":\"how many ports it was asked about\"},"
                "\"capabilities\":[\"log\",\"request\",\"message\"]}");

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    (void)settings, (void)bytes;
    return 0;
}

static uint64_t asked, denied;

/* The router calls this for no packets: the plugin at the workers sends packets as messages. */
void millrace_packets(struct millrace_call *call) { (void)call; }

static void deny(uint16_t port) {
    denied++;
    char memory[128];
    struct millrace_text text = {memory, sizeof memory - 1, 0, false};
    millrace_add(&text, "{\"add-filter\":{\"match\":\"proto udp dport ");
    millrace_add_number(&text, port);
    millrace_add(&text, "\",\"action\":\"drop\"}}");
    memory[text.length] = 0;
    if (!millrace_request(memory))
        millrace_log(MILLRACE_WARNING, "a filter could not be asked for");
}

/* Receives a packet, from its link header on: Ethernet without a VLAN, IPv4 without options, UDP. */
void millrace_message(const uint8_t *packet, size_t length) {
    if (length < 42 || packet[12] != 8 || packet[14] != 0x45)
        return;
    uint16_t port = (uint16_t)(packet[36] << 8 | packet[37]);
    asked++;
    for (volatile uint32_t round = 0; round < 10000000; round++)
        ;
    uint8_t answer[3] = {(uint8_t)port, (uint8_t)(port >> 8), port < 9005 ? 1 : 2};
    if (port >= 9005)
        deny(port);
    millrace_send(answer, sizeof answer);
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    (void)name, (void)name_bytes, (void)arguments, (void)bytes;
    char memory[64];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    millrace_add(&text, "{\"asked\":");
    millrace_add_number(&text, asked);
    millrace_add(&text, ",\"denied\":");
    millrace_add_number(&text, denied);
    millrace_add(&text, "}");
    return millrace_reply_text(&text);
}
