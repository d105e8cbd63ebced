/* A kernel for Python: its regions join the run of the Python program that loads it. */
#include <scope_profiler.h>

double kernel_sum(int count);

double kernel_sum(int count)
{
    SP_SCOPE("kernel_sum");
    double sum = 0;
    for (int i = 1; i <= count; i++) sum += 1.0 / i;
    return sum;
}
