"""The page that shows profiles, in a real browser."""

from __future__ import annotations

import json
import random
import time
from array import array
from pathlib import Path

import pytest
from large_run import large_run

from export_helpers import region, results_of, task, thread
from scope_profiler import create_html_report
from scope_profiler.stack_samples import Samples

MS = 1_000_000
HOSTILE = "</script><script>window.hacked=1</script>\u202e\"'<img src=x onerror='window.hacked=2'>\x07&amp;\n"


def await_(values):
    return [value * MS for value in values]


def small_run():
    """10 ms: MainThread is in outer all the time and twice in inner; a worker works; two tasks fetch."""

    def calls(spans, threads, tasks, awaits, **more):
        return region(
            [a * MS for a, _ in spans], [b * MS for _, b in spans], threads, tasks, await_times=await_(awaits), **more
        )

    regions = {
        "app.outer": {0: calls([(0, 10)], [0], [-1], [0], source_file="/src/app.py", source_lineno=12,
                               source_text="with region('outer'):\n    <b>work</b>()\n", tags=["io", "<i>"])},
        "app.inner": {0: calls([(1, 3), (4, 5)], [0, 0], [-1, -1], [0, 0],
                               event_metadata=[{}, {"user": "Ada <3", "n": 2}])},
        "work": {0: calls([(2, 9)], [1], [-1], [0])},
        "fetch": {0: calls([(2, 8), (3, 7)], [0, 0], [0, 1], [5, 1])},
        HOSTILE: {0: calls([(3, 4)], [1], [-1], [0])},
    }  # fmt: skip
    return results_of(
        regions,
        "a run",
        metadata={"start_time_ns": 0, "note": HOSTILE},
        threads={0: [thread(0, "MainThread", cpu_ns=4 * MS), thread(1, HOSTILE, cpu_ns=MS)]},
        tasks={0: [task(0, "Task-1", "Client.fetch"), task(1, HOSTILE, "Client.fetch")]},
    )


@pytest.fixture
def small(tmp_path, open_page):
    page = open_page(create_html_report(small_run(), tmp_path / "small.html"))
    page.wait("document.querySelector('.lane') && scopeProfiler.exposed.drawing?.viewWidth > 0")
    yield page
    page.clean()
    assert page.run("return window.hacked ?? null") is None


def show(page, run, tmp_path, open_page=None, **options):
    page = open_page(create_html_report(run, tmp_path / "page.html", **options))
    page.wait("document.querySelector('[role=tablist]')")
    return page


def lanes_of(page):
    return page.run("return [...document.querySelectorAll('[role=treeitem]')].map(e => [e.ariaLevel, e.querySelector('.lane-name').textContent])")


def place_of(page, name, number=0):
    """Where the nth call of a region is on the canvas."""
    page.wait("scopeProfiler.exposed.drawing?.viewWidth > 0")
    return page.run(
        """
        const run = scopeProfiler.state.run.value, wanted = run.names.indexOf(args[0]);
        let left = args[1];
        for (const calls of run.ranks) for (let call = 0; call < calls.count; call++) {
            if (calls.name[call] !== wanted || left-- > 0) continue;
            const box = scopeProfiler.exposed.drawing.boxOf({calls, call});
            return [(Math.max(0, box.left) + box.right) / 2, box.top + 8];
        }""",
        name,
        number,
    )


def click_call(page, name, number=0):
    x, y = place_of(page, name, number)
    page.click_at(".surface", x, y)
    page.wait("document.querySelector('.details [data-testid=duration]')")


def text(page, selector):
    return page.find(selector).text


def cells(page, row=0):
    page.wait("document.querySelector(`tr[data-index='${arguments[0]}']`)", row)
    return page.run("return [...document.querySelectorAll(`tr[data-index='${args[0]}'] td`)].map(e => e.textContent)", row)


