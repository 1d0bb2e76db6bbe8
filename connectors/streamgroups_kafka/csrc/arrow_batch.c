/* See arrow_batch.h. */
#include "arrow_batch.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

#define SMALLEST_BUFFER 1024
#define MICROSECONDS_PER_MS 1000

/* ---- growing buffers ---------------------------------------------------------------------------------------------- */

static int buffer_reserve(Buffer *buffer, size_t more) {
    size_t needed = buffer->size + more;
    if (needed <= buffer->capacity)
        return 0;
    size_t capacity = buffer->capacity ? buffer->capacity : SMALLEST_BUFFER;
    while (capacity < needed)
        capacity *= 2;
    uint8_t *data = realloc(buffer->data, capacity);
    if (data == NULL)
        return -1;
    buffer->data = data;
    buffer->capacity = capacity;
    return 0;
}

static int buffer_append(Buffer *buffer, const void *bytes, size_t size) {
    if (buffer_reserve(buffer, size))
        return -1;
    memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
    return 0;
}

static void buffer_free(Buffer *buffer) {
    free(buffer->data);
    *buffer = (Buffer){0};
}

/* Appends the bit of row `row` to validity bits that begin with the first null: all rows before it are valid. */
static int validity_append(Buffer *validity, int64_t row, int valid) {
    if (validity->size == 0 && valid)
        return 0;
    size_t size = (size_t)(row / 8 + 1);
    if (size > validity->size) {
        if (buffer_reserve(validity, size - validity->size))
            return -1;
        memset(validity->data + validity->size, validity->size == 0 ? 0xFF : 0, size - validity->size);
        validity->size = size;
    }
    uint8_t bit = (uint8_t)(1u << (row % 8));
    if (valid)
        validity->data[row / 8] |= bit;
    else
        validity->data[row / 8] &= (uint8_t)~bit;
    return 0;
}

/* ---- columns ------------------------------------------------------------------------------------------------------ */

/* Arrow's offsets begin with a zero before the first value. */
static int offsets_append(Buffer *offsets, size_t end) {
    if (end > INT32_MAX)
        return -1;
    int32_t value = (int32_t)end;
    if (offsets->size == 0) {
        int32_t zero = 0;
        if (buffer_append(offsets, &zero, sizeof zero))
            return -1;
    }
    return buffer_append(offsets, &value, sizeof value);
}

static int bytes_append(Bytes *values, const void *data, size_t size) {
    if (validity_append(&values->validity, values->length, data != NULL))
        return -1;
    if (data != NULL && size > 0 && buffer_append(&values->bytes, data, size))
        return -1;
    values->null_count += data == NULL;
    values->length++;
    return offsets_append(&values->offsets, values->bytes.size);
}

/*
 * A record without headers has null, as with Spark's source; so has one with a name that is not UTF-8: the plain reader cannot see the
 * headers of such a record, and both readers give the same.
 */
static int headers_append(Column *column, int64_t row, const rd_kafka_message_t *message, const Measured *measured) {
    rd_kafka_headers_t *headers;
    int any = !(measured->flaws & BAD_HEADER_NAME) && rd.message_headers(message, &headers) == RD_ERR_NO_ERROR;
    const char *name;
    const void *value;
    size_t size, count = 0;
    for (; any && rd.header_get_all(headers, count, &name, &value, &size) == RD_ERR_NO_ERROR; count++)
        if (bytes_append(&column->variable, name, strlen(name)) || bytes_append(&column->header_values, value, size))
            return -1;
    if (validity_append(&column->list_validity, row, count > 0))
        return -1;
    column->list_null_count += count == 0;
    return offsets_append(&column->list_offsets, (size_t)column->variable.length);
}

static int fixed_append(Column *column, int64_t value, size_t width) {
    int32_t narrow = (int32_t)value;
    return width == 4 ? buffer_append(&column->fixed, &narrow, 4) : buffer_append(&column->fixed, &value, 8);
}

static int time_append(Column *column, int64_t row, const rd_kafka_message_t *message, const Measured *measured) {
    int type, bad = (measured->flaws & BAD_TIMESTAMP) != 0;
    if (validity_append(&column->fixed_validity, row, !bad))
        return -1;
    column->fixed_null_count += bad;
    return fixed_append(column, bad ? 0 : rd.message_timestamp(message, &type) * MICROSECONDS_PER_MS, 8);
}

