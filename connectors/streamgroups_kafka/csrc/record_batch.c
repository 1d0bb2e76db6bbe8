/* See record_batch.h. */
#include "record_batch.h"

#include <stdlib.h>
#include <string.h>

#include "crc32c.h"

/* Places in a batch's header. */
enum {
    LENGTH_OFFSET = 8,
    MAGIC_OFFSET = 16,
    CRC_OFFSET = 17,
    ATTRIBUTES_OFFSET = 21,
    LAST_OFFSET_DELTA_OFFSET = 23,
    FIRST_TIMESTAMP_OFFSET = 27,
    MAX_TIMESTAMP_OFFSET = 35,
    PRODUCER_ID_OFFSET = 43,
    PRODUCER_EPOCH_OFFSET = 51,
    BASE_SEQUENCE_OFFSET = 53,
    RECORDS_OFFSET = 57,
};

#define MAGIC 2
#define TRANSACTIONAL 0x10
#define CODEC_MASK 0x07
#define INITIAL_CAPACITY 16

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

static uint64_t zigzag(int64_t value) {
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static size_t varint_size(int64_t value) {
    return (size_t)(70 - __builtin_clzll(zigzag(value) | 1)) / 7;
}

static uint8_t *put_varint(uint8_t *p, int64_t value) {
    uint64_t left = zigzag(value);
    for (; left >= 0x80; left >>= 7)
        *p++ = (uint8_t)(left | 0x80);
    *p++ = (uint8_t)left;
    return p;
}

static void put_number(uint8_t *p, uint64_t value, int width) {
    for (int i = width - 1; i >= 0; i--, value >>= 8)
        p[i] = (uint8_t)value;
}

/* ---- the order of rows -------------------------------------------------------------------------------------------- */

static int is_sorted(const int32_t *partitions, int64_t rows) {
    for (int64_t i = 1; i < rows; i++)
        if (partitions[i - 1] > partitions[i])
            return 0;
    return 1;
}

/* Sorts rows by partition and keeps the order within each: a radix sort over the bytes in which partitions differ. */
static int sort_rows(Plan *plan, int32_t any_bit) {
    size_t rows = (size_t)plan->records->rows;
    const int32_t *partitions = plan->records->partitions;
    plan->order = malloc(rows * sizeof *plan->order);
    uint32_t *from = malloc(rows * sizeof *from);
    if (plan->order == NULL || from == NULL) {
        free(from);
        return -1;
    }
    for (size_t i = 0; i < rows; i++)
        plan->order[i] = (uint32_t)i;
    for (int shift = 0; shift < 32 && any_bit >> shift; shift += 8) {
        size_t next[256] = {0}, before = 0;
        uint32_t *swapped = from;
        from = plan->order;
        plan->order = swapped;
        for (size_t i = 0; i < rows; i++)
            next[partitions[i] >> shift & 0xFF]++;
        for (int byte = 0; byte < 256; byte++) {
            size_t count = next[byte];
            next[byte] = before;
            before += count;
        }
        for (size_t i = 0; i < rows; i++)
            plan->order[next[partitions[from[i]] >> shift & 0xFF]++] = from[i];
    }
    free(from);
    return 0;
}

static int64_t row_at(const Plan *plan, int64_t i) {
    return plan->order ? plan->order[i] : i;
}

static int64_t time_of(const Records *records, int64_t row) {
    return records->times_ms ? records->times_ms[row] : records->time_ms;
}

/* ---- the plan ----------------------------------------------------------------------------------------------------- */

static uint64_t bytes_size(const BytesColumn *column, int64_t row) {
    int64_t size = span_at(&column->spans, row).size;
    return varint_size(size) + (size > 0 ? (uint64_t)size : 0);
}

/* The size of a record's headers; 0, which no size is, if one has no name. */
static uint64_t headers_size(const HeadersColumn *headers, int64_t row) {
    Span span = span_at(&headers->spans, row);
    if (span.size <= 0)
        return 1;
    uint64_t size = varint_size(span.size);
    for (int64_t i = span.start; i < span.start + span.size; i++) {
        if (!is_valid(headers->entry_validity, headers->entry_offset + i) || span_at(&headers->names.spans, i).size < 0)
            return 0;
        size += bytes_size(&headers->names, i) + bytes_size(&headers->values, i);
    }
    return size;
}

static PlannedBatch *batch_new(Plan *plan) {
    if (plan->n_batches == plan->capacity) {
        size_t capacity = plan->capacity ? 2 * plan->capacity : INITIAL_CAPACITY;
        PlannedBatch *batches = realloc(plan->batches, capacity * sizeof *batches);
        if (batches == NULL)
            return NULL;
        plan->batches = batches;
        plan->capacity = capacity;
    }
    return &plan->batches[plan->n_batches++];
}

/* The size of a record's body, of which `payload` is what does not depend on the batch, as record `n` of a batch. */
static uint64_t body_size(uint64_t payload, int64_t time_delta_ms, int32_t n) {
    return 1 + varint_size(time_delta_ms) + varint_size(n) + payload;
}

static uint64_t record_size(uint64_t body) {
    return varint_size((int64_t)body) + body;
}

/* What no record can have, or NULL. A length is an int32 in the format; the header's rest is counted with it, and then some. */
static const char *fault(int32_t partition, int64_t time_ms, uint64_t headers, uint64_t payload) {
    if (partition < 0)
        return "a negative partition";
    if (time_ms < 0)
        return "a negative timestamp";
    if (headers == 0)
        return "a header without a name";
    if (payload > INT32_MAX - 2 * BATCH_HEADER_SIZE)
        return "a record that is too large for Kafka's format";
    return NULL;
}

/* Plans the record at place `i` of the order. `limits` is at the next partition; NULL without limits. */
static PlanStatus plan_record(Plan *plan, int64_t i, size_t max_bytes, const int32_t **limits, Error *error) {
    const Records *records = plan->records;
    int64_t row = row_at(plan, i), time_ms = time_of(records, row);
    int32_t partition = records->partitions[row];
    uint64_t headers = headers_size(&records->headers, row);
    uint64_t payload = bytes_size(&records->keys, row) + bytes_size(&records->values, row) + headers, body = 0;
    *error = (Error){row, fault(partition, time_ms, headers, payload)};
    if (error->reason != NULL)
        return PLAN_REJECTED;
    PlannedBatch *batch = plan->n_batches ? &plan->batches[plan->n_batches - 1] : NULL;
    int is_begun = batch != NULL && batch->partition == partition, goes_in = is_begun;
    if (goes_in) {
        body = body_size(payload, time_ms - batch->first_time_ms, batch->n_records);
        goes_in = batch->size + record_size(body) <= max_bytes && batch->n_records != batch->max_records;
    }
    if (!goes_in) {
        batch = batch_new(plan);
        if (batch == NULL)
            return PLAN_OUT_OF_MEMORY;
        *batch = (PlannedBatch){.partition = partition,
                                .first = i,
                                .first_time_ms = time_ms,
                                .max_time_ms = time_ms,
                                .size = BATCH_HEADER_SIZE,
                                .max_records = *limits == NULL || is_begun ? 0 : *(*limits)++};
        body = body_size(payload, 0, 0);
    }
    batch->n_records++;
    batch->size += record_size(body);
    if (batch->max_time_ms < time_ms)
        batch->max_time_ms = time_ms;
    plan->body_sizes[i] = (uint32_t)body;
    return PLANNED;
}

PlanStatus plan_with_limits(Plan *plan, const int32_t *limits, size_t max_bytes, Error *error) {
    plan->n_batches = 0;
    for (int64_t i = 0; i < plan->records->rows; i++) {
        PlanStatus status = plan_record(plan, i, max_bytes, &limits, error);
        if (status != PLANNED)
            return status;
    }
    return PLANNED;
}

PlanStatus plan_batches(Plan *plan, const Records *records, size_t max_bytes, Error *error) {
    *plan = (Plan){.records = records};
    int32_t any_bit = 0;
    for (int64_t i = 0; i < records->rows; i++)
        any_bit |= records->partitions[i];
    if (any_bit >= 0 && !is_sorted(records->partitions, records->rows) && sort_rows(plan, any_bit))
        return PLAN_OUT_OF_MEMORY;
    plan->body_sizes = malloc((size_t)records->rows * sizeof *plan->body_sizes + 1);
    if (plan->body_sizes == NULL)
        return PLAN_OUT_OF_MEMORY;
    return plan_with_limits(plan, NULL, max_bytes, error);
}

int64_t plan_row(const Plan *plan, const PlannedBatch *batch, int32_t i) {
    return row_at(plan, batch->first + i);
}

void plan_free(Plan *plan) {
    free(plan->order);
    free(plan->body_sizes);
    free(plan->batches);
    *plan = (Plan){0};
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

static uint8_t *put_bytes(uint8_t *p, const BytesColumn *column, int64_t row) {
    Span span = span_at(&column->spans, row);
    p = put_varint(p, span.size);
    if (span.size <= 0)
        return p;
    memcpy(p, column->bytes + span.start, (size_t)span.size);
    return p + span.size;
}

static uint8_t *put_headers(uint8_t *p, const HeadersColumn *headers, int64_t row) {
    Span span = span_at(&headers->spans, row);
    if (span.size < 0)
        span.size = 0;
    p = put_varint(p, span.size);
    for (int64_t i = span.start; i < span.start + span.size; i++) {
        p = put_bytes(p, &headers->names, i);
        p = put_bytes(p, &headers->values, i);
    }
    return p;
}

/* Length and checksum, which come last. */
static void write_crc(uint8_t *batch, size_t size) {
    put_number(batch + LENGTH_OFFSET, size - LENGTH_OFFSET - 4, 4);
    put_number(batch + CRC_OFFSET, crc32c(batch + ATTRIBUTES_OFFSET, size - ATTRIBUTES_OFFSET), 4);
}

void batch_write(const Plan *plan, const PlannedBatch *batch, Producer producer, int32_t base_sequence, uint8_t *out) {
    const Records *records = plan->records;
    memset(out, 0, BATCH_HEADER_SIZE); /* the broker sets the base offset and the leader's epoch */
    out[MAGIC_OFFSET] = MAGIC;
    put_number(out + ATTRIBUTES_OFFSET, producer.transactional ? TRANSACTIONAL : 0, 2);
    put_number(out + LAST_OFFSET_DELTA_OFFSET, (uint64_t)batch->n_records - 1, 4);
    put_number(out + FIRST_TIMESTAMP_OFFSET, (uint64_t)batch->first_time_ms, 8);
    put_number(out + MAX_TIMESTAMP_OFFSET, (uint64_t)batch->max_time_ms, 8);
    put_number(out + PRODUCER_ID_OFFSET, (uint64_t)producer.id, 8);
    put_number(out + PRODUCER_EPOCH_OFFSET, (uint64_t)producer.epoch, 2);
    put_number(out + BASE_SEQUENCE_OFFSET, (uint64_t)(int64_t)base_sequence, 4);
    put_number(out + RECORDS_OFFSET, (uint64_t)batch->n_records, 4);
    uint8_t *p = out + BATCH_HEADER_SIZE;
    for (int32_t i = 0; i < batch->n_records; i++) {
        int64_t row = plan_row(plan, batch, i);
        p = put_varint(p, plan->body_sizes[batch->first + i]);
        *p++ = 0; /* attributes: none are in use */
        p = put_varint(p, time_of(records, row) - batch->first_time_ms);
        p = put_varint(p, i);
        p = put_bytes(p, &records->keys, row);
        p = put_bytes(p, &records->values, row);
        p = put_headers(p, &records->headers, row);
    }
    write_crc(out, batch->size);
}

void batch_write_compressed(const uint8_t *header, int codec, const uint8_t *compressed, size_t size, uint8_t *out) {
    memcpy(out, header, BATCH_HEADER_SIZE);
    out[ATTRIBUTES_OFFSET + 1] = (uint8_t)((out[ATTRIBUTES_OFFSET + 1] & ~CODEC_MASK) | codec);
    memcpy(out + BATCH_HEADER_SIZE, compressed, size);
    write_crc(out, BATCH_HEADER_SIZE + size);
}