def column(page, key):
    """What the rows of a table show in a column."""
    page.wait("document.querySelector('tr[data-index]')")
    return page.run(
        """
        const headers = [...document.querySelectorAll('th')], at = headers.findIndex(e => e.dataset.column === args[0]);
        return [...document.querySelectorAll('tr[data-index]')].map(row => row.children[at].textContent)""",
        key,
    )


def flame_labels(page):
    page.wait("document.querySelectorAll('.flame-node').length > 1")
    return page.run("return [...document.querySelectorAll('.flame-node')].map(e => e.ariaLabel)")


def open_tab(page, name):
    page.click(f"#tab-{name}")
    page.wait(f"document.querySelector('.panel-{name}')")


SAFE = "</script><script>window.hacked=1</script>\\u{202e}\"'<img src=x onerror='window.hacked=2'>\\x07&amp;\\n"


def test_lanes_are_threads_with_their_tasks_below_them(small):
    assert lanes_of(small) == [["1", "MainThread"], ["2", "2 tasks"], ["3", "Task-1 (fetch)"], ["3", f"{SAFE} (fetch)"], ["1", SAFE]]
    assert text(small, ".summary").startswith("10.00 ms · 7 calls · 2 threads · 2 tasks")
    assert small.driver.title == "a run – scope-profiler"
    assert small.find("[role=application]").get_attribute("aria-label").startswith("Timeline of 7 calls")


def test_a_click_shows_the_numbers_and_the_source_of_a_call(small):
    click_call(small, "app.outer")
    assert text(small, ".details h2") == "app.outer"
    assert text(small, "[data-testid=duration]") == "10.00 ms"
    assert text(small, "[data-testid=own]") == "7.000 ms"  # without inner's 2 and 1
    assert text(small, "[data-testid=start]").replace("\u2009", "") == "0.000000000 s"
    assert text(small, ".source .where") == "/src/app.py:12"
    assert "<b>work</b>()" in text(small, ".source pre")
    assert [tag.text for tag in small.all(".tag")] == ["io", "<i>"]
    click_call(small, "app.inner", 1)
    assert text(small, "[data-testid=duration]") == "1.000 ms"
    assert text(small, "[data-testid=start]").replace("\u2009", "") == "0.004000000 s"
    assert text(small, "[data-testid=lane]") == "MainThread"
    assert text(small, "[data-testid=metadata]").split() == ["user", "Ada", "<3", "n", "2"]
    small.click("[data-testid=parent]")
    assert text(small, ".details h2") == "app.outer"
    small.click(".close")
    assert small.all(".details") == []


def test_running_and_awaiting_are_told_apart(small):
    click_call(small, "fetch")
    assert [part.text for part in small.all(".split span b")] == ["1.000 ms", "5.000 ms"]
    assert text(small, "[data-testid=lane]") == "MainThread › Task-1 (fetch)"
    # In the picture: the upper sixth of the block is solid, the rest is pale with hatching.
    x, y = place_of(small, "fetch")
    colours = small.run(
        """
        const canvas = document.querySelector('[data-testid=calls]'), found = [];
        const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
        const context = copy.getContext('2d', {willReadFrequently: true});
        context.drawImage(canvas, 0, 0);
        for (let row = 0; row < 17; row++) found.push(new Set(
            Array.from({length: 12}, (_, i) => context.getImageData(args[0] + 20 + i, args[1] - 8 + row, 1, 1).data.join())).size);
        return found""",
        round(x),
        round(y),
    )
    assert colours[2] == 1 and min(colours[5:15]) == 2  # two rows are the outline of the selected call


def test_a_call_under_the_pointer_says_what_it_is(small):
    from selenium.webdriver.common.action_chains import ActionChains

    x, y = place_of(small, "work")
    box = small.find(".surface")
    ActionChains(small.driver).move_to_element_with_offset(
        box, round(x - box.rect["width"] / 2), round(y - box.rect["height"] / 2)
    ).perform()
    assert text(small, ".tip b") == "work"
    assert "7.000 ms" in text(small, ".tip") and "own 6.000 ms" in text(small, ".tip")


