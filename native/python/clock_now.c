/* `clock.now()` in one call: the page is read, and a `Reading` made, without a Python function between.
 * An extension of its own, because everything else that Python calls is called a few times a second.
 * It has no state: the reader is libsyntony's (native/clock), given by address.
 * Only Python's stable ABI is used (Py_LIMITED_API, from CMake): one build serves CPython 3.11 and
 * later. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "syn_clock_page.h"

typedef int (*read_function)(const struct syn_clock_reader *, struct syn_clock_reading *);

typedef struct {
    PyObject_HEAD
    read_function read;
    const struct syn_clock_reader *reader;
    PyTypeObject *type; /* of what is returned: a tuple of five */
    allocfunc alloc;    /* of that type */
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
    if (out.status < 0 || out.status >= PyTuple_Size(self->states))
        out.status = SYN_CLOCK_UNKNOWN;
    PyObject *found = self->alloc(self->type, 5);
    if (found == NULL)
        return NULL;
    int bounded = out.status == SYN_CLOCK_SYNCHRONIZED || out.status == SYN_CLOCK_HOLDOVER;
    PyObject *items[] = {
        instant(out.earliest_ns, bounded),
        instant(out.latest_ns, bounded),
        PyLong_FromLongLong(out.fleet_ns),
        Py_NewRef(PyTuple_GetItem(self->states, out.status)),
        PyLong_FromUnsignedLong(out.steps),
    };
    int short_of_memory = 0;
    for (Py_ssize_t i = 0; i < 5; i++) {
        short_of_memory |= items[i] == NULL;
        PyTuple_SetItem(found, i, items[i]);
    }
    if (!short_of_memory)
        return found;
    Py_DECREF(found);
    return NULL;
}

/* Neither more fields than a tuple's nor an error: the stable ABI hides `tp_basicsize`. */
static int is_plain_tuple(PyTypeObject *type)
{
    PyObject *size = PyObject_GetAttrString((PyObject *)type, "__basicsize__");
    PyObject *plain = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__basicsize__");
    int same = size != NULL && plain != NULL && PyObject_RichCompareBool(size, plain, Py_EQ) == 1;
    Py_XDECREF(size);
    Py_XDECREF(plain);
    return same && PyType_IsSubtype(type, &PyTuple_Type);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    unsigned long long read, reader;
    PyTypeObject *reading;
    PyObject *states, *owner;
    if (!PyArg_ParseTuple(arguments, "KKO!O!O", &read, &reader, &PyType_Type, &reading,
                          &PyTuple_Type, &states, &owner))
        return NULL;
    if (!is_plain_tuple(reading)) {
        PyErr_SetString(PyExc_TypeError, "readings are tuples");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    NowReader *self = (NowReader *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->read = (read_function)(uintptr_t)read;
    self->reader = (const struct syn_clock_reader *)(uintptr_t)reader;
    self->type = (PyTypeObject *)Py_NewRef((PyObject *)reading);
    self->alloc = (allocfunc)PyType_GetSlot(reading, Py_tp_alloc);
    self->states = Py_NewRef(states);
    self->owner = Py_NewRef(owner);
    return (PyObject *)self;
}

static void unmake(PyObject *object)
{
    NowReader *self = (NowReader *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF((PyObject *)self->type);
    Py_XDECREF(self->states);
    Py_XDECREF(self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
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
