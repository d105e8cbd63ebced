/* call_tree_object.h - the call tree for Python. */
#ifndef SP_PYTHON_CALL_TREE_OBJECT_H
#define SP_PYTHON_CALL_TREE_OBJECT_H

#include "python/state.h"

/*
 * A writable memoryview (format "q") over a column of `count` values from sp_column_alloc, which it takes over, also when
 * it fails (NULL with an exception).
 */
PyObject *sp_values_new(int64_t *column, uint64_t count);

int sp_python_add_call_tree(PyObject *module);

#endif