def test_search_finds_regions_and_lanes(small):
    small.keys("/")
    small.keys("i", "n", "n")
    assert small.wait("document.activeElement.id === 'search' && document.querySelector('.found')?.textContent === '2 calls'")
    assert small.run("return [...document.querySelectorAll('[role=option] .name')].map(e => e.textContent)") == ["app.inner"]
    small.keys("\ue007")
    assert text(small, ".details h2") == "app.inner" and text(small, "[data-testid=duration]") == "2.000 ms"
    small.keys("\ue007")
    assert text(small, "[data-testid=duration]") == "1.000 ms"
    small.run("document.querySelector('.lanes').focus()")
    small.keys("n")
    assert text(small, "[data-testid=duration]") == "2.000 ms"  # round to the first one again
    small.keys("/")
    small.keys("\ue00c", "t", "a", "s", "k", "-")
    labels = small.run("return [...document.querySelectorAll('[role=option]')].map(e => e.textContent)")
    assert any("Task-1 (fetch)" in label for label in labels)


def test_tables_sort_by_their_headers(small):
    open_tab(small, "regions")
    assert column(small, "region")[0] == "app.outer"  # by start, the longest first
    small.click("th[data-column=total] button")
    assert [column(small, "total")[i] for i in (0, -1)] == ["10.00 ms", "1.000 ms"]
    assert small.find("th[data-column=total]").get_attribute("aria-sort") == "descending"
    small.click("th[data-column=total] button")
    assert column(small, "total") == ["1.000 ms", "3.000 ms", "7.000 ms", "10.00 ms", "10.00 ms"]
    assert small.find("th[data-column=total]").get_attribute("aria-sort") == "ascending"
    row = dict(zip(column(small, "region"), zip(column(small, "calls"), column(small, "own"), column(small, "avg"), column(small, "p50"), column(small, "await"))))
    assert row["app.inner"] == ("2", "3.000 ms", "1.500 ms", "1.500 ms", "0")
    assert row["app.outer"][1] == "7.000 ms" and row["fetch"][4] == "6.000 ms"
    small.click("tr[data-index='0'] button")
    assert text(small, ".details h2") == SAFE
    small.keys("\ue015")  # arrow down: the focus goes with the rows
    assert small.wait("document.activeElement.closest('tr')?.dataset.index === '1'")


def test_threads_show_cpu_against_wall(small):
    open_tab(small, "threads")
    assert dict(zip(column(small, "name"), column(small, "cpu"))) == {"MainThread": "4.000 ms", SAFE: "1.000 ms"}
    assert column(small, "wall") == ["10.00 ms", "10.00 ms"]  # both began at 5 ns and have not ended
    assert [share.strip() for share in column(small, "share")] == ["40.0 %", "10.0 %"]
    assert column(small, "covered") == ["10.00 ms", "7.000 ms"]
    small.click("tr[data-index='1'] button")
    assert small.wait("document.querySelector('.panel-timeline .lane')")


def test_cpu_time_from_before_the_run_is_no_share_of_it(tmp_path, open_page):
    run = results_of(
        {"a": {0: region([0], [10 * MS], [0], [-1])}},
        metadata={"start_time_ns": 0},
        threads={0: [thread(0, "MainThread", cpu_ns=50 * MS), thread(1, "worker", cpu_ns=MS)]},
    )
    page = show(page=None, run=run, tmp_path=tmp_path, open_page=open_page)
    assert text(page, ".summary") == "10.00 ms · 1 call · 2 threads · CPU 10.0 % of thread time"
    open_tab(page, "threads")
    shares = dict(zip(column(page, "name"), column(page, "share")))
    assert {name: share.strip() for name, share in shares.items()} == {"MainThread": "–", "worker": "10.0 %"}


