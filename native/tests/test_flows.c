/* inet_diag messages: one built by hand is read whole; cut and mutated ones are read or refused.
 * test_flows [COUNT SEED] mutates so many. */
#include <linux/inet_diag.h>
#include <linux/mptcp.h>
#include <linux/netlink.h>
#include <linux/tcp.h>
#include <arpa/inet.h>
#include <string.h>

#include "check.h"
#include "syn_flows.h"

enum { ROOM = 1024 };

static size_t put(uint8_t *out, size_t at, uint16_t type, const void *value, size_t bytes)
{
    struct nlattr header = {(uint16_t)(sizeof header + bytes), type};
    memcpy(out + at, &header, sizeof header);
    memcpy(out + at + sizeof header, value, bytes);
    return at + NLA_ALIGN(header.nla_len);
}

static size_t put_token(uint8_t *out, size_t at, uint32_t token)
{
    uint8_t subflow[64] = {0}, ulp[128] = {0};
    uint32_t other = 77;
    uint8_t local_id = 32, remote_id = 33;
    size_t end = put(subflow, 0, MPTCP_SUBFLOW_ATTR_TOKEN_REM, &other, sizeof other);
    end = put(subflow, end, MPTCP_SUBFLOW_ATTR_ID_REM, &remote_id, sizeof remote_id);
    end = put(subflow, end, MPTCP_SUBFLOW_ATTR_ID_LOC, &local_id, sizeof local_id);
    end = put(subflow, end, MPTCP_SUBFLOW_ATTR_TOKEN_LOC, &token, sizeof token);
    size_t outer = put(ulp, 0, INET_ULP_INFO_NAME, "mptcp", 6);
    outer = put(ulp, outer, INET_ULP_INFO_MPTCP | NLA_F_NESTED, subflow, end);
    return put(out, at, INET_DIAG_ULP_INFO | NLA_F_NESTED, ulp, outer);
}

enum { CLASS_OF_IPV4 = 10, CLASS_OF_IPV6 = 46, ECN = 2 };

static size_t put_class(uint8_t *out, size_t at)
{
    uint8_t ipv4 = CLASS_OF_IPV4 << 2 | ECN, ipv6 = CLASS_OF_IPV6 << 2 | ECN;
    return put(out, put(out, at, INET_DIAG_TCLASS, &ipv6, 1), INET_DIAG_TOS, &ipv4, 1);
}

static size_t make_message(uint8_t *out)
{
    struct inet_diag_msg message = {.idiag_family = AF_INET6, .idiag_state = 1,
                                    .idiag_inode = 4711};
    message.id.idiag_sport = htons(1000);
    message.id.idiag_dport = htons(2000);
    message.id.idiag_cookie[0] = 5;
    message.id.idiag_cookie[1] = 1;
    memset(message.id.idiag_src, 1, 16);
    memset(message.id.idiag_dst, 2, 16);
    struct tcp_info info = {.tcpi_unacked = 12, .tcpi_backoff = 3, .tcpi_last_ack_recv = 34,
                            .tcpi_rtt = 56, .tcpi_total_retrans = 7, .tcpi_bytes_acked = 89,
                            .tcpi_busy_time = 70, .tcpi_rwnd_limited = 60};
    memset(out, 0, ROOM);
    memcpy(out, &message, sizeof message);
    size_t end = put(out, sizeof message, INET_DIAG_INFO, &info, sizeof info);
    return put_token(out, put_class(out, end), 0xabcdef);
}

static void a_message_is_read_whole(void)
{
    uint8_t data[ROOM];
    struct syn_flow_sample sample;
    CHECK(syn_flow_parse(data, make_message(data), &sample));
    CHECK_EQUAL(sample.cookie, (INT64_C(1) << 32) + 5);
    CHECK_EQUAL(sample.family, 6);
    CHECK_EQUAL(sample.local_port, 1000);
    CHECK_EQUAL(sample.remote_port, 2000);
    CHECK_EQUAL(sample.local[15], 1);
    CHECK_EQUAL(sample.remote[15], 2);
    CHECK_EQUAL(sample.inode, 4711);
    CHECK_EQUAL(sample.token, 0xabcdef);
    CHECK_EQUAL(sample.local_id, 32);
    CHECK_EQUAL(sample.unacked, 12);
    CHECK_EQUAL(sample.backoff, 3);
    CHECK_EQUAL(sample.last_ack_ms, 34);
    CHECK_EQUAL(sample.rtt_us, 56);
    CHECK_EQUAL(sample.retransmits, 7);
    CHECK_EQUAL(sample.bytes_acked, 89);
    CHECK_EQUAL(sample.dscp, CLASS_OF_IPV6);
    CHECK_EQUAL(sample.busy_us, 70);
    CHECK_EQUAL(sample.window_limited_us, 60);
}

