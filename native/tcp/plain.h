/* A program's MPTCP socket becomes the TCP socket it asked for. */
#ifndef SYN_TCP_PLAIN_H
#define SYN_TCP_PLAIN_H

#include <stdbool.h>
#include <sys/socket.h>

/* Puts a TCP socket with the same options and flags in the place of `fd`, an MPTCP socket that is
 * neither bound nor connected. False: it is one of these, or something failed; `fd` is as it was.
 * May change errno. */
bool syn_make_plain(int fd);

/* Whether the address is one of this host's own: traffic to it never meets a NIC. May change errno.
 */
bool syn_is_own_address(const struct sockaddr *address, socklen_t length);

#endif
