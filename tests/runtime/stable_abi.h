// What the stable ABI of Python 3.12 has, and older headers do not: so that bindings can be checked
// against it with Python 3.11.
#include <Python.h>

extern "C" {
PyObject* PyErr_GetRaisedException();
void PyErr_SetRaisedException(PyObject* exception);
PyObject* PyObject_Vectorcall(PyObject* callable, PyObject* const* arguments, size_t count,
                              PyObject* names);
PyObject* PyObject_VectorcallMethod(PyObject* name, PyObject* const* arguments, size_t count,
                                    PyObject* names);
}
