#include "setup.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config.h"
#include "log.h"

_Static_assert(sizeof(struct handle) <= 128, "NCCL's handle");

enum stage { CONNECTING, WAIT_HELLO, BUILDING, WAIT_READY };
enum { BACKLOG = 256 }; /* in the kernel: a port scan between two calls does not fill it */

struct setup {
    enum stage stage;
    bool is_peer; /* it knows the cookie */
    unsigned connected; /* a bit for each rail that is, or may be */
    const char *problem; /* of one that is not */
    uint64_t cookie;
    struct conn *conn;
};

static bool interface_is_wanted(const char *name)
{
    return config.interface ? config_is_listed(config.interface, name, 0)
                            : strncmp(name, "docker", 6) != 0;
}

static socklen_t address_size(const struct sockaddr *address)
{
    return address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* The first interface that is up; loopback only if there is no other, or it is named. */
static bool own_address(struct sockaddr_storage *address)
{
    struct ifaddrs *all, *best = NULL;
    int rank = 0;
    if (getifaddrs(&all))
        return false;
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (one->ifa_addr == NULL || !(one->ifa_flags & IFF_UP) ||
            (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) ||
            !interface_is_wanted(one->ifa_name))
            continue;
        if (one->ifa_addr->sa_family == AF_INET6 &&
            IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr))
            continue;
        int here = (one->ifa_flags & IFF_LOOPBACK ? 1 : 3) + (one->ifa_addr->sa_family == AF_INET);
        if (here > rank) {
            rank = here;
            best = one;
        }
    }
    if (best)
        memcpy(address, best->ifa_addr, address_size(best->ifa_addr));
    freeifaddrs(all);
    return best != NULL;
}

const char *setup_listen(int group, int traffic_class, struct handle *handle,
                         struct listener **listener)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (!own_address(&address))
        return "no address for control connections (SYNTONY_NCCL_SOCKET_IFNAME)";
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct listener *made = calloc(1, sizeof *made);
    if (fd < 0 || made == NULL || bind(fd, (void *)&address, address_size((void *)&address)) ||
        listen(fd, BACKLOG) || getsockname(fd, (void *)&address, &size) ||
        getrandom(&made->cookie, sizeof made->cookie, 0) != sizeof made->cookie) {
        if (fd >= 0)
            close(fd);
        free(made);
        return "cannot listen for a control connection";
    }
    made->fd = fd;
    made->group = group;
    made->traffic_class = traffic_class;
    *handle = (struct handle){.magic = WIRE_MAGIC, .cookie = made->cookie, .version = WIRE_VERSION};
    memcpy(handle->address, &address, sizeof handle->address);
    *listener = made;
    return NULL;
}

static void drop(struct setup *setup)
{
    struct conn *conn = setup->conn;
    link_end(&conn->link);
    conn_free(conn);
    free(setup);
}

void setup_close_listener(struct listener *listener)
{
    for (int i = 0; i < listener->count; i++)
        drop(listener->pending[i]);
    close(listener->fd);
    free(listener);
}

/* A rail that cannot be connected now may be later, if another one can. */
static void leave_out(struct setup *setup, int r, const char *problem)
{
    INFO("rail %s: %s", setup->conn->queues[r].port->name, problem);
    setup->connected &= ~(1U << r);
    setup->problem = problem;
}

/* A connection without queue pairs; NULL: no memory. */
static struct setup *begin(int fd, int group, bool is_sender, int traffic_class, uint64_t cookie)
{
    struct setup *made = calloc(1, sizeof *made);
    struct conn *conn = calloc(1, sizeof *conn);
    if (made == NULL || conn == NULL) {
        free(made);
        free(conn);
        close(fd);
        return NULL;
    }
    *made = (struct setup){.cookie = cookie, .conn = conn};
    link_begin(&conn->link, fd);
    link_end_after(&conn->link, config.survive_ns);
    conn->is_sender = is_sender;
    conn->group = groups[group];
    conn->rails = conn->group.rails;
    conn->seed = (uint32_t)(cookie >> (is_sender ? 0 : 16));
    conn->traffic_class = traffic_class;
    return made;
}

/* Of each rail its queue pairs, not connected. */
static const char *make_queues(struct setup *setup)
{
    struct conn *conn = setup->conn;
    for (int r = 0; r < conn->rails; r++) {
        struct port *port = &ports[conn->group.rail[r]];
        struct queues *queues = &conn->queues[r];
        conn->failures[r] = atomic_load(&port->failures);
        const char *problem = queues_make(queues, port, (int)config.qps, conn->is_sender);
        bool is_gone = problem && !port_is_there(port);
        if (problem && !is_gone)
            return problem;
        conn->given_up |= (unsigned)is_gone << r;
        if (is_gone || queues->no_address)
            leave_out(setup, r, is_gone ? "its device has gone" : queues->no_address);
        else
            setup->connected |= 1U << r;
    }
    return NULL;
}