def test_samples_have_a_table_where_there_are_any(small, tmp_path, open_page):
    assert not small.run("return document.querySelector('#tab-samples') !== null")
    run = results_of({"in": {0: region([0], [10 * MS], [0], [-1])}}, metadata={"start_time_ns": 0})
    columns = {
        "thread_names": ["MainThread", "idle"], "thread_index": [0, 1], "region_names": ["in"],
        "stack_callers": [-1, 0, 0], "stack_functions": ["<module>", "solve", "wait"], "stack_files": ["a.py"] * 3,
        "stack_first_lines": [1, 10, 20], "threads": [0, 0, 1], "regions": [-1, 0, -1], "stacks": [1, 1, 2], "lines": [11, 12, 21],
        "counts": [3, 2, 5], "wall_ns": [30 * MS, 20 * MS, 50 * MS], "cpu_ns": [30 * MS, 10 * MS, 0],
    }  # fmt: skip
    datasets = {
        name: ((len(values),), values if isinstance(values[0], str) else array("q", values)) for name, values in columns.items()
    }
    run._samples = Samples({0: {"attributes": {"hz": 100.0}, "datasets": datasets, "groups": {}}})
    page = show(page=None, run=run, tmp_path=tmp_path, open_page=open_page)
    open_tab(page, "samples")
    assert column(page, "name") == ["wait", "solve", "solve"] and column(page, "place") == ["a.py:20", "a.py:10", "a.py:10"]
    assert column(page, "thread") == ["idle", "MainThread", "MainThread"] and column(page, "region") == ["–", "–", "in"]
    assert column(page, "time") == ["50.00 ms", "30.00 ms", "20.00 ms"] and column(page, "samples") == ["5", "3", "2"]
    page.clean()


def test_tasks_have_a_table(small):
    open_tab(small, "tasks")
    assert sorted(column(small, "name")) == sorted(["Task-1", SAFE])
    assert column(small, "coroutine") == ["Client.fetch"] * 2 and column(small, "calls") == ["1", "1"]
    assert column(small, "steps") == ["2", "2"] and column(small, "running") == ["3 ns", "3 ns"]


def test_the_flame_graph_merges_calls_by_path(small):
    open_tab(small, "flame")
    labels = flame_labels(small)
    assert "all: 27.00 ms (100 %), own 0, 6.000 ms awaiting, 4 calls" in labels
    assert "app.outer: 10.00 ms (37.0 %), own 7.000 ms, 1 calls" in labels
    assert "app.inner: 3.000 ms (11.1 %), own 3.000 ms, 2 calls" in labels
    assert "fetch: 10.00 ms (37.0 %), own 10.00 ms, 6.000 ms awaiting, 2 calls" in labels
    before = small.run("return document.querySelector('.flame-node[aria-label^=\"app.outer\"]').offsetWidth")
    small.run("document.querySelector('.flame-node').focus()")
    small.keys("\ue015", "\ue007")  # the first child, and narrow to it
    focused = small.find(".flame-node.focused")
    assert focused.rect["width"] > before * 2
    small.keys("\ue00c")
    assert small.wait("!document.querySelector('.flame-node.focused')")


def test_the_keyboard_alone_is_enough(small):
    small.run("document.querySelector('.lanes').focus()")
    small.keys("\ue007")
    assert text(small, ".details h2") == "app.outer"
    assert "app.outer, 10.00 ms, on MainThread" in small.run("return document.querySelector('.announce').textContent")
    shift = "\ue008"
    for key, expected in (("\ue015", "app.inner"), ("\ue014", "app.inner"), ("\ue013", "app.outer")):
        small.run("document.querySelector('.lanes').focus()")
        small.press(shift, key)
        assert text(small, ".details h2") == expected
    whole = small.run("const v = scopeProfiler.state.view.value; return v.to - v.from")
    small.run("document.querySelector('.lanes').focus()")
    small.keys("+", "+")
    assert small.run("const v = scopeProfiler.state.view.value; return v.to - v.from") < whole * 0.6
    small.press(shift, "\ue015")
    small.keys("0", "f")  # inner, with a tenth of it on both sides
    assert small.run("const v = scopeProfiler.state.view.value; return v.to - v.from") == pytest.approx(2.4 * MS)
    small.keys("\ue00c")
    assert small.all(".details") == []
    small.keys("?")
    assert small.run("return document.querySelector('dialog').open")
    small.keys("\ue00c")
    assert small.wait("!document.querySelector('dialog').open")
    small.keys("3")
    assert small.find("#tab-regions").get_attribute("aria-selected") == "true"
    small.run("document.querySelector('#tab-regions').focus()")
    small.keys("\ue014")
    assert small.wait("document.activeElement.id === 'tab-threads'")


