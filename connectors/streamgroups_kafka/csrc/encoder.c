/* See encoder.h; types are in _native.pyi. */
#include "encoder.h"

#include "crc32c.h"
#include "murmur2.h"
#include "record_batch.h"

/* Kafka's sequence numbers begin again at 0 after the largest int32. */
#define SEQUENCES ((int64_t)INT32_MAX + 1)
#define MAX_CODECS 8

void encoder_init(void) {
    crc32c_init();
}

/* ---- encode ------------------------------------------------------------------------------------------------------- */

static PyObject *raise_error(Error error) {
    if (error.row >= 0)
        return PyErr_Format(PyExc_ValueError, "row %lld: %s", (long long)error.row, error.reason);
    return PyErr_Format(PyExc_ValueError, "%s", error.reason);
}

/* The next sequence number of a partition, 0 for one that `sequences` does not have; -1 with an exception. */
static int64_t sequence_of(PyObject *sequences, int32_t partition) {
    PyObject *key = PyLong_FromLong(partition);
    if (key == NULL)
        return -1;
    PyObject *found = PyDict_GetItemWithError(sequences, key);
    Py_DECREF(key);
    if (found == NULL)
        return PyErr_Occurred() ? -1 : 0;
    long long sequence = PyLong_AsLongLong(found);
    if (sequence == -1 && PyErr_Occurred())
        return -1;
    if (sequence < 0 || sequence >= SEQUENCES) {
        PyErr_SetString(PyExc_ValueError, "a sequence number that is no int32, or negative");
        return -1;
    }
    return sequence;
}

/* One (partition, first row, records, base sequence, bytes) for each batch; the bytes are yet to be written. */
static PyObject *batches_new(const Plan *plan, Producer producer, PyObject *sequences) {
    PyObject *list = PyList_New((Py_ssize_t)plan->n_batches);
    int64_t next_sequence = -1;
    for (size_t i = 0; list != NULL && i < plan->n_batches; i++) {
        const PlannedBatch *batch = &plan->batches[i];
        if (producer.id >= 0 && (i == 0 || batch->partition != batch[-1].partition))
            next_sequence = sequence_of(sequences, batch->partition);
        PyObject *bytes = NULL, *entry = NULL;
        if (producer.id < 0 || next_sequence >= 0)
            bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)batch->size);
        if (bytes != NULL)
            entry = Py_BuildValue("iLiiN", (int)batch->partition, (long long)plan_row(plan, batch, 0),
                                  (int)batch->n_records, (int)next_sequence, bytes);
        if (entry == NULL || PyList_SetItem(list, (Py_ssize_t)i, entry)) {
            Py_DECREF(list);
            return NULL;
        }
        if (producer.id >= 0)
            next_sequence = (next_sequence + batch->n_records) % SEQUENCES;
    }
    return list;
}

/* Writes the batches into the bytes of the list, which nobody else knows yet. Returns 0, or -1 with an exception. */
static int batches_write(const Plan *plan, Producer producer, PyObject *list) {
    typedef struct {
        uint8_t *out;
        int32_t base_sequence;
    } Target;
    Target *targets = PyMem_Malloc((plan->n_batches + 1) * sizeof *targets);
    if (targets == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < plan->n_batches; i++) {
        PyObject *entry = PyList_GetItem(list, (Py_ssize_t)i);
        targets[i].base_sequence = (int32_t)PyLong_AsLong(PyTuple_GetItem(entry, 3));
        targets[i].out = (uint8_t *)PyBytes_AsString(PyTuple_GetItem(entry, 4));
    }
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < plan->n_batches; i++)
        batch_write(plan, &plan->batches[i], producer, targets[i].base_sequence, targets[i].out);
    Py_END_ALLOW_THREADS
    PyMem_Free(targets);
    return 0;
}

/* Where the first batches of partitions without a sequence number are cut; a negative number: nowhere. See first_cut.py. */
typedef struct {
    long long number;
    int is_last;
} Cut;

/*
 * The limits for `plan_with_limits`; `any` is whether one of them is not 0. NULL with an exception.
 */
static int32_t *first_limits(const Plan *plan, Cut cut, PyObject *sequences, int *any) {
    int32_t *limits = PyMem_Malloc((plan->n_batches + 1) * sizeof *limits);
    size_t n = 0;
    *any = 0;
    if (limits == NULL)
        return (int32_t *)PyErr_NoMemory();
    for (size_t i = 0; i < plan->n_batches; i++) {
        const PlannedBatch *batch = &plan->batches[i];
        if (i > 0 && batch->partition == batch[-1].partition)
            continue;
        int is_only = i + 1 == plan->n_batches || batch[1].partition != batch->partition;
        PyObject *key = PyLong_FromLong(batch->partition);
        int is_begun = key == NULL ? -1 : PyDict_Contains(sequences, key);
        Py_XDECREF(key);
        if (is_begun < 0) {
            PyMem_Free(limits);
            return NULL;
        }
        limits[n] = is_begun || (is_only && cut.is_last) ? 0 : 1 + (int32_t)(cut.number % batch->n_records);
        *any |= limits[n++];
    }
    return limits;
}

