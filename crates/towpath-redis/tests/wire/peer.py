"""What legacy peers have in common: an ordinary Redis client, and lines of JSON to the test that started them."""

import json
import os
import sys
import threading
import time

try:
    import redis
except ImportError:
    sys.exit("python3 has no module 'redis': run ./test once, it installs what the tests need")


def connect(port):
    # Some versions give up a blocking read after a few seconds and send it again; a legacy peer waits as long as it said.
    return redis.Redis(host="127.0.0.1", port=port, decode_responses=True, socket_timeout=None)


def now_ms():
    return int(time.time() * 1000)


speaking = threading.Lock()


def say(event, **more):
    with speaking:
        print(json.dumps({"event": event, **more}), flush=True)


def listen(orders):
    """Follows the test's orders, one word a line. The end of the test ends this process: no farewell, as when it is killed."""

    def follow():
        for line in sys.stdin:
            orders[line.strip()]()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()