def test_the_wheel_zooms_and_dragging_moves(small):
    from selenium.webdriver.common.action_chains import ActionChains

    def view():
        return small.run("const v = scopeProfiler.state.view.value; return [v.from, v.to]")

    box = small.find(".surface")
    before = view()
    small.run(
        "document.querySelector('.surface').dispatchEvent(new WheelEvent('wheel', "
        "{deltaY: -300, ctrlKey: true, clientX: 700, clientY: 300, bubbles: true, cancelable: true}))"
    )
    zoomed = view()
    assert zoomed[1] - zoomed[0] < (before[1] - before[0]) * 0.7
    ActionChains(small.driver).move_to_element(box).click_and_hold().move_by_offset(-100, 0).release().perform()
    moved = view()
    scale = (zoomed[1] - zoomed[0]) / box.rect["width"]
    assert moved[0] - zoomed[0] == pytest.approx(100 * scale, rel=0.02)
    assert small.all(".details") == []  # a drag is no click


def test_two_fingers_zoom_and_one_moves(small):
    small.size(390, 800, mobile=True)
    small.wait("scopeProfiler.exposed.drawing.viewWidth < 300")

    def view():
        return small.run("const v = scopeProfiler.state.view.value; return v.to - v.from")

    def touch(kind, *points):
        small.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": 300, "id": i} for i, x in enumerate(points)]})

    before = view()
    touch("touchStart", 200, 260)
    for spread in (10, 20, 30, 40):
        touch("touchMove", 200 - spread, 260 + spread)
    touch("touchEnd")
    assert view() < before * 0.6


def test_a_phone_has_everything_on_its_screen(small):
    small.size(390, 800, mobile=True)
    small.wait("scopeProfiler.exposed.drawing.viewWidth < 300")
    assert small.run("return document.documentElement.scrollWidth") <= 390
    click_call(small, "app.outer")
    sheet = small.find(".details").rect
    assert sheet["width"] == 390 and sheet["y"] > 300 and sheet["y"] + sheet["height"] <= 801
    for tab in ("flame", "regions", "threads", "tasks", "run"):
        small.click(".close") if small.all(".close") else None
        small.run("document.querySelector(`#tab-${args[0]}`).click()", tab)
        small.wait(f"document.querySelector('.panel-{tab}')")
        assert small.run("return document.documentElement.scrollWidth") <= 390


