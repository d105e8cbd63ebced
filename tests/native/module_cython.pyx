# cython: language_level=3, freethreading_compatible=True
"""A Cython kernel: its loop has no GIL, and it calls back into Python."""

cdef extern from "scope_profiler.h":
    int sp_region(const char *name)
    void sp_begin(int region) nogil
    void sp_end(int region) nogil


def work(int steps, inside=None):
    cdef int outer = sp_region(b"cython.work"), step = sp_region(b"cython.step")
    cdef int i
    sp_begin(outer)
    try:
        with nogil:
            for i in range(steps):
                sp_begin(step)
                sp_end(step)
        if inside is not None:
            inside()
    finally:
        sp_end(outer)
