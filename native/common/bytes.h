/* Unaligned loads and stores in a stated byte order. */
#ifndef SYN_BYTES_H
#define SYN_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t syn_load_le64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static inline uint32_t syn_load_be32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return be32toh(value);
}

static inline uint64_t syn_load_be64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return be64toh(value);
}

static inline void syn_store_be32(uint8_t *at, uint32_t value)
{
    value = htobe32(value);
    memcpy(at, &value, sizeof value);
}

static inline void syn_store_be64(uint8_t *at, uint64_t value)
{
    value = htobe64(value);
    memcpy(at, &value, sizeof value);
}

#endif
