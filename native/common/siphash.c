#include "siphash.h"

#include "bytes.h"

struct state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

static inline void sip_round(struct state *s)
{
    s->v0 += s->v1;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static inline void absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

uint64_t syn_siphash24(const uint8_t key[16], const uint8_t *data, size_t length)
{
    uint64_t k0 = syn_load_le64(key);
    uint64_t k1 = syn_load_le64(key + 8);
    struct state s = {
        k0 ^ UINT64_C(0x736f6d6570736575),
        k1 ^ UINT64_C(0x646f72616e646f6d),
        k0 ^ UINT64_C(0x6c7967656e657261),
        k1 ^ UINT64_C(0x7465646279746573),
    };
    size_t whole = length & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8)
        absorb(&s, syn_load_le64(data + i));
    uint64_t last = (uint64_t)length << 56;
    for (size_t i = whole; i < length; i++)
        last |= (uint64_t)data[i] << (8 * (i - whole));
    absorb(&s, last);
    s.v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
