#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct link *open_links;
static const int64_t LEAST_SILENCE_NS = INT64_C(1000000000);

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (struct link *link = open_links; link; link = link->next)
        close(link->fd);
    open_links = NULL;
    pthread_mutex_unlock(&lock);
}

int link_leave_at_fork(void)
{
    return pthread_atfork(before_fork, after_fork, in_child);
}

void link_begin(struct link *link, int fd)
{
    int on = 1;
    *link = (struct link){.fd = fd};
    pthread_mutex_lock(&lock);
    link->next = open_links;
    open_links = link;
    pthread_mutex_unlock(&lock);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void link_end_after(struct link *link, int64_t silence_ns)
{
    unsigned ms = silence_ns < 0 ? 0 : silence_ns < LEAST_SILENCE_NS
                      ? (unsigned)(LEAST_SILENCE_NS / 1000000) : (unsigned)(silence_ns / 1000000);
    int idle_s = ms ? (int)(ms / 4000 + 1) : 7200, again_s = ms ? idle_s : 75;
    setsockopt(link->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    setsockopt(link->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(link->fd, IPPROTO_TCP, TCP_KEEPINTVL, &again_s, sizeof again_s);
}

void link_shut(struct link *link)
{
    shutdown(link->fd, SHUT_RDWR);
}

void link_flush(struct link *link)
{
    while (link->out_used && !link->closed) {
        ssize_t sent = send(link->fd, link->out, link->out_used, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            /* Reading finds out what arrived before the peer went. */
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                link->out_used = 0;
            return;
        }
        link->out_used -= (size_t)sent;
        memmove(link->out, link->out + sent, link->out_used);
    }
}

/* What is not read would make Linux reset the connection, and drop what the peer has not yet got. */
static void read_away(struct link *link)
{
    while (recv(link->fd, link->in, sizeof link->in, MSG_DONTWAIT) > 0)
        ;
}

void link_end(struct link *link)
{
    link_flush(link);
    read_away(link);
    pthread_mutex_lock(&lock);
    struct link **at = &open_links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    close(link->fd);
    pthread_mutex_unlock(&lock);
}

void link_send(struct link *link, const struct control *control, const void *payload)
{
    if (link->out_used + sizeof *control + control->length > sizeof link->out)
        link->closed = true; /* the peer does not read: more than all rails can have to say */
    if (link->closed)
        return;
    memcpy(link->out + link->out_used, control, sizeof *control);
    link->out_used += sizeof *control;
    if (control->length)
        memcpy(link->out + link->out_used, payload, control->length);
    link->out_used += control->length;
    link_flush(link);
}

/* Up to `wanted` bytes of a message are there. */
static bool fill(struct link *link, size_t wanted)
{
    while (link->in_used < wanted && !link->closed) {
        ssize_t got = recv(link->fd, link->in + link->in_used, wanted - link->in_used, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (got <= 0)
            link->closed = true;
        else
            link->in_used += (size_t)got;
    }
    return link->in_used >= wanted;
}

int link_receive(struct link *link, struct control *control, const void **payload)
{
    if (!fill(link, sizeof *control))
        return 0;
    memcpy(control, link->in, sizeof *control);
    if (control->length > LINK_PAYLOAD)
        return -1;
    if (!fill(link, sizeof *control + control->length))
        return 0;
    *payload = link->in + sizeof *control;
    link->in_used = 0;
    return 1;
}
