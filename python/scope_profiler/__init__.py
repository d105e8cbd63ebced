"""scope-profiler: a region profiler for concurrent Python, C and Fortran programs."""
