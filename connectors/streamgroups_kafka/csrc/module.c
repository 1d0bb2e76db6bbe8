/*
 * The Python module streamgroups_kafka._native: `load` and the class `Client` here, what writes in encoder.c.
 *
 * Used by native.py and native_fetcher.py; its types are in _native.pyi. This file only translates between Python and client.h
 * and lets the GIL go around whatever may wait. It uses the stable ABI, so that one build serves every Python from 3.10 on.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>

#include "client.h"
#include "encoder.h"

typedef struct {
    PyObject_HEAD Client *client;
    int busy; /* a call without the GIL is under way in some thread */
} ClientObject;

/* native.py uses no other one. */
#define INTERFACE 6

/* Raised with (code, text) for what librdkafka rejects. */
static PyObject *NativeError;

static PyObject *raise_native(int code, const char *text) {
    PyObject *arguments = Py_BuildValue("is", code, text);
    if (arguments != NULL) {
        PyErr_SetObject(NativeError, arguments);
        Py_DECREF(arguments);
    }
    return NULL;
}

static PyObject *native_load(PyObject *module, PyObject *path) {
    (void)module;
    char why[TEXT_SIZE];
    const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
    if (text == NULL)
        return NULL;
    if (rdkafka_api_load(text, why, sizeof why)) {
        PyErr_SetString(PyExc_OSError, why);
        return NULL;
    }
    return PyUnicode_FromString(rd.version_str());
}

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

/* A librdkafka configuration from (name, value) pairs; NULL with an exception set. */
static rd_kafka_conf_t *conf_from(PyObject *pairs) {
    char why[TEXT_SIZE];
    PyObject *sequence = PySequence_List(pairs);
    if (sequence == NULL)
        return NULL;
    rd_kafka_conf_t *conf = rd.conf_new();
    Py_ssize_t size = PyList_Size(sequence);
    for (Py_ssize_t i = 0; i < size && conf != NULL; i++) {
        const char *name, *value;
        PyObject *pair = PyList_GetItem(sequence, i);
        int good = 0;
        if (!PyTuple_Check(pair))
            PyErr_SetString(PyExc_TypeError, "the configuration must be (name, value) pairs");
        else if (PyArg_ParseTuple(pair, "ss", &name, &value)) {
            good = rd.conf_set(conf, name, value, why, sizeof why) == RD_CONF_OK;
            if (!good)
                raise_native(RD_ERR_INVALID_ARG, why);
        }
        if (!good) {
            rd.conf_destroy(conf);
            conf = NULL;
        }
    }
    Py_DECREF(sequence);
    return conf;
}

/* Fills `topics` and `ranges` from (topic, partition, next_offset, end_offset) tuples. Returns 0, or -1 with an exception. */
static int ranges_from(PyObject *tuple, const char **topics, Range *ranges) {
    Py_ssize_t size = PyTuple_Size(tuple);
    for (Py_ssize_t i = 0; i < size; i++) {
        long long next_offset, end_offset;
        int partition;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "siLL", &topics[i], &partition, &next_offset, &end_offset))
            return -1;
        if (partition < 0 || next_offset < 0) {
            PyErr_SetString(PyExc_ValueError, "partitions and offsets are not negative");
            return -1;
        }
        ranges[i] = (Range){.partition = partition, .next_offset = next_offset, .end_offset = end_offset};
    }
    return 0;
}

/* Fills `fields` from a list of numbers. Returns 0, or -1 with an exception. */
static int fields_from(PyObject *list, Field *fields) {
    Py_ssize_t size = PyList_Size(list);
    for (Py_ssize_t i = 0; i < size; i++) {
        long number = PyLong_AsLong(PyList_GetItem(list, i));
        if (number == -1 && PyErr_Occurred())
            return -1;
        if (i >= N_FIELDS || number < 0 || number >= N_FIELDS) {
            PyErr_SetString(PyExc_ValueError, "no such column");
            return -1;
        }
        fields[i] = (Field)number;
    }
    return 0;
}

