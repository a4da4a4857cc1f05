/* `clock.now()` in one call: the page is read, and a `Reading` made, without a Python function between.
 * An extension of its own, because everything else that Python calls is called a few times a second.
 * It has no state: the reader is libsyntony's (native/clock), given by address. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "syn_clock_page.h"

typedef int (*read_function)(const struct syn_clock_reader *, struct syn_clock_reading *);

typedef struct {
    PyObject_HEAD
    read_function read;
    const struct syn_clock_reader *reader;
    PyTypeObject *type; /* of what is returned: a tuple of five */
    PyObject *states;   /* a tuple: what stands for each status */
    PyObject *owner;    /* of the reader */
} NowReader;

static PyObject *instant(int64_t ns, int known)
{
    return known ? PyLong_FromLongLong(ns) : Py_NewRef(Py_None);
}

static PyObject *now(NowReader *self, PyObject *Py_UNUSED(nothing))
{
    struct syn_clock_reading out;
    int failed = self->read(self->reader, &out);
    if (failed)
        return PyLong_FromLong(failed);
    if (out.status < 0 || out.status >= PyTuple_GET_SIZE(self->states))
        out.status = SYN_CLOCK_UNKNOWN;
    PyObject *found = self->type->tp_alloc(self->type, 5);
    if (found == NULL)
        return NULL;
    int bounded = out.status == SYN_CLOCK_SYNCHRONIZED || out.status == SYN_CLOCK_HOLDOVER;
    PyObject *items[] = {
        instant(out.earliest_ns, bounded),
        instant(out.latest_ns, bounded),
        PyLong_FromLongLong(out.fleet_ns),
        Py_NewRef(PyTuple_GET_ITEM(self->states, out.status)),
        PyLong_FromUnsignedLong(out.steps),
    };
    int short_of_memory = 0;
    for (Py_ssize_t i = 0; i < 5; i++) {
        short_of_memory |= items[i] == NULL;
        PyTuple_SET_ITEM(found, i, items[i]);
    }
    if (!short_of_memory)
        return found;
    Py_DECREF(found);
    return NULL;
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    unsigned long long read, reader;
    PyTypeObject *reading;
    PyObject *states, *owner;
    if (!PyArg_ParseTuple(arguments, "KKO!O!O", &read, &reader, &PyType_Type, &reading,
                          &PyTuple_Type, &states, &owner))
        return NULL;
    if (!PyType_IsSubtype(reading, &PyTuple_Type) ||
        reading->tp_basicsize != PyTuple_Type.tp_basicsize) {
        PyErr_SetString(PyExc_TypeError, "readings are tuples");
        return NULL;
    }
    NowReader *self = (NowReader *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->read = (read_function)(uintptr_t)read;
    self->reader = (const struct syn_clock_reader *)(uintptr_t)reader;
    self->type = (PyTypeObject *)Py_NewRef((PyObject *)reading);
    self->states = Py_NewRef(states);
    self->owner = Py_NewRef(owner);
    return (PyObject *)self;
}

static void unmake(NowReader *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->type);
    Py_XDECREF(self->states);
    Py_XDECREF(self->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"now", (PyCFunction)now, METH_NOARGS, "Fleet time now, or an errno as a number."},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, make},
    {Py_tp_dealloc, unmake},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "syntony.io._native._now.NowReader",
    .basicsize = sizeof(NowReader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

static int add_type(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_type}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_now", .m_size = 0, .m_slots = module_slots};

PyMODINIT_FUNC PyInit__now(void)
{
    return PyModuleDef_Init(&module);
}
