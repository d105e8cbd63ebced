"""Hand-made runs to plot, and what matplotlib's artists hold."""

from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from export_helpers import int64, results_of, task, thread
from scope_profiler import MPIRegion, ProfilingResults, Region

MS = 1_000_000


def times(calls, **more):
    """A region of calls given as (start, end) in ms."""
    return Region(int64([a * MS for a, _ in calls]), int64([b * MS for _, b in calls]), **more)


def nested_run(ranks=1, label="run", scale=1):
    """main holds solve and io, one solve holds an io; nothing tracked. The second rank has other times."""
    calls = {
        "main": [[(0, 100)], [(0, 90)]],
        "solve": [[(10, 40), (50, 70)], [(5, 45)]],
        "io": [[(20, 30), (80, 95)], [(50, 60)]],
    }
    regions = {
        name: {rank: times([(a * scale, b * scale) for a, b in of_ranks[rank]]) for rank in range(ranks)}
        for name, of_ranks in calls.items()
    }
    return results_of(regions, label, num_ranks=ranks, metadata={"mpi_size": ranks, "total_cores": 4 * ranks, "start_time_ns": 0})


def tracked_run():
    """Two threads and a task: step holds read on both threads, the task's fetch spans them."""
    regions = {
        "step": {0: times([(0, 40), (10, 90)], thread_ids=int64([0, 1]), task_ids=int64([-1, -1]))},
        "read": {0: times([(5, 25), (20, 80)], thread_ids=int64([0, 1]), task_ids=int64([-1, -1]))},
        "fetch": {0: times([(2, 60)], thread_ids=int64([0]), task_ids=int64([0]))},
    }
    threads = {0: [thread(0, "MainThread"), thread(1, "worker")]}
    return results_of(regions, "tracked", threads=threads, tasks={0: [task(0, "Task-1", "fetch_all")]})


def overlapping_run():
    """Two regions that overlap without nesting; nothing tracked."""
    return ProfilingResults({name: MPIRegion(name, {0: times([calls])}) for name, calls in (("a", (0, 60)), ("b", (30, 90)))})


def spans_of(ax):
    """(left, right, bottom, top, colour) of every span, rounded, by bottom and left."""
    found = []
    for collection in ax.collections:
        if not isinstance(collection, PolyCollection):
            continue
        colors = collection.get_facecolors()
        for number, path in enumerate(collection.get_paths()):
            x, y = path.vertices[:, 0], path.vertices[:, 1]
            color = to_hex(colors[number if len(colors) > 1 else 0]).upper()
            found.append((round(float(x.min()), 6), round(float(x.max()), 6), round(float(y.min()), 3), round(float(y.max()), 3), color))
    return sorted(found, key=lambda span: (span[2], span[0]))


def y_texts(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def x_texts(ax):
    return [text.get_text() for text in ax.get_xticklabels()]


def legend_texts(ax):
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def texts_inside(ax):
    return sorted(text.get_text() for text in ax.texts)
