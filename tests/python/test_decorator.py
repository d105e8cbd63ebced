"""What a decorated callable records, and what it passes for."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import copy
import dataclasses
import enum
import functools
import gc
import inspect
import pickle
import re
import sys
import threading
import time
import traceback
import types
import typing
import unittest.mock
import weakref

import pytest

from recording import Recording
from scope_profiler import _core

recorder = _core.Recorder()


def profiled(function):
    return _core.wrap(recorder, function)


@profiled
def module_level(a: int, b: str = "x", *, c: float = 1.0) -> tuple[int, str, float]:
    """Docs."""
    return a, b, c


class Holder:
    @profiled
    def method(self):
        return self


@pytest.fixture
def recording():
    with Recording() as recording:
        yield recording


# -- what is recorded ---------------------------------------------------------------------------------------------------------


def test_each_call_is_recorded_under_the_functions_name(recording):
    @recording.profile
    def work(n):
        return n * 2

    before = time.perf_counter_ns()
    assert [work(i) for i in range(3)] == [0, 2, 4]
    after = time.perf_counter_ns()
    calls = recording.calls()
    assert [call.name for call in calls] == ["work"] * 3
    assert before - 1000 <= calls[0].start <= calls[0].end <= calls[1].start <= calls[2].end <= after + 1000


def test_the_duration_covers_the_call(recording):
    @recording.profile("nap")
    def work():
        time.sleep(0.02)

    work()
    (call,) = recording.calls()
    assert call.name == "nap"
    assert 0.02e9 <= call.end - call.start < 0.5e9


def test_arguments_reach_the_function_in_every_form(recording):
    @recording.profile
    def work(a, /, b, *rest, c, **more):
        return a, b, rest, c, more

    assert work(1, 2, 3, c=4, d=5) == (1, 2, (3,), 4, {"d": 5})
    assert work(*(1, 2), **{"c": 3}) == (1, 2, (), 3, {})
    with pytest.raises(TypeError, match=r"work\(\) missing 1 required keyword-only argument: 'c'"):
        work(1, 2)
    assert recording.names() == ["work"] * 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_every_exception_closes_the_call(recording, error):
    @recording.profile
    def work():
        raise error("why")

    with pytest.raises(error, match="why") as caught:
        work()
    assert recording.names() == ["work"]
    assert recording.open_calls() == []
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_every_exception_closes_the_call", "work"]
    assert caught.value.__context__ is None


def test_recursion_nests_and_ends_where_it_did(recording):
    def measure(wrap):
        depth = 0

        @wrap
        def down():
            nonlocal depth
            depth += 1
            down()

        with pytest.raises(RecursionError):
            down()
        return depth

    plain = measure(lambda function: function)
    decorated = measure(recording.profile)
    assert abs(plain - decorated) <= 2
    assert decorated <= recording.names().count("down") <= decorated + 1
    assert recording.open_calls() == []


@pytest.mark.parametrize("in_thread", [False, True])
def test_recursion_without_a_limit_ends_in_recursion_error(recording, in_thread):
    @recording.profile
    def down(n):
        return n and down(n - 1)

    @recording.profile
    def climb(n):
        if n:
            yield from climb(n - 1)
        yield n

    def work():
        with pytest.raises(RecursionError):
            down(10**6)
        with pytest.raises(RecursionError):
            list(climb(10**6))

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**7)
    try:
        if in_thread:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            work()
    finally:
        sys.setrecursionlimit(before)
    assert recording.open_calls() == []
    assert len(recording.calls()) > 2000


def test_generators_nest_as_deep_as_undecorated(recording):
    def measure(wrap):
        @wrap
        def climb(n):
            yield n
            yield from climb(n + 1)

        deepest = 0
        with pytest.raises(RecursionError):
            for deepest in climb(0):
                pass
        return deepest

    assert abs(measure(lambda function: function) - measure(recording.profile)) <= 5


def test_while_nothing_records_only_the_function_runs():
    recording = Recording()
    work = recording.profile(lambda: 1, "work")
    assert work() == 1
    with recording:
        assert work() == 1
        recording.recorder.pause()
        assert work() == 1
        recording.recorder.resume()
        assert recording.names() == ["work"]
    assert work() == 1
    assert recording.names() == ["work"]


def test_a_call_under_way_at_the_end_of_the_run_may_end_later():
    recording = Recording()

    @recording.profile
    def outer():
        recording.recorder.close()
        recording.recorder.forget()

    with recording:
        outer()
    with recording:
        recording.profile(lambda: None, "next")()
        assert recording.names() == ["next"]


def test_threads_record_on_their_own_lanes(recording):
    @recording.profile
    def work():
        pass

    def run():
        for _ in range(2000):
            work()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lanes = [call.lane for call in recording.calls()]
    assert sorted(lanes.count(lane) for lane in set(lanes)) == [2000] * 4


def test_the_region_has_source_and_tags(recording):
    def work():
        pass

    recording.profile(work, "work", tags=["t"])()
    (row,) = recording.run.collect().rows
    assert row[4:6] == (__file__, work.__code__.co_firstlineno)
    assert row[7] == ("t",)
    wrapped = functools.wraps(work)(lambda: work())
    recording.profile(functools.partial(wrapped), "partial")()
    row = recording.run.collect().rows[1]
    assert row[4:6] == (__file__, work.__code__.co_firstlineno)


def test_names_that_cannot_be_stored_are_refused_at_decoration(recording):
    for name in ("a\0b", "\ud800"):
        with pytest.raises(ValueError):
            recording.profile(lambda: None, name)
    with pytest.raises(TypeError):
        recording.profile(lambda: None, 3)
    with pytest.raises(TypeError, match="only callables"):
        recording.profile(3, "three")


# -- what it passes for --------------------------------------------------------------------------------------------------------


def test_it_has_the_names_of_the_function():
    assert module_level.__name__ == "module_level"
    assert module_level.__qualname__ == "module_level"
    assert module_level.__module__ == __name__
    assert module_level.__doc__ == "Docs."
    assert module_level.__wrapped__.__code__ is module_level.__code__
    assert module_level.__annotations__ == {"a": "int", "b": "str", "c": "float", "return": "tuple[int, str, float]"}
    assert typing.get_type_hints(module_level)["a"] is int
    assert "module_level" in repr(module_level)
    assert str(inspect.signature(module_level)) == str(inspect.signature(module_level.__wrapped__))
    assert inspect.getsource(module_level).startswith("@profiled\ndef module_level")
    assert inspect.getdoc(module_level) == "Docs."
    assert inspect.isfunction(module_level) and callable(module_level)
    assert type(module_level).__module__ == "scope_profiler._core"


def test_attributes_are_its_own_as_with_functools_wraps():
    def work():
        pass

    work.mark = [1]
    decorated = profiled(work)
    assert decorated.mark is work.mark
    decorated.other = 2
    assert not hasattr(work, "other")
    assert vars(decorated) == {"mark": [1], "__wrapped__": work, "other": 2}
    decorated.__name__ = "renamed"
    decorated.__doc__ = "text"
    decorated.__module__ = "elsewhere"
    assert (decorated.__name__, decorated.__doc__, decorated.__module__) == ("renamed", "text", "elsewhere")
    assert (work.__name__, work.__doc__, work.__module__) == ("work", None, __name__)
    with pytest.raises(TypeError):
        decorated.__qualname__ = 3
    del decorated.other
    with pytest.raises(AttributeError):
        decorated.other
    assert {"mark", "__wrapped__", "__code__", "__name__"} <= set(dir(decorated))

    @functools.wraps(decorated)
    def over():
        pass

    assert over.mark == [1] and over.__wrapped__ is decorated and over.__name__ == "renamed"


def test_what_a_call_depends_on_is_the_functions(recording):
    @recording.profile
    def work(a=1, *, b=2):
        return a, b

    work.__defaults__ = (10,)
    work.__kwdefaults__ = {"b": 20}
    assert work() == (10, 20)
    assert work.__wrapped__.__defaults__ == (10,)
    assert work.__globals__ is globals()
    assert work.__closure__ is None

    def generator():
        yield 1

    work.__code__ = generator.__code__
    assert list(work()) == [1]
    assert recording.names() == ["work", "work"]


def test_it_binds_as_a_method(recording):
    class Thing:
        @recording.profile
        def method(self, x=0):
            return self, x

    thing = Thing()
    assert thing.method(3) == (thing, 3)
    assert thing.method.__self__ is thing
    assert thing.method == thing.method
    assert isinstance(thing.method, types.MethodType)
    assert Thing.method is Thing.__dict__["method"]
    assert Thing.method(thing) == (thing, 0)
    assert type(thing.method.__func__).__flags__ & (1 << 17), "Py_TPFLAGS_METHOD_DESCRIPTOR"
    assert recording.names() == ["method"] * 2
    assert str(inspect.signature(thing.method)) == "(x=0)"


def test_builtins_and_callables_bind_as_they_do_undecorated(recording):
    class Thing:
        length = recording.profile(len)
        part = recording.profile(functools.partial(lambda *a: a, 1), "part")
        upper = recording.profile(str.upper)

    thing = Thing()
    assert thing.length([1, 2]) == 2
    if sys.version_info < (3, 14):
        assert thing.part(2) == (1, 2)
    assert Thing.upper("a") == "A"
    with pytest.raises(TypeError):
        thing.upper()
    assert recording.names()[:1] == ["len"]


def test_pickle_and_copy_give_the_same_object():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(module_level, protocol)) is module_level
        assert pickle.loads(pickle.dumps(Holder.method, protocol)) is Holder.method
    assert copy.copy(module_level) is module_level
    assert copy.deepcopy({"f": module_level})["f"] is module_level
    holder = Holder()
    assert copy.deepcopy(holder.method)().__class__ is Holder

    @profiled
    def local():
        pass

    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(local)


def test_a_profiled_partial_pickles_as_what_it_wraps():
    part = _core.wrap(recorder, functools.partial(int, base=2), "binary")
    assert part("101") == 5
    assert pickle.loads(pickle.dumps(part))("101") == 5


def test_weak_references_and_cycles():
    def make():
        @profiled
        def work():
            return work

        work.self = work
        return weakref.ref(work), weakref.ref(work.__wrapped__)

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None, None]

    decorated = profiled(lambda: None)
    reference = weakref.ref(decorated)
    del decorated
    assert reference() is None


def test_calls_leave_no_references(recording):
    argument = object()
    work = recording.profile(lambda *args, **kwargs: None, "work")

    def rounds():
        for _ in range(100):
            work(argument, key=argument)
            with contextlib.suppress(TypeError):
                work(argument, **{"key": argument}, nothing=None)

    rounds()
    before = sys.getrefcount(argument), sys.getrefcount(work), sys.getrefcount(work.__wrapped__)
    rounds()
    assert (sys.getrefcount(argument), sys.getrefcount(work), sys.getrefcount(work.__wrapped__)) == before


# -- kinds of functions ----------------------------------------------------------------------------------------------------------


def plain():
    pass


async def coroutine():
    pass


def generator():
    yield


async def async_generator():
    yield


@types.coroutine
def old_coroutine():
    yield


class CallsAsync:
    async def __call__(self):
        pass


KIND_ANSWERS = [inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.isfunction,
                inspect.isroutine, inspect.ismethod, inspect.isbuiltin, inspect.isclass, inspect.ismethoddescriptor]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "function",
    [plain, coroutine, generator, async_generator, old_coroutine, functools.partial(coroutine),
     functools.partial(functools.partial(generator)), CallsAsync(), CallsAsync().__call__, Holder().method, len,
     functools.lru_cache(plain), str.upper, [].append],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),  # the same in every process
)
def test_inspect_answers_as_before(function):
    decorated = profiled(function)

    class Before:
        method = function

    class After:
        method = decorated

    for answer in KIND_ANSWERS:
        assert answer(decorated) == answer(function), answer.__name__
        assert answer(functools.partial(decorated)) == answer(functools.partial(function)), answer.__name__
        with contextlib.suppress(AttributeError, TypeError):
            assert answer(After().method) == answer(Before().method), answer.__name__
    if sys.version_info < (3, 14):
        assert asyncio.iscoroutinefunction(decorated) == asyncio.iscoroutinefunction(function)
    assert isinstance(decorated, type(function)) or type(function) is types.MethodType


@pytest.mark.skipif(sys.version_info < (3, 12), reason="markcoroutinefunction is new in 3.12")
def test_marked_coroutine_functions_are_timed_to_their_end(recording):
    async def body():
        await asyncio.sleep(0.02)
        return 1

    def before():
        return body()

    decorated_after = recording.profile(inspect.markcoroutinefunction(before), "after")
    decorated_before = inspect.markcoroutinefunction(recording.profile(lambda: body(), "before"))
    for decorated in (decorated_after, decorated_before):
        assert inspect.iscoroutinefunction(decorated)
        assert asyncio.run(decorated()) == 1
        assert recording.calls()[-1].end - recording.calls()[-1].start >= 0.02e9
    assert recording.names() == ["after", "before"]


def test_a_mark_on_what_returns_no_coroutine_records_the_call(recording):
    def work():
        return 5

    work._is_coroutine_mark = True
    decorated = recording.profile(work)
    assert decorated() == 5
    assert recording.names() == ["work"]
    assert recording.open_calls() == []


def test_a_callable_object_with_an_async_call_is_timed_to_its_end(recording):
    class Handler:
        async def __call__(self, x):
            await asyncio.sleep(0.02)
            return x

    handler = recording.profile(Handler())
    assert asyncio.run(handler(4)) == 4
    (call,) = recording.calls()
    assert call.name == "Handler"
    assert call.end - call.start >= 0.02e9


# -- descriptors, classes, callables ------------------------------------------------------------------------------------------------


def test_static_and_class_methods_in_either_order(recording):
    class Thing:
        @staticmethod
        @recording.profile("static inside")
        def a(x):
            return x

        @recording.profile("static outside")
        @staticmethod
        def b(x):
            return x

        @classmethod
        @recording.profile("class inside")
        def c(cls):
            return cls

        @recording.profile("class outside")
        @classmethod
        def d(cls):
            return cls

    class Derived(Thing):
        pass

    assert (Thing.a(1), Thing().a(2), Thing.b(3), Thing().b(4)) == (1, 2, 3, 4)
    assert (Thing.c(), Derived.c(), Derived().c(), Derived.d(), Thing().d()) == (Thing, Derived, Derived, Derived, Thing)
    assert isinstance(Thing.__dict__["b"], staticmethod) and isinstance(Thing.__dict__["d"], classmethod)
    assert recording.names() == ["static inside"] * 2 + ["static outside"] * 2 + ["class inside"] * 3 + ["class outside"] * 2


def test_properties_profile_their_getter(recording):
    class Thing:
        value = 1

        @recording.profile
        @property
        def outside(self):
            """Doc."""
            return self.value

        @outside.setter
        def outside(self, value):
            self.value = value

        @property
        @recording.profile
        def inside(self):
            return self.value

        @recording.profile
        @functools.cached_property
        def cached(self):
            return self.value

    thing = Thing()
    assert (thing.outside, thing.inside, thing.cached, thing.cached) == (1, 1, 1, 1)
    thing.outside = 5
    assert (thing.outside, thing.cached) == (5, 1)
    assert Thing.outside.__doc__ == "Doc."
    assert recording.names() == ["outside", "inside", "cached", "outside"]
    with pytest.raises(TypeError, match="no getter"):
        recording.profile(property())


def test_functools_objects(recording):
    @recording.profile
    @functools.lru_cache(maxsize=None)
    def cached(x):
        return x

    assert (cached(1), cached(1)) == (1, 1)
    assert cached.cache_info().hits == 1
    cached.cache_clear()
    assert cached.cache_info().hits == 0

    @recording.profile
    @functools.singledispatch
    def dispatch(x):
        return "object"

    @dispatch.register
    def _(x: int):
        return "int"

    assert (dispatch(""), dispatch(1)) == ("object", "int")

    class Thing:
        def base(self, a, b):
            return self, a, b

        part = recording.profile(functools.partialmethod(base, 1), "part")

    thing = Thing()
    assert thing.part(b=2) == (thing, 1, 2)
    part = recording.profile(functools.partial(cached, 3))
    assert part() == 3
    assert part.func is cached
    assert recording.names() == ["cached"] * 2 + ["dispatch"] * 2 + ["part", "cached", "cached"]
    with pytest.raises(TypeError, match="profile the functions registered"):
        recording.profile(functools.singledispatchmethod(lambda self, x: x))


def test_builtins_bound_methods_and_callables(recording):
    items = []
    append = recording.profile(items.append)
    append(1)
    assert items == [1] and append.__self__ is items
    assert recording.profile(len)("abc") == 3

    class Adder:
        def __init__(self):
            self.total = 0

        def __call__(self, x):
            self.total += x
            return self.total

    adder = Adder()
    add = recording.profile(adder)
    assert (add(1), add(2), add.total) == (1, 3, 3)
    assert str(inspect.signature(add)) == "(x)"
    assert recording.names() == ["append", "len", "Adder", "Adder"]


@profiled
class HeldError(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


@profiled
@dataclasses.dataclass
class HeldPoint:
    x: int
    y: int = 0


@profiled
class HeldPair(typing.NamedTuple):
    a: int
    b: int = 2


@profiled
class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def test_a_profiled_class_is_the_class(recording):
    for cls in (HeldError, HeldPoint, HeldPair, Colour):
        assert isinstance(cls, type)
    for instance in (HeldPoint(3), HeldPair(1), Colour.RED):
        assert pickle.loads(pickle.dumps(instance)) == instance and copy.deepcopy(instance) == instance
    with pytest.raises(HeldError) as caught:
        try:
            raise HeldError(5)
        except HeldError as error:
            assert error.code == 5
            raise
    assert pickle.loads(pickle.dumps(caught.value)).code == 5
    match HeldPoint(3, 4):
        case HeldPoint(x=3, y=y):
            assert y == 4
    match HeldPair(1, 7):
        case HeldPair(1, b):
            assert b == 7
    assert list(Colour) == [Colour.RED, Colour.BLUE] and Colour(2) is Colour.BLUE and Colour["RED"] is Colour.RED
    HeldPoint.attribute = 1
    assert HeldPoint(0).attribute == 1
    del HeldPoint.attribute
    assert str(inspect.signature(HeldPoint)) == "(x: 'int', y: 'int' = 0) -> None"
    assert list[HeldPoint].__args__ == (HeldPoint,) and HeldPoint | None == typing.Optional[HeldPoint]


def test_constructions_of_a_profiled_class_are_calls_of_its_name(recording):
    @recording.profile
    class Point:
        """A point."""

        origin = (0, 0)

        def __init__(self, x):
            if x < 0:
                raise ValueError
            self.x = x

    class Derived(Point, abc.ABC):
        def __init__(self, x):
            super().__init__(x)

    @recording.profile("pair")
    class Pair:
        def __new__(cls, *values):
            return super().__new__(cls)

    @recording.profile
    @dataclasses.dataclass(slots=True)
    class Slots:
        x: int

    assert (Point(3).x, Point.origin, Point.__name__, Point.__doc__) == (3, (0, 0), "Point", "A point.")
    with pytest.raises(ValueError):
        Point(-1)
    assert Derived(1).x == 1 and type(Derived(1)) is Derived and isinstance(Pair(1, 2), Pair) and Slots(5).x == 5
    assert recording.names() == ["Point"] * 4 + ["pair", "Slots"]


@pytest.mark.parametrize(
    "cls", [int, list, type("Bare", (), {}), type("Inherits", (HeldError,), {}), ValueError]
)
def test_a_class_without_a_constructor_of_its_own_is_refused(recording, cls):
    with pytest.raises(TypeError, match=rf"the class {cls.__name__} has no __init__ or __new__ of its own"):
        recording.profile("named")(cls)
    assert recording.names() == []


def implicit_class_body(decorate):
    """A class whose body has the methods that type() makes static and class methods of, and what they were called with."""
    seen = []

    class Base:
        @decorate
        def __new__(cls, *args, **kwargs):
            seen.append(("new", cls.__name__, args, kwargs))
            return super().__new__(cls)

        @decorate
        def __init_subclass__(cls, /, flavour=None, **kwargs):
            super().__init_subclass__(**kwargs)
            seen.append(("subclass", cls.__name__, flavour))

        @decorate
        def __class_getitem__(cls, key):
            seen.append(("item", cls.__name__, key))
            return types.GenericAlias(cls, key)

    return Base, seen


def use_implicit(Base):
    class Derived(Base, flavour="sweet"):
        __slots__ = ("a",)

        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)

    class Last(Derived):
        pass

    instance = Last(1, b=2)
    return [Derived[int], Base[str], instance.__new__(Base), instance.__class_getitem__(float), instance.__init_subclass__(), Last()]


def test_implicit_class_and_static_methods_are_what_type_makes_of_them(recording):
    plain, plain_seen = implicit_class_body(lambda function: function)
    profiled_class, seen = implicit_class_body(recording.profile)
    plain_results, results = use_implicit(plain), use_implicit(profiled_class)
    assert seen == plain_seen and len(seen) == 9
    assert [str(type(result).__name__) for result in results] == [str(type(result).__name__) for result in plain_results]
    for name in ("__new__", "__init_subclass__", "__class_getitem__"):
        assert type(vars(profiled_class)[name]) is type(vars(plain)[name])
    kinds = {"new": "__new__", "subclass": "__init_subclass__", "item": "__class_getitem__"}
    assert recording.names() == [kinds[what[0]] for what in seen]


def test_implicit_methods_decorated_twice_and_explicitly(recording):
    class Base:
        @recording.profile("outer")
        @recording.profile("inner")
        def __class_getitem__(cls, key):
            return cls, key

        @recording.profile
        @classmethod
        def __init_subclass__(cls):
            cls.made = True

        @staticmethod
        @recording.profile
        def __new__(cls):
            return object.__new__(cls)

    class Derived(Base):
        pass

    assert Derived[1] == (Derived, 1) and Derived.made and type(Derived()) is Derived
    assert recording.names() == ["__init_subclass__", "outer", "inner", "__new__"]


def test_the_kinds_of_a_class_body(recording):
    class Named:
        def __init__(self, function):
            self.function = function

        @recording.profile
        def __set_name__(self, owner, name):
            self.name = name
            owner.names = [*getattr(owner, "names", ()), name]

        def __call__(self, *args):
            return self.function(*args)

    class Body:
        plain = Named(len)
        profiled = recording.profile(Named(len), "called")
        assigned = recording.profile(lambda self: self)

        @functools.singledispatchmethod
        @recording.profile
        def dispatch(self, x):
            return "object"

        @dispatch.register
        @recording.profile
        def integer(self, x: int):
            return "int"

    assert Body.names == ["plain", "profiled"]
    body = Body()
    assert (Body.profiled("ab"), Body.profiled.name, body.assigned()) == (2, "profiled", body)
    assert (body.dispatch(""), body.dispatch(1)) == ("object", "int")
    assert recording.names() == ["__set_name__"] * 2 + ["called", "<lambda>", "dispatch", "integer"]


def test_slots_of_a_dataclass_keep_decorated_methods(recording):
    @dataclasses.dataclass(slots=True, frozen=True)
    class Point:
        x: int

        @recording.profile
        def __class_getitem__(cls, key):
            return cls, key

        @recording.profile
        def double(self):
            return 2 * self.x

        @property
        @recording.profile
        def half(self):
            return self.x // 2

    assert Point[0] == (Point, 0)
    assert (Point(4).double(), Point(4).half) == (8, 2)
    assert recording.names() == ["__class_getitem__", "double", "half"]


def test_abstract_methods_stay_abstract(recording):
    class Base(abc.ABC):
        @recording.profile
        @abc.abstractmethod
        def inside(self): ...

        @abc.abstractmethod
        @recording.profile
        def outside(self): ...

    assert Base.__abstractmethods__ == {"inside", "outside"}
    with pytest.raises(TypeError, match="abstract"):
        Base()


def test_decorated_twice_records_both(recording):
    @recording.profile("outer")
    @recording.profile("inner")
    def work():
        return 1

    assert work() == 1
    outer, inner = recording.calls()
    assert (outer.name, inner.name) == ("outer", "inner")
    assert outer.start <= inner.start <= inner.end <= outer.end


def test_mock_autospec_follows_the_signature():
    mock = unittest.mock.create_autospec(module_level)
    mock(1, c=2.0)
    with pytest.raises(TypeError):
        mock()
    holder = unittest.mock.create_autospec(Holder)
    holder().method()
    with pytest.raises(TypeError):
        holder().method(1)
    with unittest.mock.patch(f"{__name__}.module_level", autospec=True) as patched:
        patched.return_value = 7
        assert module_level(1) == 7
    mocks = [unittest.mock.create_autospec(function) for function in (coroutine, profiled(coroutine))]
    assert asyncio.run(mocks[1]()) is not None
    assert inspect.iscoroutinefunction(mocks[0]) == inspect.iscoroutinefunction(mocks[1])


@pytest.fixture
@profiled
def decorated_fixture(request):
    yield request.node.name


def test_pytest_fixtures_may_be_decorated(decorated_fixture):
    assert decorated_fixture == "test_pytest_fixtures_may_be_decorated"


@profiled
@pytest.mark.parametrize("value", [1, 2])
def test_pytest_tests_may_be_decorated(value):
    assert value in (1, 2)


# -- annotate -----------------------------------------------------------------------------------------------------------------------


class Notes(list):
    def __call__(self, *args, **kwargs):
        self.begun = args
        return lambda name, lane, start, end, error: self.append((name, lane, start, end, args, kwargs, error))


def test_annotate_is_told_about_every_recorded_call():
    notes = Notes()
    recording = Recording()
    failure = ValueError("no")

    def work(a, b=None, **more):
        if b:
            raise failure
        return a

    decorated = recording.profile(work, annotate=notes)
    decorated(0)
    assert notes == []
    with recording:
        decorated(1, c=3)
        with pytest.raises(ValueError) as caught:
            decorated(2, b=True)
        first, second = recording.calls()
        for note, call in zip(notes, (first, second)):
            assert note[:2] == ("work", call.lane) and call.lane == recording.run.lane()
            assert abs(recording.run.to_ns(note[2]) - call.start) <= 1
            assert call.end <= recording.run.to_ns(note[3]) + 1
    assert [note[4:] for note in notes] == [((1,), {"c": 3}, None), ((2,), {"b": True}, failure)]
    assert caught.value is failure
    assert [frame.name for frame in traceback.extract_tb(failure.__traceback__)][-1] == "work"


def test_annotate_is_told_at_the_end_of_a_body(recording):
    notes = Notes()

    @recording.profile("co", annotate=notes)
    async def co(x):
        await asyncio.sleep(0)
        if x:
            raise KeyError(x)

    @recording.profile("gen", annotate=notes)
    def gen(x):
        yield x

    @recording.profile("agen", annotate=notes)
    async def agen(x):
        yield x
        raise LookupError(x)

    asyncio.run(co(0))
    with pytest.raises(KeyError):
        asyncio.run(co(1))
    assert list(gen(2)) == [2]
    gen(3)
    gen(4).close()
    next(gen(5))

    async def use():
        with contextlib.suppress(LookupError):
            async for _ in agen(6):
                pass

    asyncio.run(use())
    assert [(note[0], note[4], repr(note[6])) for note in notes] == [
        ("co", (0,), "None"), ("co", (1,), "KeyError(1)"), ("gen", (2,), "None"), ("gen", (5,), "None"),
        ("agen", (6,), "LookupError(6)")]


def test_annotate_is_asked_before_the_call():
    notes = Notes()

    def work(items):
        assert notes.begun == (items,)
        return len(items)

    with Recording() as recording:
        assert recording.profile(work, annotate=notes)([1, 2]) == 2


def test_an_error_of_annotate_reaches_the_caller_instead_of_the_call(recording):
    def annotate(*_):
        raise ArithmeticError("annotate")

    def never():
        raise AssertionError

    async def never_async():
        raise AssertionError

    for function in (never, never_async):
        with pytest.raises(ArithmeticError):
            recording.profile(function, annotate=annotate)()
    assert recording.names() == []


def test_an_error_after_the_call_does_not_reach_the_caller(recording, monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)

    def annotate(*_):
        def finish(*_):
            raise ArithmeticError("finish")

        return finish

    assert recording.profile(lambda: 3, "work", annotate=annotate)() == 3
    with pytest.raises(KeyError):
        recording.profile({}.__getitem__, "item", annotate=annotate)(1)
    assert [type(what.exc_value) for what in seen] == [ArithmeticError] * 2
    assert recording.names() == ["work", "item"]
