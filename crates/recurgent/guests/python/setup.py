"""Guest side of the worker protocol (specs/worker-protocol.md), for Python 3.9 and later.

One process starts here as the *zygote*: it activates its environment, if it is given one, answers
`fork` and `reap` on descriptor 0 and never touches guest code. Each fork becomes a *worker*, which
serves `execute` frames on its own channel:

    Zygote --fork--> Worker --per execute--> Execution
                       |- Channel    frames and asks, one at a time
                       |- Context    the agent's context, tracking the keys a program touches
                       `- Programs   compiled programs by digest

A program may patch, close or replace anything it can reach. What every `done` needs is therefore
bound once, below, before any program runs.
"""
import ast
import builtins
import ctypes
import enum
import errno
import gc
import io
import json
import keyword
import linecache
import math
import os
import re
import resource
import socket
import sys
import types
# Not `signal` and `threading`: what these do in each fork writes to memory that is shared until then.
import _signal as signal
import _thread
from collections import OrderedDict, deque
from itertools import islice

IPC_VERSION = 1
FILE = "program.py"
MAX_DEPTH = 100
MAX_MESSAGE = 2000
MAX_PATH = 300
MAX_ITEMS = 1_000_000
MAX_NAMED_KEYS = 20
MAX_EXPLANATION = 900
KEPT_PROGRAMS = 256
WARM_UP_RUNS = 12
WARM_UP_PROGRAMS = ("result = args[0] + 1", "def warm_up(number):\n    return number + 1")
DEFAULT_FRAME_BYTES = 32 << 20
PR_SET_PDEATHSIG = 1
OUT_OF_MEMORY = 112

dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
load = json.JSONDecoder().decode
getpid, leave, dup2, set_timer = os.getpid, os._exit, os.dup2, signal.setitimer
count_threads = _thread._count
REAL_TIMER = signal.ITIMER_REAL
