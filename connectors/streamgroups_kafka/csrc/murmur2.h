/*
 * Murmur2 with Kafka's seed: what decides the partition of a record with a key.
 *
 * Used by encoder.c. No Python here. Source: Kafka's Java client, `Utils.murmur2` (32 bits, little-endian words whatever the machine).
 */
#ifndef STREAMGROUPS_MURMUR2_H
#define STREAMGROUPS_MURMUR2_H

#include <stddef.h>
#include <stdint.h>

#include "arrow_records.h"

/* The hash of a key. */
uint32_t murmur2(const uint8_t *key, size_t size);

/* The hashes of the first `rows` keys of a column; 0 for one that is null. */
void murmur2_of_keys(const BytesColumn *keys, int64_t rows, uint32_t *hashes);

#endif
