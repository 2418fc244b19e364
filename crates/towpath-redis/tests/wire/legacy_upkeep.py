"""The periodic jobs of the first seed, each run once: claim what idles and add it to the stream again; trim streams by length."""

import argparse

from peer import connect, say

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, required=True)
options.add_argument("job", choices=("reclaim", "trim"))
options.add_argument("--idle-ms", type=int, default=30_000)
options.add_argument("--keep", type=int, default=10_000)
want = options.parse_args()

store = connect(want.port)


def reclaim(stream):
    copied = 0
    for group in store.xinfo_groups(stream):
        claimed = store.xautoclaim(stream, group["name"], "reclaimer", want.idle_ms, "0-0", count=100)
        for _, fields in claimed[1]:
            # The claimed entry stays pending for a consumer that never reads; the copy has the same call id.
            store.xadd(stream, fields)
            copied += 1
    return copied


def trim(stream):
    return store.xtrim(stream, maxlen=want.keep, approximate=False)


job = {"reclaim": reclaim, "trim": trim}[want.job]
say("done", count=sum(job(stream) for stream in store.keys("function:stream:*")))
