"""What the tests of managers do again and again."""


def enter(manager, name, times=1):
    """Make calls of a region."""
    for _ in range(times):
        with manager.region(name):
            pass


def counts(results):
    """Calls by region, without the session's root."""
    return {name: results[name].num_calls for name in results.region_names if name != "scope_profiler.session"}


def ids(results):
    """All call ids of a single-rank run, sorted."""
    found = []
    for name in results.region_names:
        found.extend(results[name][0].call_ids.tolist())
    return sorted(found)
