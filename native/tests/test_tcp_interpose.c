/* The interposer inside this very program, under sanitizers: its socket() is the one called here.
 * Run with SYNTONY_TCP_EXCLUDE=1-1023 and SYNTONY_TCP_DEBUG=1. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "plain.h"
#include "quirks.h"

enum { THREADS = 8, ROUNDS = 50 };

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listener(uint16_t *port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(listen(fd, 1024) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static int number_of(int fd, int level, int option)
{
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, option, &value, &length) == 0);
    return value;
}

static void what_becomes_mptcp(void)
{
    static const struct {
        int domain, type, protocol;
        bool mptcp;
    } CASES[] = {
        {AF_INET, SOCK_STREAM, 0, true},
        {AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP, true},
        {AF_INET, SOCK_STREAM, IPPROTO_MPTCP, true},
        {AF_INET, SOCK_DGRAM, 0, false},
        {AF_INET6, SOCK_DGRAM, IPPROTO_UDP, false},
        {AF_UNIX, SOCK_STREAM, 0, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        errno = 77;
        int fd = socket(CASES[i].domain, CASES[i].type, CASES[i].protocol);
        CHECK(fd >= 0);
        CHECK_EQUAL(errno, 77);
        CHECK_EQUAL(syn_is_mptcp(fd), CASES[i].mptcp);
        CHECK_EQUAL(fcntl(fd, F_GETFD) & FD_CLOEXEC, CASES[i].type & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
        if (CASES[i].mptcp)
            CHECK_EQUAL(number_of(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
        close(fd);
    }
    CHECK(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP) == -1);
    CHECK_EQUAL(errno, EPROTONOSUPPORT);
    CHECK(socket(AF_INET, 99, 0) == -1);
    CHECK(socket(AF_INET, SOCK_STREAM | 1 << 20, 0) == -1); /* must not be taken for "no MPTCP" */
    CHECK_EQUAL(errno, EINVAL);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(syn_is_mptcp(fd));
    close(fd);
}

static void bad_arguments(void)
{
    int value = 1;
    socklen_t length = sizeof value;
    CHECK(setsockopt(-1, SOL_SOCKET, SO_REUSEADDR, &value, length) == -1);
    CHECK_EQUAL(errno, EBADF);
    CHECK(getsockopt(-1, IPPROTO_TCP, TCP_INFO, &value, &length) == -1);
    CHECK_EQUAL(errno, EBADF);
    CHECK(connect(-1, NULL, 0) == -1);
    CHECK(connect(100000, (struct sockaddr *)&(struct sockaddr_in){0}, 3) == -1);
    CHECK(epoll_ctl(-1, EPOLL_CTL_ADD, 1 << 20, NULL) == -1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, NULL, 16) == -1);
    CHECK_EQUAL(errno, EFAULT);
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, NULL, NULL) == -1);
    CHECK_EQUAL(errno, EFAULT);
    CHECK(getsockopt(fd, IPPROTO_TCP, 9999, &value, &length) == -1);
    close(fd);
}

static void user_timeout(void)
{
    const int timeout = 30000, none = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none) == 0);
    CHECK(syn_is_mptcp(fd)); /* nothing is asked for */
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, NULL, sizeof none) != 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &timeout, sizeof timeout) == 0);
    errno = 77;
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout) == 0);
    CHECK_EQUAL(errno, 77);
    CHECK(!syn_is_mptcp(fd));
    CHECK_EQUAL(number_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), timeout);
    CHECK_EQUAL(number_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    close(fd);
    fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout) == 0);
    CHECK(!syn_is_mptcp(fd));
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    close(fd);
}

static void quirks(int client, int accepted)
{
    const int one = 1, timeout = 30000;
    errno = 77;
    CHECK(setsockopt(accepted, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(setsockopt(client, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout) == 0);
    CHECK_EQUAL(number_of(client, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    CHECK_EQUAL(errno, 77);
    CHECK(setsockopt(client, IPPROTO_TCP, TCP_ULP, "tls", 3) == -1);
    unsigned char bytes[1024];
    for (socklen_t room = 0; room <= sizeof bytes; room += 64) {
        socklen_t length = room;
        memset(bytes, 0xee, sizeof bytes);
        CHECK(getsockopt(client, IPPROTO_TCP, TCP_INFO, bytes, &length) == 0);
        CHECK(length <= room);
        CHECK(length == room || length >= 200);
        for (size_t i = length; i < sizeof bytes; i++)
            CHECK_EQUAL(bytes[i], 0xee);
    }
    unsigned char two[2] = {0xee, 0xee};
    socklen_t length = 1;
    CHECK(getsockopt(client, IPPROTO_TCP, TCP_QUICKACK, two, &length) == 0);
    CHECK_EQUAL(length, 1);
    CHECK_EQUAL(two[0], 1);
    CHECK_EQUAL(two[1], 0xee);
}

static void connections(uint16_t port, int server)
{
    struct sockaddr_in address = loopback(port);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(!syn_is_mptcp(client)); /* within the host */
    close(client);
    close(accept(server, NULL, NULL));

    int set = epoll_create1(0); /* held by an epoll set, it stays what it is */
    client = socket(AF_INET, SOCK_STREAM, 0);
    struct epoll_event event = {.events = EPOLLOUT};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, client, &event) == 0);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(syn_is_mptcp(client));
    int accepted = accept(server, NULL, NULL);
    CHECK(syn_is_mptcp(accepted));
    quirks(client, accepted);
    close(client);
    close(accepted);
    close(set);

    client = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP); /* so does what the program asked for */
    CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(syn_is_mptcp(client));
    close(client);
    close(accept(server, NULL, NULL));

    client = socket(AF_INET, SOCK_STREAM, 0); /* refused: errno is connect's */
    address.sin_port = htons(1);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == -1);
    CHECK_EQUAL(errno, ECONNREFUSED);
    CHECK(!syn_make_plain(client)); /* bound by now */
    close(client);
}

static void *in_thread(void *argument)
{
    struct sockaddr_in address = loopback(*(uint16_t *)argument);
    for (int i = 0; i < ROUNDS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
        CHECK(!syn_is_mptcp(fd));
        close(fd);
    }
    return NULL;
}

static void threads_and_forks(uint16_t port, int server)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, in_thread, &port) == 0);
    pid_t child = fork(); /* while the others are in the middle of it */
    CHECK(child >= 0);
    if (child == 0) {
        in_thread(&port);
        _exit(0);
    }
    for (int i = 0; i < (THREADS + 1) * ROUNDS; i++)
        close(accept(server, NULL, NULL));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
}

int main(void)
{
    int probe = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
    if (probe < 0) {
        fprintf(stderr, "skipped: no MPTCP here: %s\n", strerror(errno));
        return 77;
    }
    close(probe);
    uint16_t port;
    what_becomes_mptcp();
    bad_arguments();
    user_timeout();
    int server = listener(&port);
    connections(port, server);
    threads_and_forks(port, server);
    close(server);
    return 0;
}