static int dscp_of(uint8_t family, const char *remote, size_t (*more)(uint8_t *, size_t))
{
    uint8_t data[ROOM] = {0};
    struct inet_diag_msg message = {.idiag_family = family};
    CHECK_EQUAL(inet_pton(family, remote, message.id.idiag_dst), 1);
    memcpy(data, &message, sizeof message);
    struct syn_flow_sample sample;
    CHECK(syn_flow_parse(data, more ? more(data, sizeof message) : sizeof message, &sample));
    return sample.dscp;
}

static size_t put_wide_class(uint8_t *out, size_t at)
{
    uint16_t wide = 0x2828;
    return put(out, at, INET_DIAG_TOS, &wide, sizeof wide);
}

static void the_class_is_that_of_the_packets_family(void)
{
    CHECK_EQUAL(dscp_of(AF_INET, "10.0.0.1", put_class), CLASS_OF_IPV4);
    CHECK_EQUAL(dscp_of(AF_INET6, "fd00::1", put_class), CLASS_OF_IPV6);
    CHECK_EQUAL(dscp_of(AF_INET6, "::ffff:10.0.0.1", put_class), CLASS_OF_IPV4);
    CHECK_EQUAL(dscp_of(AF_INET, "10.0.0.1", NULL), -1);
    CHECK_EQUAL(dscp_of(AF_INET, "10.0.0.1", put_wide_class), -1);
}

static void a_closed_window_is_no_timeout(void)
{
    uint8_t data[ROOM];
    struct syn_flow_sample sample;
    size_t length = make_message(data);
    size_t info_at = sizeof(struct inet_diag_msg) + sizeof(struct nlattr);
    data[info_at + offsetof(struct tcp_info, tcpi_probes)] = 2;
    CHECK(syn_flow_parse(data, length, &sample));
    CHECK_EQUAL(sample.backoff, 0);
    CHECK_EQUAL(sample.window_probes, 2);
}

/* What follows in memory is poisoned by the sanitizer: a copy of exactly the length that is reported. */
static int parse_copy(const uint8_t *data, size_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    struct syn_flow_sample sample;
    struct syn_flow_owner owner;
    memcpy(copy, data, length);
    int parsed = syn_flow_parse(copy, length, &sample);
    CHECK(syn_flow_parse_owner(copy, length, &owner) >= 0);
    free(copy);
    return parsed;
}

static void short_messages_are_refused_or_read_in_part(void)
{
    uint8_t data[ROOM];
    size_t whole = make_message(data);
    for (size_t length = 0; length < whole; length++)
        CHECK(length >= sizeof(struct inet_diag_msg) || !parse_copy(data, length));
    CHECK(!parse_copy(data, whole - 1));
}

static void mutate(uint64_t count, uint64_t state)
{
    for (uint64_t n = 0; n < count; n++) {
        uint8_t data[ROOM];
        size_t length = make_message(data);
        for (int i = 0; i < 4; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            /* Mostly in headers of attributes: they lie at multiples of 4. */
            data[(state >> 33) % length & ((state >> 60) ? ~(uint64_t)3 : ~(uint64_t)0)] =
                (uint8_t)(state >> 20);
        }
        parse_copy(data, (state >> 40) % 4 ? length : (state >> 42) % length);
    }
}

int main(int count, char **arguments)
{
    a_message_is_read_whole();
    the_class_is_that_of_the_packets_family();
    a_closed_window_is_no_timeout();
    short_messages_are_refused_or_read_in_part();
    if (count == 3)
        mutate(strtoull(arguments[1], NULL, 10), strtoull(arguments[2], NULL, 10));
    return 0;
}
