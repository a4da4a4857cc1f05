/* Vectors of the SipHash authors' reference implementation (vectors_sip64): key 00..0f, input
 * 00, 00 01, 00 01 02 and so on. */
#include "check.h"
#include "siphash.h"

static const struct {
    size_t length;
    uint64_t tag;
} VECTORS[] = {
    {0, UINT64_C(0x726fdb47dd0e0e31)},  {1, UINT64_C(0x74f839c593dc67fd)},
    {2, UINT64_C(0x0d6c8009d9a94f5a)},  {3, UINT64_C(0x85676696d7fb7e2d)},
    {4, UINT64_C(0xcf2794e0277187b7)},  {5, UINT64_C(0x18765564cd99a68d)},
    {6, UINT64_C(0xcbc9466e58fee3ce)},  {7, UINT64_C(0xab0200f58b01d137)},
    {8, UINT64_C(0x93f5f5799a932462)},  {15, UINT64_C(0xa129ca6149be45e5)},
    {63, UINT64_C(0x958a324ceb064572)},
};

int main(void)
{
    uint8_t key[16], data[64];
    for (int i = 0; i < 16; i++)
        key[i] = (uint8_t)i;
    for (int i = 0; i < 64; i++)
        data[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof VECTORS / sizeof *VECTORS; i++)
        CHECK_EQUAL(syn_siphash24(key, data, VECTORS[i].length), VECTORS[i].tag);
    return 0;
}
