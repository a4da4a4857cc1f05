/* fuzz_packet INPUTS SEED: mutates so many valid packets, for compilers without libFuzzer. */
#include <string.h>

#include "check.h"
#include "syn_packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static uint64_t state;

static uint32_t random_below(uint32_t limit)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % limit);
}

static size_t mutate(uint8_t *data)
{
    for (uint32_t i = random_below(6); i > 0; i--)
        data[random_below(SYN_PACKET_BYTES)] =
            (uint8_t[]){0, 1, 0x7f, 0x80, 0xff, (uint8_t)random_below(256)}[random_below(6)];
    return random_below(8) ? SYN_PACKET_BYTES : random_below(2 * SYN_PACKET_BYTES);
}

int main(int count, char **arguments)
{
    CHECK(count == 3);
    uint64_t inputs = strtoull(arguments[1], NULL, 10);
    state = strtoull(arguments[2], NULL, 10);
    static const struct syn_packet_key KEY = {1, "key for fuzzing."};
    uint8_t data[2 * SYN_PACKET_BYTES];
    for (uint64_t i = 0; i < inputs; i++) {
        struct syn_packet packet = {.type = (uint8_t)(1 + random_below(2)),
                                    .flow_id = random_below(64), .seq = random_below(128),
                                    .epoch = random_below(3)};
        if (packet.type == SYN_PACKET_REPLY) {
            packet.high_seq = random_below(2) ? random_below(128) : random_below(UINT32_MAX);
            packet.first_seq = random_below(2) ? random_below(128) : random_below(UINT32_MAX);
            packet.bitmap = random_below(UINT32_MAX);
        }
        memset(data, 0, sizeof data);
        syn_packet_encode(&packet, &KEY, data);
        size_t length = mutate(data);
        (void)LLVMFuzzerTestOneInput(data, length);
    }
    return 0;
}
