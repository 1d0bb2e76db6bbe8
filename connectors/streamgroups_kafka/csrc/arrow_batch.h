/*
 * One Arrow record batch of Kafka records, built row by row from librdkafka's messages.
 *
 * Used by client.c, which appends, and module.c, which hands the finished batch to Python. No Python here: everything runs
 * without the GIL. Source: the Arrow columnar format and the Arrow C data interface.
 */
#ifndef STREAMGROUPS_ARROW_BATCH_H
#define STREAMGROUPS_ARROW_BATCH_H

#include "rdkafka_api.h"

/* The Arrow C data interface's own structure, as its specification says to copy it. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

/* What a column shows of a record. The order is that of `columns.COLUMNS` in Python, which passes these numbers. */
typedef enum { KEY, VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS, N_FIELDS } Field;

typedef struct {
    uint8_t *data;
    size_t size;
    size_t capacity;
} Buffer;

/* Values of any length, some of them null: validity bits (only once a null was seen), offsets, bytes. */
typedef struct {
    Buffer validity;
    Buffer offsets;
    Buffer bytes;
    int64_t length;
    int64_t null_count;
} Bytes;

typedef struct {
    Field field;
    Buffer fixed;          /* PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE: the values */
    Buffer fixed_validity; /* TIMESTAMP only, like `fixed_null_count` */
    int64_t fixed_null_count;
    Bytes variable;       /* KEY, VALUE, TOPIC: the values; HEADERS: the names */
    Bytes header_values;  /* HEADERS only */
    Buffer list_validity; /* HEADERS only, like `list_offsets` and `list_null_count` */
    Buffer list_offsets;
    int64_t list_null_count;
} Column;

typedef struct {
    Column columns[N_FIELDS];
    int n_columns;
    int64_t rows;
    size_t bytes; /* of keys, values and headers */
} Batch;

/* What of a record has no place in a column, so that it is null there. */
enum { BAD_HEADER_NAME = 1, BAD_TIMESTAMP = 2, BAD_HEADERS = 4 };
#define N_FLAWS 3

/* A record, before it is appended. */
typedef struct {
    size_t bytes; /* of key, value and headers, as far as there are columns for them */
    int flaws;    /* a sum of BAD_... */
} Measured;

/* An empty batch of these columns. */
void batch_init(Batch *batch, const Field *fields, int n_fields);

/* What appending a record would come to. */
Measured batch_measure(const Batch *batch, const rd_kafka_message_t *message);

/*
 * Appends one record that was measured. Returns 0; or -1 without memory, or beyond the 2^31 - 1 bytes that Arrow's offsets count: then
 * the batch is good for `batch_clear` only.
 */
int batch_append(Batch *batch, const rd_kafka_message_t *message, const char *topic, const Measured *measured);

/* Moves the rows into `out`, which owns them from then on, and leaves the batch empty. Returns 0, or -1 without memory. */
int batch_export(Batch *batch, struct ArrowArray *out);

/* Drops all rows. */
void batch_clear(Batch *batch);

#endif
