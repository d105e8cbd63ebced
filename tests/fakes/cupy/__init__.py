"""What there is of CuPy's interface for events: names, arguments and units are cupy.cuda's."""

import simulated_device as device


class cuda:
    class Event:
        def __init__(self, block=False, disable_timing=False, interprocess=False):
            self._event = device.Event()

        def record(self, stream=None):
            self._event.note(stream if stream is not None else device.stream)

        def synchronize(self):
            self._event.wait()

    class Device:
        def __init__(self, number=None):
            pass

        def synchronize(self):
            device.wait_for_all()

    class runtime:
        class CUDARuntimeError(RuntimeError):
            pass

        @staticmethod
        def getDeviceCount():
            if not device.present:
                raise cuda.runtime.CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
            return 1

    @staticmethod
    def get_current_stream(device_id=-1):
        return device.stream

    @staticmethod
    def get_elapsed_time(start_event, end_event):
        return device.milliseconds_between(start_event._event, end_event._event)
