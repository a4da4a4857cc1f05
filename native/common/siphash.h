/* SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012), 64-bit output. */
#ifndef SYN_SIPHASH_H
#define SYN_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* Tag of `length` bytes under a 16-byte key. */
uint64_t syn_siphash24(const uint8_t key[16], const uint8_t *data, size_t length);

#endif
