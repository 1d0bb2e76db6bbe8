/*
 * CRC-32C (Castagnoli), the checksum of Kafka's record batches.
 *
 * Used by record_batch.c. x86-64 with SSE 4.2 and 64-bit ARM with the CRC extension have an instruction for it, which is looked for
 * when the process runs; other processors use tables. Source: RFC 3720, appendix B.4; KIP-98 (message format 2).
 */
#ifndef STREAMGROUPS_CRC32C_H
#define STREAMGROUPS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Makes the tables and looks for the instruction. Called once, before the others. */
void crc32c_init(void);

/* Whether the processor's instruction is used. */
int crc32c_in_hardware(void);

/* The checksum of the bytes, the quickest way there is here. */
uint32_t crc32c(const void *bytes, size_t size);

/* The same by the tables. */
uint32_t crc32c_by_table(const void *bytes, size_t size);

#endif
