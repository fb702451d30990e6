import json
import os
import warnings
from enum import Enum


class ProfilerActivity(Enum):
    CPU = 0
    CUDA = 1


def supported_activities():
    return set(ProfilerActivity)


class profile:
    def __init__(self, activities):
        assert activities == [ProfilerActivity.CUDA]
        self.running = False

    def start(self):
        # As version 2.11 does.
        warnings.warn("Profiler clears events at the end of each cycle.", UserWarning, stacklevel=2)
        self.running = True

    def stop(self):
        assert self.running
        self.running = False

    def export_chrome_trace(self, path):
        assert not self.running
        with open(os.environ["FAKE_TRACE"]) as source, open(path, "w") as file:
            file.write(json.dumps(json.load(source)))