def becomes(check, seconds=30):
    """Wait for what the page draws when it gets to it."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end


def test_the_dark_scheme_is_dark_and_can_be_chosen(small):
    def brightness():
        return small.run(
            """
            await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame);
            const page = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number);
            const copy = Object.assign(document.createElement('canvas'), {width: 1, height: 1});
            const context = copy.getContext('2d', {willReadFrequently: true}), canvas = document.querySelector('[data-testid=calls]');
            context.drawImage(canvas, -2, 4 - canvas.height);
            const box = context.getImageData(0, 0, 1, 1).data;
            return [Math.max(...page), Math.max(box[0], box[1], box[2])]"""
        )

    becomes(lambda: min(brightness()) > 240)
    small.media(prefers_color_scheme="dark")
    becomes(lambda: max(brightness()) < 40)
    small.click("[aria-label^='Colours']")
    becomes(lambda: min(brightness()) > 240)
    small.click("[aria-label^='Colours']")
    becomes(lambda: max(brightness()) < 40)


def test_hostile_names_are_text(small):
    click_call(small, HOSTILE)
    assert text(small, ".details h2") == SAFE
    open_tab(small, "run")
    assert SAFE in text(small, ".about")
    assert small.all("img") == []


def test_nothing_can_be_fetched_and_no_other_script_runs(small):
    assert small.run(
        """
        const script = document.createElement('script');
        script.textContent = 'window.intruder = 1';
        document.body.append(script);
        const reached = await fetch('http://127.0.0.1:9/').then(() => true, () => false);
        return [window.intruder ?? null, reached]"""
    ) == [None, False]
    assert all("Content Security Policy" in line for line in small.complaints())
    assert small.requests() == []


def test_controls_have_names_and_roles(small):
    """Every button, field and canvas says what it is; the views are one tab list that fits its panel."""
    for tab in ("timeline", "flame", "regions", "threads", "tasks", "run"):
        open_tab(small, tab)
        unnamed = small.run(
            """
            const named = e => (e.ariaLabel || e.textContent.trim() || e.title || e.labels?.length || e.ariaHidden === 'true');
            return [...document.querySelectorAll('button, input, select, canvas, [role]:not([role=status])')].filter(e => !named(e) && !e.dataset.testid)
                .map(e => e.outerHTML.slice(0, 120))"""
        )
        assert unnamed == []
        assert small.find("[role=tabpanel]").get_attribute("aria-labelledby") == f"tab-{tab}"
        assert small.run("return document.querySelectorAll('[role=tab][aria-selected=true]').length") == 1


# -- other runs -----------------------------------------------------------------------------------------------------------


def calls_in_page(page):
    """(rank, lane, name, start, end, depth, the parent's name, awaiting) of every call, sorted."""
    return sorted(
        page.run(
            """
            const run = scopeProfiler.state.run.value, found = [];
            for (const calls of run.ranks) for (let i = 0; i < calls.count; i++) {
                const parent = calls.parent[i], track = calls.trackOf(i);
                found.push([calls.rank, track.lane, track.extra, run.names[calls.name[i]], calls.start[i], calls.end[i],
                    calls.rowDepth[calls.rowOf(i)], parent < 0 ? '' : run.names[calls.name[parent]], calls.awaiting ? calls.awaiting[i] : 0]);
            }
            return found"""
        )
    )


def model(calls):
    """The same by a slow and obvious rule: a call's parent is the last one of its lane that was open when it was entered."""
    found = []
    for rank, lane in {(call[0], call[1]) for call in calls}:
        own = sorted((call for call in calls if call[:2] == (rank, lane)), key=lambda call: (call[3], -call[4]))
        stack = []
        for call in own:
            while stack and stack[-1][4] <= call[3]:
                stack.pop()
            found.append([rank, lane, 0, call[2], call[3], call[4], len(stack), stack[-1][2] if stack else "", call[5]])
            stack.append(call)
    return sorted(found)


def random_calls(seed):
    """(rank, lane, name, start, end, awaiting) of properly nested calls, no two of which begin together on a lane."""
    rng = random.Random(seed)
    calls = []
    for rank in range(2):
        for lane in (-3, -2, 0, 5):
            clock = rng.randrange(1000)
            stack = []
            for _ in range(rng.randrange(1, 60)):
                clock += rng.randrange(1, 10 ** rng.randrange(1, 12))
                if stack and rng.random() < 0.5:
                    name, start = stack.pop()
                    calls.append((rank, lane, name, start, clock, rng.randrange(clock - start + 1) if lane >= 0 else 0))
                else:
                    stack.append((f"r{rng.randrange(5)}", clock))
            for name, start in reversed(stack):
                clock += rng.randrange(1, 1000)
                calls.append((rank, lane, name, start, clock, 0))
    return calls


@pytest.mark.parametrize("seed", range(5))
def test_every_call_arrives_in_the_browser(tmp_path, open_page, seed):
    calls = random_calls(seed)
    regions = {}
    for name in sorted({call[2] for call in calls}):
        regions[name] = {}
        for rank in range(2):
            own = sorted((c for c in calls if c[0] == rank and c[2] == name), key=lambda c: c[3])
            threads = [-2 - c[1] if c[1] < 0 else 0 for c in own]
            tasks = [c[1] if c[1] >= 0 else -1 for c in own]
            regions[name][rank] = region([c[3] for c in own], [c[4] for c in own], threads, tasks, await_times=[c[5] for c in own])
    page = show(None, results_of(regions, metadata={"start_time_ns": 0}), tmp_path, open_page)
    assert calls_in_page(page) == model(calls)
    assert [label for level, label in lanes_of(page) if level == "1"][0] == "rank 0"
    page.clean()


def test_calls_that_overlap_are_drawn_on_rows_of_their_own(tmp_path, open_page):
    run = results_of({"a": {0: region([0], [10], [0])}, "b": {0: region([5], [15], [0])}}, threads={0: [thread(0, "T")]})
    page = show(None, run, tmp_path, open_page)
    assert [call[2:6] for call in calls_in_page(page)] == [[0, "a", 0, 10], [1, "b", 5, 15]]
    assert "overlap" in text(page, ".note")
    assert lanes_of(page) == [["1", "T"]]
    page.clean()


@pytest.mark.slow
def test_deep_call_paths_are_shown_level_by_level(tmp_path, open_page):
    depth = 6000  # two regions that call each other
    spans = [(i, 2 * depth - i) for i in range(depth)]
    run = results_of({name: {0: region([a for a, _ in spans[first::2]], [b for _, b in spans[first::2]])} for first, name in enumerate("ab")})
    page = show(None, run, tmp_path, open_page)
    page.wait("document.querySelector('.lane .more')?.textContent === '5\u2009988 more levels'")
    open_tab(page, "flame")
    labels = flame_labels(page)
    assert len(labels) == 121 and labels[1].startswith("a: 12.00 µs (100 %), own 2 ns")
    page.run("document.querySelector('.flame-node[data-node=\"120\"]').click()")
    page.wait("document.querySelectorAll('.flame-node').length > 200")
    page.clean()


def test_several_runs_are_compared_with_the_first(tmp_path, open_page):
    def one(label, ranks, scale):
        return results_of({"a": {r: region([0], [100 * scale]) for r in range(ranks)}, label: {0: region([0], [7])}}, label, num_ranks=ranks)

    page = show(None, [one("base", 1, 4), one("four <i>", 4, 1)], tmp_path, open_page)
    assert page.find("#tab-compare").get_attribute("aria-selected") == "true"
    rows = {row[0]: row[1:] for row in (cells(page, i) for i in range(3))}
    assert rows["a"] == ["400 ns", "400 ns", "0.00 %"]
    assert rows["base"] == ["7 ns", "–", "–"] and rows["four <i>"] == ["–", "7 ns", "–"]
    assert [caption.text for caption in page.all("figcaption")] == ["Speedup by MPI ranks, against base", "Weak-scaling efficiency by MPI ranks, against base"]
    assert [link.get_attribute("href").rsplit("/", 1)[1] for link in page.all(".compare a")] == ["page-0-base.html", "page-1-four-i.html"]
    page.run("const s = document.querySelector('header select'); s.value = 1; s.dispatchEvent(new Event('change', {bubbles: true}))")
    open_tab(page, "timeline")
    assert [label for level, label in lanes_of(page) if level == "1"] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    page.clean()


def test_processes_are_named_and_tasks_tell_who_made_them(tmp_path, open_page):
    import asyncio

    import scope_profiler
    from scope_profiler.processes import merge_files

    def record(name):
        manager = scope_profiler.ProfileManager()

        async def child():
            with manager.region("child"):
                await asyncio.sleep(0)

        async def parent():
            await asyncio.create_task(child(), name="the child")

        async def main():
            await asyncio.create_task(parent(), name="the parent")

        with manager.session(output=tmp_path / name, verbose=False, track_async=True, spool=False):
            asyncio.run(main())

    record("server.h5"), record("client.h5")
    page = show(None, merge_files([tmp_path / "server.h5", tmp_path / "client.h5"]), tmp_path, open_page)
    labels = page.wait("(labels => labels.length > 1 && labels)([...document.querySelectorAll('.lane-rank .lane-name')].map(e => e.textContent))")
    assert [label.split(" (rank ")[0] for label in labels] == ["server.h5", "client.h5"]
    open_tab(page, "tasks")
    assert dict(zip(column(page, "name"), column(page, "maker")))["the child"] == "the parent"
    page.clean()


def test_a_page_without_charts_has_tables_only(tmp_path, open_page):
    page = show(None, small_run(), tmp_path, open_page, include_charts=False, columns=["calls", "total"], sort="total")
    assert [tab.text for tab in page.all("[role=tab]")] == ["Regions", "Threads", "Tasks", "Run"]
    assert [header.get_attribute("data-column") for header in page.all("thead th")] == ["region", "calls", "total"]
    assert column(page, "total")[0] == "10.00 ms"
    page.clean()


def test_sums_without_calls_have_a_flame_graph_and_tables(tmp_path, open_page):
    import scope_profiler

    path = tmp_path / "summary.h5"
    scope_profiler.write_profile(small_run(), path)
    page = show(None, scope_profiler.read_h5_summary(path), tmp_path, open_page)
    assert "sums" in text(page, ".note")
    assert [tab.text for tab in page.all("[role=tab]")][0] == "Flame graph"
    labels = flame_labels(page)
    assert "app.inner: 3.000 ms (11.1 %), own 3.000 ms, 2 calls" in labels
    page.clean()


def test_an_empty_run_is_shown(tmp_path, open_page):
    page = show(None, results_of({}), tmp_path, open_page)
    assert text(page, ".summary") == "0 calls"
    page.clean()


@pytest.mark.slow
def test_a_large_run_can_be_moved_through(tmp_path, open_page, scale):
    run = large_run(*scale((20_000, 8, 500), (1_000_000, 64, 10_000)))
    page = show(None, run, tmp_path, open_page)
    calls = sum(run[name][0].num_calls for name in run.region_names)
    assert f"{calls:,}".replace(",", "\u2009") in text(page, ".summary")
    drawn = page.run(
        """
        const surface = document.querySelector('.surface'), drawing = scopeProfiler.exposed.drawing;
        const before = drawing.costs.length;
        for (let i = 0; i < 60; i++) {
            surface.dispatchEvent(new WheelEvent('wheel', {deltaY: i < 30 ? -120 : 120, ctrlKey: true, clientX: 800, clientY: 400, bubbles: true, cancelable: true}));
            document.querySelector('.lanes').scrollTop += 37;
            await new Promise(requestAnimationFrame);
        }
        return drawing.costs.length - before"""
    )
    assert drawn >= 50
    page.run("scopeProfiler.state.showAll(); document.querySelector('.lanes').scrollTop = 0")
    tasks = page.run("return document.querySelectorAll('.lane-tasks').length")
    assert tasks > 0
    page.settle()
    page.run("document.querySelector('.lane-tasks .twisty').click()")
    page.wait("document.querySelectorAll('.lane-task').length > 0")
    open_tab(page, "tasks")
    assert page.run("return document.querySelectorAll('tr[data-index]').length") < 200  # of those in sight only
    assert page.find("table").get_attribute("aria-rowcount") == str(len(run.tasks[0]) + 1)
    page.clean()


def test_the_page_carries_the_licences_of_its_libraries(tmp_path):
    page = create_html_report(small_run(), tmp_path / "p.html").read_text(encoding="utf-8")
    licences = page.partition('id="sp-licences">')[2].partition("</script>")[0]
    packages = json.loads((Path(__file__).parents[2] / "viewer" / "package.json").read_text())["dependencies"]
    for name, version in packages.items():
        assert f"{name} {version} (" in licences
