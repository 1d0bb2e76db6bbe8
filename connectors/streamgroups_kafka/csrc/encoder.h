/*
 * What the Python module offers for writing: `encode`, `with_compressed`, the hashes of keys and the checksums.
 *
 * Used by module.c. Only encoder.c, behind this, and module.c know Python.
 */
#ifndef STREAMGROUPS_ENCODER_H
#define STREAMGROUPS_ENCODER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The entries of the module's table of functions. */
#define ENCODER_METHODS                                                                                                \
    {"encode", encoder_encode, METH_VARARGS, "The record batches of an Arrow batch, as a list."},                      \
        {"with_compressed", encoder_with_compressed, METH_VARARGS, "A batch with its records compressed."},            \
        {"murmur2_of_keys", encoder_murmur2_of_keys, METH_VARARGS,                                                     \
         "The hashes of an Arrow array of keys, int32 each."},                                                         \
        {"crc32c", encoder_crc32c, METH_O, "The CRC-32C of bytes."},                                                   \
        {"crc32c_by_table", encoder_crc32c_by_table, METH_O, "The same without the processor's instruction."},         \
        {"crc32c_in_hardware", encoder_crc32c_in_hardware, METH_NOARGS,                                                \
         "Whether the processor's instruction is used."}

/* To be called once, before any of them. */
void encoder_init(void);

PyObject *encoder_encode(PyObject *module, PyObject *arguments);
PyObject *encoder_with_compressed(PyObject *module, PyObject *arguments);
PyObject *encoder_murmur2_of_keys(PyObject *module, PyObject *arguments);
PyObject *encoder_crc32c(PyObject *module, PyObject *bytes);
PyObject *encoder_crc32c_by_table(PyObject *module, PyObject *bytes);
PyObject *encoder_crc32c_in_hardware(PyObject *module, PyObject *unused);

#endif