static int column_append(Column *column, int64_t row, const rd_kafka_message_t *message, const char *topic,
                         const Measured *measured) {
    int type;
    switch (column->field) {
    case KEY:
        return bytes_append(&column->variable, message->key, message->key_len);
    case VALUE:
        return bytes_append(&column->variable, message->payload, message->len);
    case TOPIC:
        return bytes_append(&column->variable, topic, strlen(topic));
    case PARTITION:
        return fixed_append(column, message->partition, 4);
    case OFFSET:
        return fixed_append(column, message->offset, 8);
    case TIMESTAMP:
        return time_append(column, row, message, measured);
    case TIMESTAMP_TYPE:
        /* librdkafka counts from "not available" = 0, Kafka from "create time" = 0. */
        rd.message_timestamp(message, &type);
        return fixed_append(column, type - 1, 4);
    case HEADERS:
        return headers_append(column, row, message, measured);
    default:
        return -1;
    }
}

static void headers_measure(const rd_kafka_message_t *message, Measured *measured) {
    rd_kafka_headers_t *headers;
    const char *name;
    const void *value;
    size_t size, bytes = 0;
    int failed = rd.message_headers(message, &headers);
    if (failed) {
        /* librdkafka parses at most 100,000 headers, and no value with a length below -1. */
        measured->flaws |= failed == RD_ERR_NOENT ? 0 : BAD_HEADERS;
        return;
    }
    for (size_t i = 0; rd.header_get_all(headers, i, &name, &value, &size) == RD_ERR_NO_ERROR; i++) {
        size_t name_size = strlen(name);
        if (!utf8_valid((const unsigned char *)name, name_size)) {
            measured->flaws |= BAD_HEADER_NAME;
            return;
        }
        /* A header without name and value takes its two places in Arrow's offsets all the same. */
        bytes += name_size + (value ? size : 0) + 2 * sizeof(int32_t);
    }
    measured->bytes += bytes;
}

static void bytes_free(Bytes *values) {
    buffer_free(&values->validity);
    buffer_free(&values->offsets);
    buffer_free(&values->bytes);
    *values = (Bytes){0};
}

static void column_clear(Column *column) {
    Field field = column->field;
    buffer_free(&column->fixed);
    buffer_free(&column->fixed_validity);
    bytes_free(&column->variable);
    bytes_free(&column->header_values);
    buffer_free(&column->list_validity);
    buffer_free(&column->list_offsets);
    *column = (Column){.field = field};
}

/* ---- the batch ---------------------------------------------------------------------------------------------------- */

void batch_init(Batch *batch, const Field *fields, int n_fields) {
    *batch = (Batch){.n_columns = n_fields};
    for (int i = 0; i < n_fields; i++)
        batch->columns[i].field = fields[i];
}

Measured batch_measure(const Batch *batch, const rd_kafka_message_t *message) {
    Measured measured = {0};
    int type;
    for (int i = 0; i < batch->n_columns; i++) {
        Field field = batch->columns[i].field;
        if (field == KEY)
            measured.bytes += message->key_len;
        else if (field == VALUE)
            measured.bytes += message->len;
        else if (field == HEADERS)
            headers_measure(message, &measured);
        else if (field == TIMESTAMP) {
            int64_t time_ms = rd.message_timestamp(message, &type);
            if (time_ms > INT64_MAX / MICROSECONDS_PER_MS || time_ms < INT64_MIN / MICROSECONDS_PER_MS)
                measured.flaws |= BAD_TIMESTAMP;
        }
    }
    return measured;
}

int batch_append(Batch *batch, const rd_kafka_message_t *message, const char *topic, const Measured *measured) {
    for (int i = 0; i < batch->n_columns; i++)
        if (column_append(&batch->columns[i], batch->rows, message, topic, measured))
            return -1;
    batch->bytes += measured->bytes;
    batch->rows++;
    return 0;
}