/* Whether the object may be used now; if not, an exception is set. */
static int usable(ClientObject *self) {
    if (self->client == NULL)
        PyErr_SetString(PyExc_ValueError, "this client is closed");
    else if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "this client is in use by another thread");
    else
        return 1;
    return 0;
}

/* Whether `index` is a range of the reading; if not, an exception is set. */
static int has_range(ClientObject *self, int index) {
    if (index >= 0 && index < self->client->n_ranges)
        return 1;
    PyErr_SetString(PyExc_IndexError, "no such range");
    return 0;
}

/* Runs `call` without the GIL; no other thread gets in meanwhile. */
#define WITHOUT_GIL(self, call)                                                                                        \
    do {                                                                                                               \
        (self)->busy = 1;                                                                                              \
        Py_BEGIN_ALLOW_THREADS;                                                                                        \
        call;                                                                                                          \
        Py_END_ALLOW_THREADS;                                                                                          \
        (self)->busy = 0;                                                                                              \
    } while (0)

/* ---- the class ---------------------------------------------------------------------------------------------------- */

static PyObject *client_type_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    PyObject *pairs;
    char why[TEXT_SIZE];
    if (!PyArg_ParseTuple(arguments, "O:Client", &pairs))
        return NULL;
    if (rd.version == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "call load() first");
        return NULL;
    }
    rd_kafka_conf_t *conf = conf_from(pairs);
    if (conf == NULL)
        return NULL;
    Client *client = client_new(conf, why, sizeof why);
    if (client == NULL)
        return why[0] ? raise_native(RD_ERR_INVALID_ARG, why) : PyErr_NoMemory();
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    ClientObject *self = (ClientObject *)allocate(type, 0);
    if (self == NULL) {
        client_free(client);
        return NULL;
    }
    self->client = client;
    self->busy = 0;
    return (PyObject *)self;
}

