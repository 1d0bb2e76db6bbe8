/*
 * Kafka's record batches (message format 2), planned and then written.
 *
 * Used by encoder.c. No Python here: everything runs without the GIL. A plan says how large each batch will be, to the byte; so
 * all that can be rejected is rejected before anything is written, and each batch is written where it stays. Source: KIP-98,
 * KIP-82; Kafka's DefaultRecordBatch and DefaultRecord.
 */
#ifndef STREAMGROUPS_RECORD_BATCH_H
#define STREAMGROUPS_RECORD_BATCH_H

#include "arrow_records.h"

/* Who writes; without an identity, id, epoch and base sequences are -1. */
typedef struct {
    int64_t id;
    int16_t epoch;
    int transactional;
} Producer;

/* Rows [first, first + n_records) of the plan's order, which go to one partition. */
typedef struct {
    int32_t partition;
    int32_t n_records;
    int64_t first;
    int64_t first_time_ms;
    int64_t max_time_ms;
    size_t size;
    int32_t max_records; /* 0: as many as fit */
} PlannedBatch;

typedef struct {
    const Records *records;
    uint32_t *order;      /* rows sorted by partition, otherwise as they come; NULL if they are so already */
    uint32_t *body_sizes; /* of each record, in that order, without its length */
    PlannedBatch *batches;
    size_t n_batches;
    size_t capacity;
} Plan;

/* PLAN_RAISED: for callers that know Python; an exception is set. */
typedef enum { PLANNED = 0, PLAN_OUT_OF_MEMORY = -1, PLAN_REJECTED = -2, PLAN_RAISED = -3 } PlanStatus;

/*
 * Plans batches of at most `max_bytes` each; a record that is larger gets a batch of its own. `records` must outlive the plan.
 * Of whatever comes `plan_free` must be called.
 */
PlanStatus plan_batches(Plan *plan, const Records *records, size_t max_bytes, Error *error);

/*
 * Plans the batches again, the first of each partition with a limit of records; 0 for none. `limits` has one number for each
 * partition, in the order of the batches.
 */
PlanStatus plan_with_limits(Plan *plan, const int32_t *limits, size_t max_bytes, Error *error);

/* The row of the batch's record `i`. */
int64_t plan_row(const Plan *plan, const PlannedBatch *batch, int32_t i);

/* Writes a batch, `batch->size` bytes, without compression. */
void batch_write(const Plan *plan, const PlannedBatch *batch, Producer producer, int32_t base_sequence, uint8_t *out);

void plan_free(Plan *plan);

/* The size of a batch's header: everything before its records. */
#define BATCH_HEADER_SIZE 61

/*
 * Makes a batch whose records are compressed of one whose records are not: `out`, BATCH_HEADER_SIZE + size bytes, gets the header
 * at `header`, with the codec's number, and the compressed records.
 */
void batch_write_compressed(const uint8_t *header, int codec, const uint8_t *compressed, size_t size, uint8_t *out);

#endif
