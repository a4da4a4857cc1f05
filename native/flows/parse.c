/* One inet_diag message to one sample. Pure. */
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/mptcp.h>
#include <linux/netlink.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include "syn_flows.h"

enum {
    MPTCP_INFO_TOKEN_AT = 12, /* mptcpi_token in struct mptcp_info, since 5.9 */
    TYPE_MASK = 0x3fff,
    ECN_BITS = 2, /* below the DSCP in the byte of the header */
};

struct span {
    const uint8_t *data;
    size_t length;
};

/* The next attribute of `rest`, which shrinks by it: 1; 0 at the end, -1 if it does not fit. */
static int next_attribute(struct span *rest, uint16_t *type, struct span *value)
{
    struct nlattr header;
    if (rest->length < sizeof header)
        return 0;
    memcpy(&header, rest->data, sizeof header);
    if (header.nla_len < sizeof header || header.nla_len > rest->length)
        return -1;
    *type = header.nla_type & TYPE_MASK;
    *value = (struct span){rest->data + sizeof header, header.nla_len - sizeof header};
    size_t step = NLA_ALIGN(header.nla_len);
    step = step < rest->length ? step : rest->length;
    rest->data += step;
    rest->length -= step;
    return 1;
}

/* INET_ULP_INFO_MPTCP: which connection a subflow is of, and under which address id. */
static int take_subflow(struct span value, struct syn_flow_sample *out)
{
    uint16_t type;
    struct span inner;
    int more;
    while ((more = next_attribute(&value, &type, &inner)) > 0) {
        if (type == MPTCP_SUBFLOW_ATTR_TOKEN_LOC && inner.length == sizeof out->token)
            memcpy(&out->token, inner.data, sizeof out->token);
        else if (type == MPTCP_SUBFLOW_ATTR_ID_LOC && inner.length == sizeof out->local_id)
            out->local_id = inner.data[0];
    }
    return more;
}

static int take_protocol(struct span value, struct syn_flow_sample *out)
{
    uint16_t type;
    struct span inner;
    int more;
    while ((more = next_attribute(&value, &type, &inner)) > 0)
        if (type == INET_ULP_INFO_MPTCP && take_subflow(inner, out) < 0)
            return -1;
    return more;
}

static void take_info(struct span value, struct syn_flow_sample *out)
{
    struct tcp_info info = {0}; /* an older kernel's is shorter, a newer one's longer */
    memcpy(&info, value.data, value.length < sizeof info ? value.length : sizeof info);
    out->bytes_acked = info.tcpi_bytes_acked;
    out->bytes_received = info.tcpi_bytes_received;
    out->pacing_rate = info.tcpi_pacing_rate;
    out->delivery_rate = info.tcpi_delivery_rate;
    out->busy_us = info.tcpi_busy_time;
    out->window_limited_us = info.tcpi_rwnd_limited;
    out->unacked = info.tcpi_unacked;
    out->notsent_bytes = info.tcpi_notsent_bytes;
    out->retransmits = info.tcpi_total_retrans;
    out->last_ack_ms = info.tcpi_last_ack_recv;
    out->last_sent_ms = info.tcpi_last_data_sent;
    out->rtt_us = info.tcpi_rtt;
    out->rttvar_us = info.tcpi_rttvar;
    out->rto_us = info.tcpi_rto;
    out->snd_wnd = info.tcpi_snd_wnd;
    /* The kernel keeps one counter for both kinds of backing off. */
    out->window_probes = info.tcpi_probes;
    out->backoff = info.tcpi_probes ? 0 : info.tcpi_backoff;
}

static uint64_t cookie_of(const struct inet_diag_sockid *id)
{
    return (uint64_t)id->idiag_cookie[1] << 32 | id->idiag_cookie[0];
}

static void take_identity(const struct inet_diag_msg *message, struct syn_flow_sample *out)
{
    out->cookie = cookie_of(&message->id);
    out->ifindex = message->id.idiag_if;
    out->inode = message->idiag_inode;
    out->family = message->idiag_family == AF_INET6 ? 6 : 4;
    out->state = message->idiag_state;
    out->local_port = ntohs(message->id.idiag_sport);
    out->remote_port = ntohs(message->id.idiag_dport);
    size_t bytes = out->family == 6 ? 16 : 4;
    memcpy(out->local, message->id.idiag_src, bytes);
    memcpy(out->remote, message->id.idiag_dst, bytes);
}

/* The attribute that says with which class packets leave: an IPv6 socket has one for either family,
 * and sends IPv4 where its peer's address is mapped. */
static uint16_t class_attribute(const struct syn_flow_sample *sample)
{
    struct in6_addr remote;
    memcpy(&remote, sample->remote, sizeof remote);
    return sample->family == 6 && !IN6_IS_ADDR_V4MAPPED(&remote) ? INET_DIAG_TCLASS : INET_DIAG_TOS;
}

int syn_flow_parse(const uint8_t *data, size_t length, struct syn_flow_sample *out)
{
    struct inet_diag_msg message;
    if (length < sizeof message)
        return 0;
    memcpy(&message, data, sizeof message);
    memset(out, 0, sizeof *out);
    take_identity(&message, out);
    uint16_t class_type = class_attribute(out);
    out->dscp = -1;
    struct span rest = {data + sizeof message, length - sizeof message};
    struct span value;
    uint16_t type;
    int more;
    while ((more = next_attribute(&rest, &type, &value)) > 0) {
        if (type == INET_DIAG_INFO)
            take_info(value, out);
        else if (type == class_type && value.length == 1)
            out->dscp = (int8_t)(value.data[0] >> ECN_BITS);
        else if (type == INET_DIAG_ULP_INFO && take_protocol(value, out) < 0)
            return 0;
    }
    return more == 0;
}

int syn_flow_parse_owner(const uint8_t *data, size_t length, struct syn_flow_owner *out)
{
    struct inet_diag_msg message;
    if (length < sizeof message)
        return 0;
    memcpy(&message, data, sizeof message);
    *out = (struct syn_flow_owner){.cookie = cookie_of(&message.id),
                                   .inode = message.idiag_inode};
    struct span rest = {data + sizeof message, length - sizeof message};
    struct span value;
    uint16_t type;
    int more;
    while ((more = next_attribute(&rest, &type, &value)) > 0)
        if (type == INET_DIAG_INFO && value.length >= MPTCP_INFO_TOKEN_AT + sizeof out->token)
            memcpy(&out->token, value.data + MPTCP_INFO_TOKEN_AT, sizeof out->token);
    return more == 0;
}
