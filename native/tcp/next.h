/* The functions that a program would have called without us: libc's, or another preloaded
 * library's that comes after. */
#ifndef SYN_TCP_NEXT_H
#define SYN_TCP_NEXT_H

#include <sys/epoll.h>
#include <sys/socket.h>

int syn_next_socket(int domain, int type, int protocol);
int syn_next_connect(int fd, const struct sockaddr *address, socklen_t length);
int syn_next_getsockopt(int fd, int level, int option, void *value, socklen_t *length);
int syn_next_setsockopt(int fd, int level, int option, const void *value, socklen_t length);
int syn_next_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

#endif
