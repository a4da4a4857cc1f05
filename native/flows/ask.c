/* The questions put to the kernel, and its answers taken in. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "syn_flows.h"

enum {
    DUMP_BYTES = 1 << 16,  /* the kernel fills at most 32 KiB at once */
    BATCH = 32,            /* questions in one message: their answers fit any receive buffer */
    ANSWER_BYTES = 2048,
    WAIT_S = 2,
    EXTENSIONS = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_TOS - 1) |
                 1 << (INET_DIAG_TCLASS - 1),
};

struct question {
    struct nlmsghdr header;
    struct inet_diag_req_v2 request;
};

struct syn_flows {
    int fd;
    uint32_t seq;
    uint8_t dump[DUMP_BYTES] __attribute__((aligned(8)));
    uint8_t answers[BATCH][ANSWER_BYTES] __attribute__((aligned(8)));
    struct question questions[BATCH];
};

struct syn_flows *syn_flows_open(void)
{
    struct syn_flows *flows = calloc(1, sizeof *flows);
    if (flows == NULL)
        return NULL;
    flows->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    struct timeval patience = {.tv_sec = WAIT_S};
    if (flows->fd < 0 ||
        setsockopt(flows->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0) {
        int error = errno;
        syn_flows_close(flows);
        errno = error;
        return NULL;
    }
    return flows;
}

void syn_flows_close(struct syn_flows *flows)
{
    if (flows == NULL)
        return;
    if (flows->fd >= 0)
        close(flows->fd);
    free(flows);
}

/* --- dumps ---------------------------------------------------------------------------------- */

/* Where found sockets go: `place` puts one message's payload at `index`, 0 if it is malformed. */
struct harvest {
    int (*place)(void *out, size_t index, const uint8_t *data, size_t length);
    void *out;
    size_t room;
    int64_t count;
};

static int take_payload(struct harvest *harvest, const uint8_t *data, size_t length)
{
    if ((size_t)harvest->count < harvest->room &&
        !harvest->place(harvest->out, (size_t)harvest->count, data, length))
        return -EBADMSG;
    harvest->count++;
    return 0;
}

/* 1: the dump is over. */
static int take_datagram(const struct syn_flows *flows, size_t length, struct harvest *harvest)
{
    const struct nlmsghdr *at = (const struct nlmsghdr *)flows->dump;
    for (; NLMSG_OK(at, length); at = NLMSG_NEXT(at, length)) {
        if (at->nlmsg_seq != flows->seq)
            continue; /* of a question whose answer was given up */
        if (at->nlmsg_type == NLMSG_DONE)
            return 1;
        size_t payload = at->nlmsg_len - NLMSG_HDRLEN;
        if (at->nlmsg_type == NLMSG_ERROR) {
            const struct nlmsgerr *error = NLMSG_DATA(at);
            return payload >= sizeof error->error && error->error ? error->error : -EBADMSG;
        }
        int failed = take_payload(harvest, NLMSG_DATA(at), payload);
        if (failed)
            return failed;
    }
    return 0;
}

static int64_t harvest_dump(struct syn_flows *flows, struct harvest *harvest)
{
    for (;;) {
        ssize_t length = recv(flows->fd, flows->dump, sizeof flows->dump, 0);
        if (length < 0 && errno == EINTR)
            continue;
        if (length < 0)
            return -errno;
        int over = take_datagram(flows, (size_t)length, harvest);
        if (over)
            return over < 0 ? over : harvest->count;
    }
}

static int send_dump(struct syn_flows *flows, const struct question *question,
                     const struct nlattr *head, const uint8_t *body, size_t bytes)
{
    static const uint8_t PADDING[NLA_ALIGNTO];
    struct iovec parts[] = {
        {(void *)question, sizeof *question},
        {(void *)head, head ? sizeof *head : 0},
        {(void *)body, bytes},
        {(void *)PADDING, NLA_ALIGN(bytes) - bytes},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 4};
    return sendmsg(flows->fd, &message, 0) < 0 ? -errno : 0;
}

static int64_t dump(struct syn_flows *flows, struct inet_diag_req_v2 request, uint16_t extra,
                    const uint8_t *body, size_t bytes, struct harvest *harvest)
{
    struct nlattr head = {.nla_len = (uint16_t)(NLA_HDRLEN + bytes), .nla_type = extra};
    struct question question = {.request = request};
    question.header = (struct nlmsghdr){
        .nlmsg_len = (uint32_t)(sizeof question + (bytes ? NLA_HDRLEN + NLA_ALIGN(bytes) : 0)),
        .nlmsg_type = SOCK_DIAG_BY_FAMILY,
        .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
        .nlmsg_seq = ++flows->seq,
    };
    int failed = send_dump(flows, &question, bytes ? &head : NULL, body, bytes);
    return failed ? failed : harvest_dump(flows, harvest);
}

static int place_sample(void *out, size_t index, const uint8_t *data, size_t length)
{
    return syn_flow_parse(data, length, (struct syn_flow_sample *)out + index);
}

static int place_owner(void *out, size_t index, const uint8_t *data, size_t length)
{
    return syn_flow_parse_owner(data, length, (struct syn_flow_owner *)out + index);
}

int64_t syn_flows_find(struct syn_flows *flows, uint8_t family, uint32_t states,
                       const uint8_t *filter, size_t filter_bytes, struct syn_flow_sample *out,
                       size_t room)
{
    struct inet_diag_req_v2 request = {
        .sdiag_family = family == 6 ? AF_INET6 : AF_INET,
        .sdiag_protocol = IPPROTO_TCP,
        .idiag_ext = EXTENSIONS,
        .idiag_states = states,
    };
    struct harvest harvest = {place_sample, out, room, 0};
    return dump(flows, request, INET_DIAG_REQ_BYTECODE, filter, filter ? filter_bytes : 0,
                &harvest);
}

int64_t syn_flows_owners(struct syn_flows *flows, uint8_t family, struct syn_flow_owner *out,
                         size_t room)
{
    struct inet_diag_req_v2 request = {
        .sdiag_family = family == 6 ? AF_INET6 : AF_INET,
        .idiag_ext = EXTENSIONS,
        .idiag_states = UINT32_MAX,
    };
    uint32_t protocol = IPPROTO_MPTCP; /* beyond the 8 bits of the request itself */
    struct harvest harvest = {place_owner, out, room, 0};
    return dump(flows, request, INET_DIAG_REQ_PROTOCOL, (const uint8_t *)&protocol,
                sizeof protocol, &harvest);
}

/* --- one by one ----------------------------------------------------------------------------- */

static struct question question_for(const struct syn_flow_sample *sample, uint32_t seq)
{
    struct question asked = {
        .header = {.nlmsg_len = sizeof asked, .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = seq},
        .request = {.sdiag_family = sample->family == 6 ? AF_INET6 : AF_INET,
                    .sdiag_protocol = IPPROTO_TCP,
                    .idiag_ext = EXTENSIONS,
                    .idiag_states = UINT32_MAX},
    };
    struct inet_diag_sockid *id = &asked.request.id;
    id->idiag_sport = htons(sample->local_port);
    id->idiag_dport = htons(sample->remote_port);
    memcpy(id->idiag_src, sample->local, sizeof sample->local);
    memcpy(id->idiag_dst, sample->remote, sizeof sample->remote);
    id->idiag_if = sample->ifindex;
    id->idiag_cookie[0] = (uint32_t)sample->cookie;
    id->idiag_cookie[1] = (uint32_t)(sample->cookie >> 32);
    return asked;
}

/* What answers question `at` of a batch that began with sequence number `first`. */
static int take_answer(const uint8_t *data, size_t length, uint32_t first, size_t count,
                       struct syn_flow_sample *samples)
{
    const struct nlmsghdr *header = (const struct nlmsghdr *)data;
    if (!NLMSG_OK(header, length))
        return -EBADMSG;
    uint32_t at = header->nlmsg_seq - first;
    if (at >= count)
        return 0; /* of a batch given up */
    if (header->nlmsg_type == NLMSG_ERROR) {
        samples[at].state = 0;
        return 1;
    }
    struct syn_flow_sample fresh;
    if (!syn_flow_parse(NLMSG_DATA(header), header->nlmsg_len - NLMSG_HDRLEN, &fresh))
        return -EBADMSG;
    samples[at] = fresh;
    return 1;
}

static int receive_answers(struct syn_flows *flows, uint32_t first, size_t count,
                           struct syn_flow_sample *samples)
{
    struct mmsghdr messages[BATCH];
    struct iovec vectors[BATCH];
    for (size_t missing = count; missing > 0;) {
        for (size_t i = 0; i < missing; i++) {
            vectors[i] = (struct iovec){flows->answers[i], ANSWER_BYTES};
            messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
        }
        int got = recvmmsg(flows->fd, messages, (unsigned)missing, MSG_WAITFORONE, NULL);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        for (int i = 0; i < got; i++) {
            int taken = take_answer(flows->answers[i], messages[i].msg_len, first, count, samples);
            if (taken < 0)
                return taken;
            missing -= (size_t)taken;
        }
    }
    return 0;
}

static int sample_batch(struct syn_flows *flows, struct syn_flow_sample *samples, size_t count)
{
    uint32_t first = flows->seq + 1;
    flows->seq += (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        flows->questions[i] = question_for(&samples[i], first + (uint32_t)i);
    if (send(flows->fd, flows->questions, count * sizeof *flows->questions, 0) < 0)
        return -errno;
    return receive_answers(flows, first, count, samples);
}

int syn_flows_sample(struct syn_flows *flows, struct syn_flow_sample *samples, size_t count)
{
    for (size_t done = 0; done < count; done += BATCH) {
        size_t batch = count - done < BATCH ? count - done : BATCH;
        int failed = sample_batch(flows, samples + done, batch);
        if (failed)
            return failed;
    }
    return 0;
}