static void client_dealloc(ClientObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (self->client != NULL) {
        /* It waits for the threads of librdkafka. */
        Py_BEGIN_ALLOW_THREADS;
        client_free(self->client);
        Py_END_ALLOW_THREADS;
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *method_start(ClientObject *self, PyObject *arguments) {
    PyObject *range_list, *field_list;
    long long max_rows;
    Py_ssize_t max_bytes;
    Field fields[N_FIELDS];
    if (!PyArg_ParseTuple(arguments, "O!O!Ln:start", &PyList_Type, &range_list, &PyList_Type, &field_list, &max_rows,
                          &max_bytes))
        return NULL;
    if (!usable(self) || fields_from(field_list, fields))
        return NULL;
    /* Keeps the names of the topics alive if another thread changes the list while the GIL is released. */
    PyObject *held = PyList_AsTuple(range_list);
    if (held == NULL)
        return NULL;
    size_t n_ranges = (size_t)PyTuple_Size(held);
    const char **topics = calloc(n_ranges + 1, sizeof *topics);
    Range *ranges = calloc(n_ranges + 1, sizeof *ranges);
    int failed = -1;
    if (topics == NULL || ranges == NULL) {
        PyErr_NoMemory();
    } else if (!ranges_from(held, topics, ranges)) {
        int n_fields = (int)PyList_Size(field_list);
        WITHOUT_GIL(self, failed = client_start(self->client, topics, ranges, (int)n_ranges, fields, n_fields,
                                                max_rows, (size_t)max_bytes));
        if (failed == NO_MEMORY)
            PyErr_NoMemory();
        else if (failed)
            raise_native(failed, rd.err2str(failed));
    }
    free(topics);
    free(ranges);
    Py_DECREF(held);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *events_taken(Client *client) {
    PyObject *list = PyList_New(client->n_events);
    for (int i = 0; list != NULL && i < client->n_events; i++) {
        const Event *event = &client->events[i];
        PyObject *text = PyUnicode_DecodeUTF8(event->text, (Py_ssize_t)strlen(event->text), "replace");
        PyObject *entry = text ? Py_BuildValue("iiN", event->range, event->code, text) : NULL;
        if (entry == NULL || PyList_SetItem(list, i, entry) != 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    client->n_events = 0;
    return list;
}

/* The first record with each flaw, of each range. */
static PyObject *flawed_taken(Client *client) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < client->n_ranges; i++) {
        Range *range = &client->ranges[i];
        for (int flaw = 0; list != NULL && range->flaws >> flaw; flaw++) {
            if (!(range->flaws >> flaw & 1))
                continue;
            PyObject *entry = Py_BuildValue("iLi", i, (long long)range->flaw_offsets[flaw], 1 << flaw);
            if (entry == NULL || PyList_Append(list, entry) != 0)
                Py_CLEAR(list);
            Py_XDECREF(entry);
        }
        range->flaws = 0;
    }
    return list;
}

static PyObject *method_fill(ClientObject *self, PyObject *argument) {
    long timeout_ms = PyLong_AsLong(argument);
    if ((timeout_ms == -1 && PyErr_Occurred()) || !usable(self))
        return NULL;
    Client *client = self->client;
    int failed;
    WITHOUT_GIL(self, failed = client_fill(client, (int)timeout_ms));
    if (failed)
        return PyErr_NoMemory();
    PyObject *events = events_taken(client);
    PyObject *flawed = events ? flawed_taken(client) : NULL;
    if (flawed == NULL) {
        Py_XDECREF(events);
        return NULL;
    }
    return Py_BuildValue("LOiNN", (long long)client->batch.rows, client_full(client) ? Py_True : Py_False,
                         client->n_open, events, flawed);
}

static void array_free(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array != NULL && array->release != NULL)
        array->release(array);
    free(array);
}

static PyObject *method_export(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (!usable(self))
        return NULL;
    struct ArrowArray *array = calloc(1, sizeof *array);
    if (array == NULL || batch_export(&self->client->batch, array)) {
        free(array);
        return PyErr_NoMemory();
    }
    self->client->is_full = 0;
    PyObject *capsule = PyCapsule_New(array, "arrow_array", array_free);
    if (capsule == NULL) {
        array->release(array);
        free(array);
    }
    return capsule;
}

static PyObject *method_ranges(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (!usable(self))
        return NULL;
    PyObject *list = PyList_New(self->client->n_ranges);
    for (int i = 0; list != NULL && i < self->client->n_ranges; i++) {
        const Range *range = &self->client->ranges[i];
        PyObject *entry = Py_BuildValue("LO", (long long)range->next_offset, range->done ? Py_True : Py_False);
        if (entry == NULL || PyList_SetItem(list, i, entry) != 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *method_seek(ClientObject *self, PyObject *arguments) {
    int index, failed;
    long long next_offset;
    if (!PyArg_ParseTuple(arguments, "iL:seek", &index, &next_offset) || !usable(self) || !has_range(self, index))
        return NULL;
    WITHOUT_GIL(self, failed = client_seek(self->client, index, next_offset));
    if (failed)
        return failed == NO_MEMORY ? PyErr_NoMemory() : raise_native(failed, rd.err2str(failed));
    Py_RETURN_NONE;
}

static PyObject *method_end(ClientObject *self, PyObject *argument) {
    long index = PyLong_AsLong(argument);
    if ((index == -1 && PyErr_Occurred()) || !usable(self) || !has_range(self, (int)index))
        return NULL;
    WITHOUT_GIL(self, client_end(self->client, (int)index));
    Py_RETURN_NONE;
}

static PyObject *method_watermarks(ClientObject *self, PyObject *arguments) {
    const char *topic;
    int partition, timeout_ms, failed;
    int64_t low = 0, high = 0;
    if (!PyArg_ParseTuple(arguments, "sii:watermarks", &topic, &partition, &timeout_ms) || !usable(self))
        return NULL;
    WITHOUT_GIL(self, failed = rd.query_watermark_offsets(self->client->rk, topic, partition, &low, &high, timeout_ms));
    if (failed)
        return raise_native(failed, rd.err2str(failed));
    return Py_BuildValue("LL", (long long)low, (long long)high);
}

/* Keeps nothing of the token: librdkafka has its own copy. */
static PyObject *method_set_token(ClientObject *self, PyObject *arguments) {
    const char *token, *principal;
    long long expires_at_ms;
    PyObject *list;
    char why[TEXT_SIZE];
    if (!PyArg_ParseTuple(arguments, "sLsO!:set_token", &token, &expires_at_ms, &principal, &PyList_Type, &list) ||
        !usable(self))
        return NULL;
    /* Keeps the texts alive; the list may change in another thread. */
    PyObject *held = PyList_AsTuple(list);
    if (held == NULL)
        return NULL;
    size_t size = (size_t)PyTuple_Size(held);
    const char **extensions = calloc(size + 1, sizeof *extensions);
    int failed = extensions == NULL;
    if (failed)
        PyErr_NoMemory();
    for (size_t i = 0; i < size && !failed; i++)
        failed = (extensions[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(held, (Py_ssize_t)i), NULL)) == NULL;
    if (!failed) {
        WITHOUT_GIL(self, failed = rd.oauthbearer_set_token(self->client->rk, token, expires_at_ms, principal,
                                                            extensions, size, why, sizeof why));
        if (failed)
            raise_native(failed, why);
    }
    free(extensions);
    Py_DECREF(held);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *method_stop(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (!usable(self))
        return NULL;
    WITHOUT_GIL(self, client_stop(self->client));
    Py_RETURN_NONE;
}

static PyObject *method_close(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (self->client == NULL)
        Py_RETURN_NONE;
    if (!usable(self))
        return NULL;
    Client *client = self->client;
    self->client = NULL;
    Py_BEGIN_ALLOW_THREADS
    client_free(client);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef client_methods[] = {
    {"start", (PyCFunction)method_start, METH_VARARGS, "Begins to read ranges into the requested columns."},
    {"fill", (PyCFunction)method_fill, METH_O,
     "Reads; returns rows, whether they are to be taken, open ranges, events, flawed records."},
    {"export", (PyCFunction)method_export, METH_NOARGS, "The rows, as the capsule of an Arrow array."},
    {"ranges", (PyCFunction)method_ranges, METH_NOARGS, "Next offset and whether it is done, of each range."},
    {"seek", (PyCFunction)method_seek, METH_VARARGS, "Continues a range at another offset."},
    {"end", (PyCFunction)method_end, METH_O, "Ends a range."},
    {"watermarks", (PyCFunction)method_watermarks, METH_VARARGS, "The earliest offset and the end of a partition."},
    {"set_token", (PyCFunction)method_set_token, METH_VARARGS, "Sets or renews the token of OAUTHBEARER."},
    {"stop", (PyCFunction)method_stop, METH_NOARGS, "Stops reading and keeps the connections."},
    {"close", (PyCFunction)method_close, METH_NOARGS, "Closes the client."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot client_slots[] = {
    {Py_tp_doc, "Client(config): a librdkafka client that reads ranges; see client.h."},
    {Py_tp_new, client_type_new},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_methods, client_methods},
    {0, NULL},
};

static PyType_Spec client_spec = {
    .name = "streamgroups_kafka._native.Client",
    .basicsize = sizeof(ClientObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = client_slots,
};

/* ---- the module --------------------------------------------------------------------------------------------------- */

static PyMethodDef module_methods[] = {
    {"load", native_load, METH_O, "Loads librdkafka from a path and returns its version."},
    ENCODER_METHODS,
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The native reader and encoder; see client.h, encoder.h.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__native(void) {
    encoder_init();
    PyObject *module = PyModule_Create(&module_definition);
    if (module == NULL)
        return NULL;
    NativeError = PyErr_NewException("streamgroups_kafka._native.NativeError", NULL, NULL);
    PyObject *type = PyType_FromSpec(&client_spec);
    if (NativeError == NULL || type == NULL || PyModule_AddObject(module, "Client", type) < 0 ||
        PyModule_AddObject(module, "NativeError", Py_NewRef(NativeError)) < 0 ||
        PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0) {
        Py_XDECREF(type);
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
