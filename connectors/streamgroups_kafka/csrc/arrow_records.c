/* See arrow_records.h. */
#include "arrow_records.h"

#include <string.h>

static int fail(Error *error, int64_t row, const char *why) {
    *error = (Error){row, why};
    return -1;
}

/* Whether an array is of the shape that its format asks for, and has rows [first, first + rows) of its parent's. */
static int well_formed(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t first, int64_t rows,
                       int n_buffers, int n_children) {
    if (schema == NULL || array == NULL || schema->format == NULL || schema->dictionary != NULL ||
        schema->n_children != n_children || array->n_children != n_children || array->n_buffers != n_buffers ||
        array->buffers == NULL || array->offset < 0 || first < 0 || rows < 0 || array->length - rows < first)
        return 0;
    return n_children == 0 || (schema->children != NULL && array->children != NULL);
}

static int has_format(const struct ArrowSchema *schema, const char *small, const char *large, int *is_large) {
    if (schema == NULL || schema->format == NULL)
        return 0;
    *is_large = strcmp(schema->format, large) == 0;
    return *is_large || strcmp(schema->format, small) == 0;
}

/* Whether no row of [first, first + rows) ends before it begins: then what the last one ends in bounds all. */
static int in_order(const Spans *spans, int64_t first, int64_t rows) {
    int64_t bad = 0;
    if (spans->is_large) {
        const int64_t *ends = (const int64_t *)spans->ends + spans->offset + first;
        bad = ends[0] < 0;
        for (int64_t i = 0; i < rows; i++)
            bad |= ends[i] > ends[i + 1];
    } else {
        const int32_t *ends = (const int32_t *)spans->ends + spans->offset + first;
        bad = ends[0] < 0;
        for (int64_t i = 0; i < rows; i++)
            bad |= ends[i] > ends[i + 1];
    }
    return !bad;
}

/* The spans of an array whose row 0 is its parent's row `parent_offset`; rows [first, first + rows) of that will be used. */
static int spans_from(const struct ArrowArray *array, int64_t parent_offset, int64_t first, int64_t rows, int is_large,
                      Spans *spans, Error *error) {
    *spans = (Spans){array->buffers[0], array->buffers[1], is_large, array->offset + parent_offset};
    if (array->null_count == 0)
        spans->validity = NULL;
    if (rows == 0)
        spans->ends = NULL; /* it may point at nothing */
    else if (spans->ends == NULL || !in_order(spans, first, rows))
        return fail(error, -1, "offsets that are not in order");
    return 0;
}

static int bytes_from(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t parent_offset,
                      int64_t first, int64_t rows, BytesColumn *column, Error *error) {
    static const uint8_t nothing[1] = {0};
    int is_large;
    if (!has_format(schema, "z", "Z", &is_large) && !has_format(schema, "u", "U", &is_large))
        return fail(error, -1, "keys, values and headers must be binary or string");
    if (!well_formed(schema, array, parent_offset + first, rows, 3, 0))
        return fail(error, -1, "a malformed array of bytes");
    column->bytes = array->buffers[2] ? array->buffers[2] : nothing;
    return spans_from(array, parent_offset, first, rows, is_large, &column->spans, error);
}

static int headers_from(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t offset, int64_t rows,
                        HeadersColumn *column, Error *error) {
    int is_large;
    if (!has_format(schema, "+l", "+L", &is_large))
        return fail(error, -1, "headers must be a list");
    if (!well_formed(schema, array, offset, rows, 2, 1))
        return fail(error, -1, "a malformed array of lists");
    if (spans_from(array, offset, 0, rows, is_large, &column->spans, error))
        return -1;
    const struct ArrowSchema *entry_schema = schema->children[0];
    const struct ArrowArray *entries = array->children[0];
    int64_t first = 0, end = 0;
    if (rows > 0) {
        Spans all = column->spans;
        all.validity = NULL;
        Span last = span_at(&all, rows - 1);
        first = span_at(&all, 0).start;
        end = last.start + last.size;
    }
    if (entry_schema == NULL || entry_schema->format == NULL || strcmp(entry_schema->format, "+s") != 0)
        return fail(error, -1, "headers must be a list of structs");
    if (!well_formed(entry_schema, entries, first, end - first, 1, 2))
        return fail(error, -1, "a malformed array of headers");
    column->entry_validity = entries->null_count == 0 ? NULL : entries->buffers[0];
    column->entry_offset = entries->offset;
    return bytes_from(entry_schema->children[0], entries->children[0], entries->offset, first, end - first,
                      &column->names, error) ||
                   bytes_from(entry_schema->children[1], entries->children[1], entries->offset, first, end - first,
                              &column->values, error)
               ? -1
               : 0;
}

/* Numbers that may not be null. */
static const void *numbers_from(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t offset,
                                int64_t rows, const char *format, size_t width, Error *error) {
    static const int64_t nothing[1] = {0};
    if (schema->format == NULL || strcmp(schema->format, format) != 0 ||
        !well_formed(schema, array, offset, rows, 2, 0) || (array->null_count != 0 && array->buffers[0] != NULL) ||
        (array->buffers[1] == NULL && rows > 0)) {
        fail(error, -1, "partitions must be int32 and timestamps int64, none of them null");
        return NULL;
    }
    if (rows == 0)
        return nothing;
    return (const uint8_t *)array->buffers[1] + (size_t)(array->offset + offset) * width;
}

static int column_from(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t offset,
                       Records *records, Error *error) {
    int64_t rows = records->rows;
    const char *name = schema->name ? schema->name : "";
    if (strcmp(name, "key") == 0)
        return bytes_from(schema, array, offset, 0, rows, &records->keys, error);
    if (strcmp(name, "value") == 0)
        return bytes_from(schema, array, offset, 0, rows, &records->values, error);
    if (strcmp(name, "headers") == 0)
        return headers_from(schema, array, offset, rows, &records->headers, error);
    if (strcmp(name, "partition") == 0) {
        records->partitions = numbers_from(schema, array, offset, rows, "i", sizeof(int32_t), error);
        return records->partitions == NULL ? -1 : 0;
    }
    if (strcmp(name, "timestamp") == 0) {
        records->times_ms = numbers_from(schema, array, offset, rows, "l", sizeof(int64_t), error);
        return records->times_ms == NULL ? -1 : 0;
    }
    return fail(error, -1, "a column of another name than key, value, headers, timestamp and partition");
}

int records_from(const struct ArrowSchema *schema, const struct ArrowArray *array, Records *records, Error *error) {
    *records = (Records){.rows = array->length};
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0 || schema->n_children != array->n_children ||
        !well_formed(schema, array, 0, array->length, 1, (int)schema->n_children))
        return fail(error, -1, "not a record batch");
    if (array->null_count != 0 && array->buffers[0] != NULL)
        return fail(error, -1, "a row that is null as a whole");
    if (array->length > INT32_MAX)
        return fail(error, -1, "too many rows at once");
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i] == NULL || array->children[i] == NULL)
            return fail(error, -1, "a column that is not there");
        if (column_from(schema->children[i], array->children[i], array->offset, records, error))
            return -1;
    }
    if (records->partitions == NULL)
        return fail(error, -1, "no column 'partition'");
    return 0;
}

int keys_from(const struct ArrowSchema *schema, const struct ArrowArray *array, BytesColumn *keys, Error *error) {
    if (array->length > INT32_MAX)
        return fail(error, -1, "too many rows at once");
    return bytes_from(schema, array, 0, 0, array->length, keys, error);
}
