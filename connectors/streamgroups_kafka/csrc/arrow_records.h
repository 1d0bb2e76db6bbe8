/*
 * Records to be written, read from an Arrow record batch where they lie.
 *
 * Used by record_batch.c, and by encoder.c, which gets the batch from Python. No Python here. What the Arrow C data interface
 * does not tell, how long buffers are, the caller must have checked (pyarrow's `validate`); everything else is checked here.
 * Source: the Arrow C data interface and columnar format.
 */
#ifndef STREAMGROUPS_ARROW_RECORDS_H
#define STREAMGROUPS_ARROW_RECORDS_H

#include "arrow_batch.h"

/* The rest of the Arrow C data interface, as its specification says to copy it. */
#ifndef STREAMGROUPS_ARROW_SCHEMA
#define STREAMGROUPS_ARROW_SCHEMA
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
#endif

/* What is wrong with the records: of a row, or of all of them (row -1). */
typedef struct {
    int64_t row;
    const char *reason;
} Error;

/* Where each of some rows begins and ends in something else: bytes, or the entries of lists. */
typedef struct {
    const uint8_t *validity; /* NULL: no row is null */
    const void *ends;        /* NULL: every row is null */
    int is_large;            /* `ends` are 64-bit */
    int64_t offset;          /* of row 0, in validity and ends */
} Spans;

typedef struct {
    Spans spans;
    const uint8_t *bytes;
} BytesColumn;

typedef struct {
    Spans spans;
    const uint8_t *entry_validity;
    int64_t entry_offset;
    BytesColumn names;
    BytesColumn values;
} HeadersColumn;

/* The columns. Those that are not there are null in every row; without `times_ms` every row has the same time. */
typedef struct {
    int64_t rows;
    const int32_t *partitions;
    const int64_t *times_ms;
    int64_t time_ms;
    BytesColumn keys;
    BytesColumn values;
    HeadersColumn headers;
} Records;

/* A row's part of something: `size` is -1 if it is null. */
typedef struct {
    int64_t start;
    int64_t size;
} Span;

static inline int is_valid(const uint8_t *validity, int64_t i) {
    return validity == NULL || (validity[i >> 3] >> (i & 7) & 1);
}

static inline Span span_at(const Spans *spans, int64_t row) {
    int64_t i = spans->offset + row, start, end;
    if (spans->ends == NULL || !is_valid(spans->validity, i))
        return (Span){0, -1};
    if (spans->is_large) {
        start = ((const int64_t *)spans->ends)[i];
        end = ((const int64_t *)spans->ends)[i + 1];
    } else {
        start = ((const int32_t *)spans->ends)[i];
        end = ((const int32_t *)spans->ends)[i + 1];
    }
    return (Span){start, end - start};
}

/*
 * Finds the columns `key`, `value`, `headers` (binary or string, large or not), `timestamp` (int64, milliseconds) and `partition`
 * (int32) in a batch. Returns 0, or -1 with the reason in `error`. The batch must live for as long as `records` is used.
 */
int records_from(const struct ArrowSchema *schema, const struct ArrowArray *array, Records *records, Error *error);

/* The same for an array of keys alone, of any name. */
int keys_from(const struct ArrowSchema *schema, const struct ArrowArray *array, BytesColumn *keys, Error *error);

#endif