void batch_clear(Batch *batch) {
    for (int i = 0; i < batch->n_columns; i++)
        column_clear(&batch->columns[i]);
    batch->rows = 0;
    batch->bytes = 0;
}

/* ---- export ------------------------------------------------------------------------------------------------------- */

#define MAX_BUFFERS 3

/* What an exported array owns. */
typedef struct {
    Buffer owned[MAX_BUFFERS];
    const void *buffers[MAX_BUFFERS];
    struct ArrowArray *children[N_FIELDS];
} Owner;

static void array_release(struct ArrowArray *array) {
    Owner *owner = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        /* A consumer may have moved a child out; it has set its release to NULL then. */
        if (child->release)
            child->release(child);
        free(child);
    }
    for (int i = 0; i < MAX_BUFFERS; i++)
        free(owner->owned[i].data);
    free(owner);
    array->release = NULL;
}

/* Makes `array` an owner of nothing yet. Returns its owner, or NULL without memory. */
static Owner *array_init(struct ArrowArray *array, int64_t length, int64_t null_count, int n_buffers) {
    Owner *owner = calloc(1, sizeof *owner);
    if (owner == NULL)
        return NULL;
    *array = (struct ArrowArray){
        .length = length,
        .null_count = null_count,
        .n_buffers = n_buffers,
        .buffers = owner->buffers,
        .children = owner->children,
        .release = array_release,
        .private_data = owner,
    };
    return owner;
}

static void owner_take(Owner *owner, int i, Buffer *buffer) {
    static const int64_t nothing[1] = {0};
    owner->owned[i] = *buffer;
    /* Only validity may be absent (i == 0); other buffers are pointers even when they are empty. */
    owner->buffers[i] = buffer->data || i == 0 ? (const void *)buffer->data : nothing;
    *buffer = (Buffer){0};
}

/* A new child of `array`, zeroed; NULL without memory. */
static struct ArrowArray *child_new(struct ArrowArray *array) {
    struct ArrowArray *child = calloc(1, sizeof *child);
    if (child != NULL)
        array->children[array->n_children++] = child;
    return child;
}

static int bytes_export(Bytes *values, struct ArrowArray *out) {
    if (out == NULL || (values->offsets.size == 0 && offsets_append(&values->offsets, 0)))
        return -1;
    Owner *owner = array_init(out, values->length, values->null_count, 3);
    if (owner == NULL)
        return -1;
    owner_take(owner, 0, &values->validity);
    owner_take(owner, 1, &values->offsets);
    owner_take(owner, 2, &values->bytes);
    *values = (Bytes){0};
    return 0;
}

static int headers_export(Column *column, int64_t rows, struct ArrowArray *out) {
    int64_t count = column->variable.length;
    Owner *owner = array_init(out, rows, column->list_null_count, 2);
    if (owner == NULL)
        return -1;
    owner_take(owner, 0, &column->list_validity);
    owner_take(owner, 1, &column->list_offsets);
    struct ArrowArray *entries = child_new(out);
    if (entries == NULL || array_init(entries, count, 0, 1) == NULL)
        return -1;
    return bytes_export(&column->variable, child_new(entries)) ||
           bytes_export(&column->header_values, child_new(entries));
}

static int column_export(Column *column, int64_t rows, struct ArrowArray *out) {
    Owner *owner;
    switch (column->field) {
    case KEY:
    case VALUE:
    case TOPIC:
        return bytes_export(&column->variable, out);
    case HEADERS:
        return headers_export(column, rows, out);
    default:
        owner = array_init(out, rows, column->fixed_null_count, 2);
        if (owner == NULL)
            return -1;
        owner_take(owner, 0, &column->fixed_validity);
        owner_take(owner, 1, &column->fixed);
        return 0;
    }
}

int batch_export(Batch *batch, struct ArrowArray *out) {
    *out = (struct ArrowArray){0};
    if (array_init(out, batch->rows, 0, 1) == NULL)
        return -1;
    for (int i = 0; i < batch->n_columns; i++) {
        struct ArrowArray *child = child_new(out);
        if (child == NULL || column_export(&batch->columns[i], batch->rows, child)) {
            out->release(out);
            return -1;
        }
    }
    batch_clear(batch);
    return 0;
}
