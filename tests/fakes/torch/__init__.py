"""What there is of torch's interface for events: names, arguments and units are torch.cuda's."""

import simulated_device as device


class cuda:
    class Event:
        def __init__(self, enable_timing=False, blocking=False, interprocess=False):
            self._timed = enable_timing
            self._event = device.Event()

        def record(self, stream=None):
            self._event.note(stream if stream is not None else device.stream)

        def synchronize(self):
            self._event.wait()

        def elapsed_time(self, end_event):
            if not (self._timed and end_event._timed):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            return device.milliseconds_between(self._event, end_event._event)

    @staticmethod
    def is_available():
        return device.present

    @staticmethod
    def current_stream(device_index=None):
        return device.stream

    @staticmethod
    def synchronize(device_index=None):
        device.wait_for_all()
