/* Found at the first call, by each thread that comes early: the answer is the same, so no lock is
 * held that a fork could copy. Where nothing is found (a libc without dlsym in reach), the system
 * call itself serves. */
#include "next.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Absent from programs that link an older glibc without libdl. */
extern __typeof__(dlsym) dlsym __attribute__((weak));

static void *look_up(_Atomic(void *) *known, const char *name, void *otherwise) {
    void *found = atomic_load_explicit(known, memory_order_relaxed);
    if (found != NULL)
        return found;
    if (dlsym != NULL)
        found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        found = otherwise;
    atomic_store_explicit(known, found, memory_order_relaxed);
    return found;
}

static int call_socket(int domain, int type, int protocol) {
    return (int)syscall(SYS_socket, domain, type, protocol);
}

static int call_connect(int fd, const struct sockaddr *address, socklen_t length) {
    return (int)syscall(SYS_connect, fd, address, length);
}

static int call_getsockopt(int fd, int level, int option, void *value, socklen_t *length) {
    return (int)syscall(SYS_getsockopt, fd, level, option, value, length);
}

static int call_setsockopt(int fd, int level, int option, const void *value, socklen_t length) {
    return (int)syscall(SYS_setsockopt, fd, level, option, value, length);
}

static int call_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    return (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
}

int syn_next_socket(int domain, int type, int protocol) {
    static _Atomic(void *) known;
    int (*next)(int, int, int) = look_up(&known, "socket", (void *)call_socket);
    return next(domain, type, protocol);
}

int syn_next_connect(int fd, const struct sockaddr *address, socklen_t length) {
    static _Atomic(void *) known;
    int (*next)(int, const struct sockaddr *, socklen_t) =
        look_up(&known, "connect", (void *)call_connect);
    return next(fd, address, length);
}

int syn_next_getsockopt(int fd, int level, int option, void *value, socklen_t *length) {
    static _Atomic(void *) known;
    int (*next)(int, int, int, void *, socklen_t *) =
        look_up(&known, "getsockopt", (void *)call_getsockopt);
    return next(fd, level, option, value, length);
}

int syn_next_setsockopt(int fd, int level, int option, const void *value, socklen_t length) {
    static _Atomic(void *) known;
    int (*next)(int, int, int, const void *, socklen_t) =
        look_up(&known, "setsockopt", (void *)call_setsockopt);
    return next(fd, level, option, value, length);
}

int syn_next_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    static _Atomic(void *) known;
    int (*next)(int, int, int, struct epoll_event *) =
        look_up(&known, "epoll_ctl", (void *)call_epoll_ctl);
    return next(epoll, operation, fd, event);
}
