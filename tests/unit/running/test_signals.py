"""The end of a time is a signal, which leaves as it found them the handlers of the process."""

import signal
import threading
import time

import pytest

from ablations.running.signals import TimeUp, limited


def test_at_its_end_a_time_interrupts_whatever_goes_on():
    usual, began = signal.getsignal(signal.SIGALRM), time.monotonic()
    with pytest.raises(TimeUp), limited(began + 0.2):
        time.sleep(60)
    assert 0.2 <= time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGALRM) == usual


def test_elsewhere_than_in_the_main_thread_nothing_is_limited():
    told = []

    def work():
        with limited(time.monotonic()):
            told.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert told == ["done"]
