"""export_perfetto: what Perfetto's own schema reads from the file."""

import json

from hypothesis import given, settings

from export_helpers import any_calls, int64, region, regions_of, results_of, thread
from perfetto_trace import Reader, parsed
from scope_profiler import export_perfetto
from scope_profiler.concurrency import TaskInfo


def exported(run, tmp_path, **options):
    [path] = export_perfetto(run, tmp_path / "p", verbose=False, **options)
    return Reader(path)


def test_a_call_is_a_slice_with_all_that_is_known_about_it(tmp_path):
    run = results_of({"a": {0: region(
        [1_000_100, 1_000_200], [1_002_600, 1_000_300], call_ids=int64([4, 6]), parent_ids=int64([-1, 4]), gpu_durations=int64([250, -1]),
        source_file="ä.py", source_lineno=3, event_metadata=[{"text": 'NaN "I" \\', "bad": float("nan")}, {}])}},
        "a run", metadata={"start_time_ns": 1_000_000})
    reader = exported(run, tmp_path)
    process, rank = reader.tracks.values()
    assert (process.process, process.name, rank.name, rank.parent) == ("rank 0", "rank 0", "rank 0", 1)
    first, second = rank.slices
    assert (first.name, first.category, first.start, first.end, first.depth) == ("a", "call", 100, 2600, 0)
    assert json.loads(first.args.pop("metadata")) == {"text": 'NaN "I" \\', "bad": None}
    assert first.args == {"call_index": 0, "call_id": 4, "parent_id": -1, "gpu_ns": 250}
    assert first.source == second.source == ("ä.py", 3, "a")
    assert (second.start, second.end, second.depth, second.args) == (200, 300, 1, {"call_index": 1, "call_id": 6, "parent_id": 4, "gpu_ns": -1})
    [descriptor] = [p.track_descriptor for p in parsed(tmp_path / "p.pftrace").packet if p.track_descriptor.HasField("process")]
    assert list(descriptor.process.process_labels) == ["a run"] and descriptor.process.pid > 0


def made(index, name, created, done, running, suspended, thread_index=0, creator=(-1, -1), steps=2):
    return TaskInfo(index, 0, "task", name, "mod.fetch", thread_index, created, done, steps, running, suspended, *creator)


def concurrent():
    """
    MainThread 0..1000: main [100, 900], which creates task 0 at 150. Task 0 runs from 200 on and ends at 700; it creates task 1 at
    250, inside of fetch [210, 690], of which it awaits 300: fetch's longest stretch without an event is 250..690.
    """
    return results_of(
        {"main": {0: region([5100], [5900], [0], [-1], await_times=int64([0]))},
         "fetch": {0: region([5210, 5420], [5690, 5480], [0, 0], [0, 1], await_times=int64([300, 40]))}},
        threads={0: [thread(0, "MainThread", cpu_ns=321), thread(1, "idle")]},
        tasks={0: [made(0, "Task-1", 150, 700, 200, 300, creator=(0, -1)), made(1, "Task-2", 250, 500, 60, 40, creator=(0, 0))]},
        metadata={"start_time_ns": 5000})


def test_tracks_are_processes_threads_and_the_tasks_below_them(tmp_path):
    reader = exported(concurrent(), tmp_path)
    main = reader.named("MainThread")
    process = next(track for track in reader.tracks.values() if track.process)
    assert main.thread == "MainThread" and reader.named("idle").thread == "idle"
    uuid = {track.name: number for number, track in reader.tracks.items()}
    assert [reader.named(f"Task-{n} (fetch) on MainThread").parent for n in (1, 2)] == [uuid["MainThread"]] * 2
    assert process.name == "rank 0"
    threads = [p.track_descriptor.thread for p in parsed(tmp_path / "p.pftrace").packet if p.track_descriptor.HasField("thread")]
    assert len({t.tid for t in threads} | {t.pid for t in threads}) == 3 and all(t.tid > 0 for t in threads)


def test_lives_of_threads_and_tasks_are_around_their_calls(tmp_path):
    reader = exported(concurrent(), tmp_path)
    [life, call] = reader.named("MainThread").slices[:1] + reader.of("call")["MainThread"]
    assert (life.name, life.category, life.start, life.end) == ("MainThread", "thread", 5, 900)  # alive: until the last call's end
    assert life.args == {"native_id": 2000, "ident": 1000, "daemon": False, "cpu_ns": 321}
    assert (call.depth, call.start, call.end) == (1, 100, 900)
    [task_life] = reader.of("task")["Task-1 (fetch) on MainThread"][:1]
    assert (task_life.start, task_life.end) == (200, 700)  # 700 - 200 running - 300 awaiting
    assert task_life.args == {"kind": "task", "coroutine": "mod.fetch", "created_ns": 150, "steps": 2, "running_ns": 200, "awaiting_ns": 300}


