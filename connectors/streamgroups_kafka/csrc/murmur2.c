/* See murmur2.h. */
#include "murmur2.h"

#define SEED UINT32_C(0x9747b28c)
#define FACTOR UINT32_C(0x5bd1e995)

/* Up to four bytes as a number, the first one lowest. For four, compilers make one load of it. */
static inline uint32_t word(const uint8_t *bytes, size_t size) {
    uint32_t number = 0;
    for (size_t i = 0; i < size; i++)
        number |= (uint32_t)bytes[i] << (8 * i);
    return number;
}

uint32_t murmur2(const uint8_t *key, size_t size) {
    const uint8_t *end = key + (size & ~(size_t)3);
    uint32_t hash = SEED ^ (uint32_t)size;
    for (; key < end; key += 4) {
        uint32_t mixed = word(key, 4) * FACTOR;
        mixed ^= mixed >> 24;
        hash = hash * FACTOR ^ mixed * FACTOR;
    }
    if (size & 3)
        hash = (hash ^ word(key, size & 3)) * FACTOR;
    hash ^= hash >> 13;
    hash *= FACTOR;
    return hash ^ hash >> 15;
}

void murmur2_of_keys(const BytesColumn *keys, int64_t rows, uint32_t *hashes) {
    for (int64_t row = 0; row < rows; row++) {
        Span key = span_at(&keys->spans, row);
        hashes[row] = key.size < 0 ? 0 : murmur2(keys->bytes + key.start, (size_t)key.size);
    }
}
