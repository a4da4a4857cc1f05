/* Where an MPTCP socket answers otherwise than the TCP socket that the program believes it has. */
#ifndef SYN_TCP_QUIRKS_H
#define SYN_TCP_QUIRKS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

/* Whether the kernel has this as an MPTCP socket. Leaves errno alone. */
bool syn_is_mptcp(int fd);

/* Whether setting failed with `error` only because the socket is MPTCP, and doing nothing serves a
 * program as well as the option would. */
bool syn_set_is_harmless(int fd, int level, int option, int error);

/* Answers in the kernel's place where reading failed with `error` because the socket is MPTCP: with
 * what is in force. False: the kernel's refusal stands. */
bool syn_get_instead(int fd, int level, int option, int error, void *value, socklen_t *length);

/* TCP_INFO of the subflow that does the work: established, not backing off, most bytes carried.
 * False: no such thing here, ask the kernel. */
bool syn_best_tcp_info(int fd, void *value, socklen_t *length);

#endif
