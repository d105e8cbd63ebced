"""What pylikwid 0.4 has of LIKWID's markers and of reading them back, with counters that tests can foretell: the event WORK counts
what :func:`work` is given, STARTS how often a region was started. What LIKWID would refuse is written to ``misuse``."""

import os
import threading
import time

misuse = []
_threads = {}
_regions = {}  # name -> {thread's number: [calls, seconds, work, starts]}
_open = None
_read = []
_state = threading.local()


def work(amount):
    _state.work = getattr(_state, "work", 0) + amount


def _here():
    number = _threads.get(threading.get_ident())
    if number is None:
        misuse.append("thread not initialised")
        return 0
    return number


def markerinit():
    global _open
    if _open:
        misuse.append("init twice")
    _threads.clear(), _regions.clear()
    _open = {}


def markerthreadinit():
    if threading.get_ident() in _threads:
        misuse.append("thread initialised twice")
    _threads[threading.get_ident()] = len(_threads)


def markerstartregion(tag):
    key = (tag, _here())
    if key in _open:
        misuse.append(f"{tag} was already started")
        return -1
    _open[key] = (time.perf_counter(), getattr(_state, "work", 0))
    return 0


def markerstopregion(tag):
    key = (tag, _here())
    if key not in _open:
        misuse.append(f"{tag} was not started")
        return -1
    began, before = _open.pop(key)
    sums = _regions.setdefault(tag, {}).setdefault(key[1], [0, 0.0, 0, 0])
    for index, grown in enumerate((1, time.perf_counter() - began, getattr(_state, "work", 0) - before, 1)):
        sums[index] += grown
    return 0


def markergetregion(tag):
    sums = _regions.get(tag, {}).get(_here())
    if sums is None:
        raise SystemError("no such region")
    return 2, [float(sums[2]), float(sums[3])], sums[1], sums[0]


def markerclose():
    """Writes as likwid_markerClose of LIKWID 5.2 does."""
    global _open
    if _open is None:
        misuse.append("close twice")
    _open = None
    path = os.environ.get("LIKWID_FILEPATH")
    if not path or os.environ.get("FAKE_LIKWID_WRITES") == "0":
        return
    with open(path, "w") as file:
        print(len(_threads), len(_regions), 1, file=file)
        for number, tag in enumerate(_regions):
            print(f"{number}:{tag}-0", file=file)
        for number, threads in enumerate(_regions.values()):
            for thread, (calls, seconds, amount, starts) in threads.items():
                print(number, 0, thread, calls, f"{seconds:e}", 2, f"{amount:e}", f"{starts:e}", "", file=file)


# -- reading back --------------------------------------------------------------------------------------------------------


def init(cpus):
    how = os.environ.get("FAKE_LIKWID_COUNTERS", "")
    if how == "crash":
        os.abort()
    return -1 if how == "refuse" else 0


def finalize():
    _read.clear()


def addeventset(text):
    return 0


def getnameofgroup(group):
    return "WORKING"


def getnumberofmetrics(group):
    return 1


def getnameofevent(group, event):
    return ("WORK", "STARTS")[event]


def getnameofcounter(group, event):
    return ("PMC0", "PMC1")[event]


def getnameofmetric(group, metric):
    return "Work per start"


def markerreadfile(path):
    with open(path) as file:
        lines = file.read().splitlines()
    count = int(lines[0].split()[1])
    for line in lines[1 : 1 + count]:
        _read.append((line.partition(":")[2].rpartition("-")[0], []))
    for line in lines[1 + count :]:
        number, _, cpu, calls, seconds, _, *values = line.split()
        _read[int(number)][1].append((int(cpu), int(calls), float(seconds), [float(value) for value in values]))


def markernumregions():
    return len(_read)


def markerregiontag(region):
    return _read[region][0]


def markerregiongroup(region):
    return 0


def markerregionevents(region):
    return 2


def markerregionthreads(region):
    return len(_read[region][1])


def markerregioncpulist(region):
    return [row[0] for row in _read[region][1]]


def markerregiontime(region, thread):
    return _read[region][1][thread][2]


def markerregioncount(region, thread):
    return _read[region][1][thread][1]


def markerregionresult(region, event, thread):
    return _read[region][1][thread][3][event]


def markerregionmetric(region, metric, thread):
    values = _read[region][1][thread][3]
    return values[0] / values[1]
