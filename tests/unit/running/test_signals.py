"""The end of a time is a signal, which leaves as it found them the handlers of the process."""

import signal
import threading
import time

import pytest

from ablations.running.signals import TimeUp, limited, patient


def test_at_its_end_a_time_interrupts_whatever_goes_on():
    usual, began = signal.getsignal(signal.SIGALRM), time.monotonic()
    with pytest.raises(TimeUp), limited(began + 0.2):
        time.sleep(60)
    assert 0.2 <= time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGALRM) == usual


def test_what_ends_sooner_hears_nothing_of_it():
    with limited(time.monotonic() + 0.3):
        pass
    time.sleep(0.5)  # a late signal would end the process
    with limited(None):
        assert threading.active_count() >= 1


def test_a_step_goes_on_to_its_end():
    told = []

    def steps():
        with limited(time.monotonic() + 0.1), patient() as interrupted:
            while not interrupted.is_set():
                time.sleep(0.01)
            told.append("a checkpoint")
            interrupted.raise_again()

    with pytest.raises(TimeUp):
        steps()
    assert told == ["a checkpoint"]


def test_elsewhere_than_in_the_main_thread_nothing_is_limited():
    told = []

    def work():
        with limited(time.monotonic()):
            told.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert told == ["done"]