static void say_hello(struct setup *setup)
{
    struct conn *conn = setup->conn;
    struct hello hello = {.magic = WIRE_MAGIC, .cookie = setup->cookie, .version = WIRE_VERSION,
                          .rails = (uint32_t)conn->rails};
    struct control control = {.kind = CONTROL_HELLO, .length = sizeof hello};
    for (int r = 0; r < conn->rails; r++)
        hello.rail[r] = conn->queues[r].local;
    link_send(&conn->link, &control, &hello);
    setup->stage = WAIT_HELLO;
}

static const char *take_hello(struct setup *setup, const struct control *control,
                              const void *payload)
{
    struct conn *conn = setup->conn;
    struct hello hello;
    if (control->kind != CONTROL_HELLO || control->length != sizeof hello)
        return "the peer does not speak this plug-in's protocol";
    memcpy(&hello, payload, sizeof hello);
    if (hello.magic != WIRE_MAGIC || hello.cookie != setup->cookie)
        return "the peer does not speak this plug-in's protocol";
    setup->is_peer = true;
    if (hello.version != WIRE_VERSION)
        return "the peer has another version of this plug-in";
    if (hello.rails < 1 || hello.rails > MAX_RAILS)
        return "the peer sent no valid rails";
    for (int r = (int)hello.rails; r < conn->rails; r++) {
        queues_end(&conn->queues[r]);
        conn->queues[r].port = NULL;
    }
    if (conn->rails > (int)hello.rails)
        conn->rails = (int)hello.rails;
    const char *problem = conn->is_sender ? NULL : make_queues(setup);
    if (problem)
        return problem;
    for (int r = 0; r < conn->rails; r++) {
        struct build_order order = {.connect = true, .remote = hello.rail[r], .generation = 1,
                                    .seed = conn->seed, .traffic_class = conn->traffic_class};
        if (!(setup->connected >> r & 1))
            continue;
        if (hello.rail[r].qps == 0) {
            leave_out(setup, r, "its port at the peer has no usable GID: a line there says why");
            continue;
        }
        problem = build_begin(&conn->build[r], &conn->queues[r], &order);
        if (problem)
            return problem;
    }
    setup->stage = BUILDING;
    return NULL;
}

/* As soon as all rails are connected here, the peer learns of it; also if none can be, so that it
 * finds out why. */
static const char *finish_building(struct setup *setup)
{
    struct conn *conn = setup->conn;
    bool running = false;
    for (int r = 0; r < conn->rails; r++) {
        const char *problem = NULL;
        if (build_ended(&conn->build[r], &problem) && problem)
            leave_out(setup, r, problem);
        running |= conn->build[r].running;
    }
    if (running)
        return NULL;
    if (!conn->is_sender)
        say_hello(setup);
    link_send(&conn->link, &(struct control){.kind = CONTROL_READY, .bits = setup->connected},
              NULL);
    if (setup->connected == 0)
        return setup->problem;
    setup->stage = WAIT_READY;
    return NULL;
}

/* Ready: the connection is handed over. */
static const char *advance(struct setup *setup, struct conn **conn)
{
    struct control control;
    const void *payload = NULL;
    const char *problem = setup->stage == BUILDING ? finish_building(setup) : NULL;
    int got = 0;
    link_flush(&setup->conn->link);
    while (problem == NULL && setup->stage != BUILDING &&
           (got = link_receive(&setup->conn->link, &control, &payload)) > 0) {
        if (setup->stage == WAIT_HELLO) {
            problem = take_hello(setup, &control, payload);
        } else if (control.kind == CONTROL_READY) {
            setup->connected &= control.bits;
            if (setup->connected == 0)
                return "no rail is connected at both ends";
            link_end_after(&setup->conn->link, -1);
            conn_begin(setup->conn, setup->connected);
            *conn = setup->conn;
            return NULL;
        } else
            return "the peer does not speak this plug-in's protocol";
    }
    if (problem)
        return problem;
    if (got < 0)
        return "the peer does not speak this plug-in's protocol";
    return setup->conn->link.closed ? "the peer closed the control connection, or its host is gone"
                                    : NULL;
}