/* Plans again with cut first batches. */
static PlanStatus plan_cuts(Plan *plan, Cut cut, PyObject *sequences, size_t max_bytes, Error *error) {
    int any;
    int32_t *limits = first_limits(plan, cut, sequences, &any);
    if (limits == NULL)
        return PLAN_RAISED;
    PlanStatus status = PLANNED;
    if (any) {
        Py_BEGIN_ALLOW_THREADS
        status = plan_with_limits(plan, limits, max_bytes, error);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(limits);
    return status;
}

static PyObject *encode(const struct ArrowSchema *schema, const struct ArrowArray *array, size_t max_bytes,
                        int64_t time_ms, Producer producer, PyObject *sequences, Cut cut) {
    Plan plan = {0};
    Records records;
    Error error;
    PlanStatus status;
    PyObject *list = NULL;
    Py_BEGIN_ALLOW_THREADS
    status = records_from(schema, array, &records, &error) ? PLAN_REJECTED : PLANNED;
    records.time_ms = time_ms;
    if (status == PLANNED)
        status = plan_batches(&plan, &records, max_bytes, &error);
    Py_END_ALLOW_THREADS
    if (status == PLANNED && cut.number >= 0)
        status = plan_cuts(&plan, cut, sequences, max_bytes, &error);
    if (status == PLAN_OUT_OF_MEMORY)
        PyErr_NoMemory();
    else if (status == PLAN_REJECTED)
        raise_error(error);
    else if (status == PLANNED)
        list = batches_new(&plan, producer, sequences);
    if (list != NULL && batches_write(&plan, producer, list)) {
        Py_DECREF(list);
        list = NULL;
    }
    plan_free(&plan);
    return list;
}

/* What two capsules hold. Returns 0, or -1 with an exception. */
static int arrow_from(PyObject *schema_capsule, PyObject *array_capsule, struct ArrowSchema **schema,
                      struct ArrowArray **array) {
    *schema = PyCapsule_GetPointer(schema_capsule, "arrow_schema");
    *array = *schema ? PyCapsule_GetPointer(array_capsule, "arrow_array") : NULL;
    if (*array == NULL)
        return -1;
    if ((*schema)->release == NULL || (*array)->release == NULL) {
        PyErr_SetString(PyExc_ValueError, "Arrow data that was given away");
        return -1;
    }
    return 0;
}

PyObject *encoder_encode(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *schema_capsule, *array_capsule, *sequences;
    struct ArrowSchema *schema;
    struct ArrowArray *array;
    Py_ssize_t max_bytes;
    long long time_ms, id;
    short epoch;
    int transactional;
    Cut cut;
    if (!PyArg_ParseTuple(arguments, "OOnLLhpO!Lp:encode", &schema_capsule, &array_capsule, &max_bytes, &time_ms, &id,
                          &epoch, &transactional, &PyDict_Type, &sequences, &cut.number, &cut.is_last))
        return NULL;
    if (arrow_from(schema_capsule, array_capsule, &schema, &array))
        return NULL;
    if (max_bytes < 0 || max_bytes > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "batches are of 0 to 2,147,483,647 bytes");
        return NULL;
    }
    Producer producer = {id < 0 ? -1 : id, id < 0 ? -1 : epoch, transactional};
    if (id < 0 ? transactional : epoch < 0) {
        PyErr_SetString(PyExc_ValueError, "a transaction without a producer id, or a producer id without an epoch");
        return NULL;
    }
    return encode(schema, array, (size_t)max_bytes, time_ms, producer, sequences, cut);
}

/* ---- compression -------------------------------------------------------------------------------------------------- */

PyObject *encoder_with_compressed(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *batch, *compressed;
    int codec;
    char *header, *records;
    Py_ssize_t header_size, size;
    if (!PyArg_ParseTuple(arguments, "O!iO!:with_compressed", &PyBytes_Type, &batch, &codec, &PyBytes_Type,
                          &compressed) ||
        PyBytes_AsStringAndSize(batch, &header, &header_size) || PyBytes_AsStringAndSize(compressed, &records, &size))
        return NULL;
    if (header_size < BATCH_HEADER_SIZE || codec < 0 || codec >= MAX_CODECS || size > INT32_MAX - BATCH_HEADER_SIZE) {
        PyErr_SetString(PyExc_ValueError, "not a record batch, no such codec, or too much");
        return NULL;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, BATCH_HEADER_SIZE + size);
    if (made == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AsString(made);
    Py_BEGIN_ALLOW_THREADS
    batch_write_compressed((const uint8_t *)header, codec, (const uint8_t *)records, (size_t)size, out);
    Py_END_ALLOW_THREADS
    return made;
}

/* ---- hashes of keys ------------------------------------------------------------------------------------------------ */

PyObject *encoder_murmur2_of_keys(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *schema_capsule, *array_capsule;
    struct ArrowSchema *schema;
    struct ArrowArray *array;
    BytesColumn keys;
    Error error;
    int rejected;
    if (!PyArg_ParseTuple(arguments, "OO:murmur2_of_keys", &schema_capsule, &array_capsule) ||
        arrow_from(schema_capsule, array_capsule, &schema, &array))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rejected = keys_from(schema, array, &keys, &error);
    Py_END_ALLOW_THREADS
    if (rejected)
        return raise_error(error);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)array->length * (Py_ssize_t)sizeof(uint32_t));
    if (bytes == NULL)
        return NULL;
    uint32_t *hashes = (uint32_t *)(void *)PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS
    murmur2_of_keys(&keys, array->length, hashes);
    Py_END_ALLOW_THREADS
    return bytes;
}

/* ---- checksums ---------------------------------------------------------------------------------------------------- */

static PyObject *checksum(PyObject *bytes, uint32_t (*of)(const void *, size_t)) {
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size))
        return NULL;
    return PyLong_FromUnsignedLong(of(data, (size_t)size));
}

PyObject *encoder_crc32c(PyObject *module, PyObject *bytes) {
    (void)module;
    return checksum(bytes, crc32c);
}

PyObject *encoder_crc32c_by_table(PyObject *module, PyObject *bytes) {
    (void)module;
    return checksum(bytes, crc32c_by_table);
}

PyObject *encoder_crc32c_in_hardware(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyBool_FromLong(crc32c_in_hardware());
}