def test_a_flow_leads_from_the_place_of_creation_to_the_first_step(tmp_path):
    reader = exported(concurrent(), tmp_path)
    [creation] = [one for one in reader.named("MainThread").slices if one.flows]
    first, second = (reader.named(f"Task-{n} (fetch) on MainThread").slices for n in (1, 2))
    assert (creation.name, creation.start, creation.depth) == ("create Task-1", 150, 2)  # inside of main
    assert first[0].ends_flows == creation.flows and first[0].start == 200
    [inner] = [one for one in first if one.flows]
    assert (inner.name, inner.start, inner.depth) == ("create Task-2", 250, 2)  # inside of fetch
    assert second[0].ends_flows == inner.flows and (second[0].start, second[0].end) == (400, 500)
    assert len({*creation.flows, *inner.flows}) == 2


def test_awaiting_is_drawn_in_the_longest_gap_with_its_exact_length(tmp_path):
    reader = exported(concurrent(), tmp_path)
    [first] = reader.of("await")["Task-1 (fetch) on MainThread"]
    assert (first.start, first.end, first.depth) == (320, 620, 2)  # 300 of the 440 ns from 250 to 690
    [second] = reader.of("await")["Task-2 (fetch) on MainThread"]
    assert (second.start, second.end, second.depth) == (430, 470, 2)  # 40 of 60


def test_awaiting_that_fits_no_gap_is_spread_over_all(tmp_path):
    # outer awaited 450 of its own 800 ns, which are two gaps of 400 around inner: 225 in the middle of each
    run = results_of({"outer": {0: region([0], [1000], [0], [0], await_times=int64([450]))},
                      "inner": {0: region([400], [600], [0], [0], await_times=int64([0]))}})
    [gaps] = exported(run, tmp_path).of("await").values()
    assert [(one.start, one.end) for one in gaps] == [(87, 312), (687, 912)]


def test_a_choice_of_regions_leaves_idle_lanes_and_flows_out(tmp_path):
    reader = exported(concurrent(), tmp_path, include="main")
    assert {track.name for track in reader.tracks.values()} == {"rank 0", "MainThread"}
    assert not any(one.flows or one.ends_flows for track in reader.tracks.values() for one in track.slices)


def test_a_task_of_unknown_origin_has_no_flow_and_one_that_never_ran_no_life(tmp_path):
    run = results_of({"a": {0: region([5010], [5020], [0], [0])}}, threads={0: [thread(0, "T")]}, metadata={"start_time_ns": 5000},
                     tasks={0: [made(0, "old", 0, -1, 5, 0), made(1, "unborn", 3, 9, 0, 0, steps=0, creator=(0, -1))]})
    reader = exported(run, tmp_path)
    [life] = reader.of("task")["old (fetch) on T"]
    assert (life.start, life.end) == (10, 20) and not life.ends_flows
    assert reader.named("unborn (fetch) on T").slices == []
    assert not any(one.flows for track in reader.tracks.values() for one in track.slices)


def test_overlapping_calls_move_to_extra_tracks_of_the_lane(tmp_path):
    run = results_of({"a": {0: region([0, 5], [10, 15], [0, 0])}}, threads={0: [thread(0, "T")]})
    reader = exported(run, tmp_path)
    assert {name: len(slices) for name, slices in reader.of("call").items()} == {"T": 1, "T (overlap 1)": 1}


def test_ranks_are_processes_and_the_file_may_be_compressed(tmp_path):
    run = results_of({"a": {0: region([0], [5]), 2: region([1], [3], [4])}}, threads={2: [thread(4, "T", rank=2)]})
    [plain] = export_perfetto(run, tmp_path / "p", ranks=[2, 0], verbose=False)
    [packed] = export_perfetto(run, tmp_path / "p.pftrace.gz", ranks=[2, 0], verbose=False)
    assert parsed(plain) == parsed(packed)
    reader = Reader(packed)
    assert [track.process for track in reader.tracks.values() if track.process] == ["rank 2", "rank 0"]
    assert reader.calls() == [("a", 1, 3), ("a", 0, 5)]


def test_any_name_is_a_valid_string(tmp_path):
    names = ['q"\\\n\x01\x7f\u2028é😀</script>', "", "a" * 100_000]
    run = results_of({name: {0: region([i], [i + 1])} for i, name in enumerate(names)})
    assert [name for name, _, _ in exported(run, tmp_path).calls()] == names


@settings(max_examples=100, deadline=None)
@given(any_calls())
def test_every_call_of_any_run_is_in_the_file_once(tmp_path_factory, calls):
    reader = exported(results_of(regions_of(calls), metadata={"start_time_ns": 0}), tmp_path_factory.mktemp("e"))
    assert sorted((s, e, n) for n, s, e in reader.calls()) == sorted((s, s + n, name) for name, s, n, _ in calls)