/* Whether the control connection stands; `problem` if it never will. */
static bool is_connected(const struct setup *setup, const struct handle *handle,
                         const char **problem)
{
    struct sockaddr_storage address = {0};
    memcpy(&address, handle->address, sizeof handle->address);
    if (connect(setup->conn->link.fd, (void *)&address, address_size((void *)&address)) == 0 ||
        errno == EISCONN)
        return true;
    if (errno != EINPROGRESS && errno != EALREADY && errno != EINTR)
        *problem = "the peer's control address cannot be reached";
    return false;
}

const char *setup_connect(int group, int traffic_class, struct handle *handle, struct conn **conn)
{
    *conn = NULL;
    const char *problem = NULL;
    if (handle->magic != WIRE_MAGIC) /* also what looks like `pending` is foreign then */
        return "the peer uses another net plug-in, or none";
    if (handle->version != WIRE_VERSION)
        return "the peer has another version of this plug-in";
    if (handle->pending == NULL) {
        struct sockaddr_storage address = {0};
        memcpy(&address, handle->address, sizeof handle->address);
        int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return "no socket for a control connection";
        handle->pending = begin(fd, group, true, traffic_class, handle->cookie);
        if (handle->pending == NULL)
            return "no memory";
        problem = make_queues(handle->pending);
        if (problem == NULL && handle->pending->connected == 0)
            problem = handle->pending->problem;
    }
    struct setup *setup = handle->pending;
    if (problem == NULL && setup->stage == CONNECTING && is_connected(setup, handle, &problem))
        say_hello(setup);
    if (problem == NULL && setup->stage != CONNECTING)
        problem = advance(setup, conn);
    if (problem || *conn) {
        handle->pending = NULL;
        *conn ? free(setup) : drop(setup);
    }
    return problem;
}

static void remove_pending(struct listener *listener, int i)
{
    listener->count--;
    memmove(listener->pending + i, listener->pending + i + 1,
            (size_t)(listener->count - i) * sizeof *listener->pending);
}

/* One that does not know the cookie: a line for the first, for a port scan has many. */
static void refuse(struct listener *listener, struct setup *stranger, const char *problem)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    char host[INET6_ADDRSTRLEN + IFNAMSIZ] = "a host that has gone";
    if (getpeername(stranger->conn->link.fd, (void *)&address, &size) == 0)
        getnameinfo((void *)&address, size, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    SAY(listener->refused++ ? LOG_INFO : LOG_WARN,
        "a control connection from %s was refused: %s", host, problem);
    drop(stranger);
}

/* -1: all that are pending are peers. */
static int oldest_stranger(const struct listener *listener)
{
    for (int i = 0; i < listener->count; i++)
        if (!listener->pending[i]->is_peer)
            return i;
    return -1;
}

/* One more is pending, the last one, perhaps instead of the oldest stranger. False: none waits, there
 * is no room, or there is a problem. */
static bool take_waiting(struct listener *listener, const char **problem)
{
    int stranger = listener->count < MAX_PENDING ? 0 : oldest_stranger(listener);
    if (stranger < 0)
        return false;
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            *problem = "cannot accept";
        return false;
    }
    struct setup *setup =
        begin(fd, listener->group, false, listener->traffic_class, listener->cookie);
    if (setup == NULL) {
        *problem = "no memory";
        return false;
    }
    setup->stage = WAIT_HELLO;
    if (listener->count == MAX_PENDING) {
        struct setup *oldest = listener->pending[stranger];
        remove_pending(listener, stranger);
        refuse(listener, oldest, "no greeting, and too many others wait");
    }
    listener->pending[listener->count++] = setup;
    return true;
}

/* Whether it is still pending. */
static bool go_on(struct listener *listener, int i, struct conn **conn, const char **problem)
{
    struct setup *setup = listener->pending[i];
    const char *wrong = advance(setup, conn);
    if (wrong == NULL && *conn == NULL)
        return true;
    remove_pending(listener, i);
    if (*conn) {
        free(setup);
    } else if (setup->is_peer) {
        *problem = wrong;
        drop(setup);
    } else
        refuse(listener, setup, wrong);
    return false;
}

const char *setup_accept(struct listener *listener, struct conn **conn)
{
    const char *problem = NULL;
    *conn = NULL;
    for (int i = 0; i < listener->count && problem == NULL && *conn == NULL;)
        i += go_on(listener, i, conn, &problem);
    if (problem == NULL && *conn == NULL && take_waiting(listener, &problem))
        go_on(listener, listener->count - 1, conn, &problem);
    return problem;
}
