"""A caller as the seeds describe it: looks for a healthy worker, adds an entry to the stream, waits at a list of its own for the answer."""

import argparse
import json
import random

from peer import connect, now_ms, say

HEALTHY_MS = 30_000

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, required=True)
options.add_argument("--function", required=True)
options.add_argument("--scope", default="__global__")
options.add_argument("--seed", choices=("first", "second"), default="second", help="an entry of four fields, or one of seven")
options.add_argument("--without", action="append", default=[], help="a field that it leaves out")
options.add_argument("--params", default='{"a": 2, "b": 40}')
options.add_argument("--listed-params", action="store_true", help="sends only the params that the function's workers list")
options.add_argument("--timeout-ms", default="30000")
options.add_argument("--patience-s", type=float, default=30, help="how long it waits for the answer; 0 is for ever")
options.add_argument("--count", type=int, default=1, help="so many calls at once")
options.add_argument("--blind", action="store_true", help="does not look for a worker first")
want = options.parse_args()

store = connect(want.port)
stream = f"function:stream:{want.scope}:{want.function}"


def somebody_is_healthy():
    for worker in store.smembers(f"function:{want.function}"):
        heartbeat = store.hget(f"function:meta:{worker}:{want.function}", "lastHeartbeat")
        if heartbeat and now_ms() - int(heartbeat) <= HEALTHY_MS:
            return True
    return False


def listed_params():
    """As the seed's node does it: it has one input per parameter that the registry lists."""
    listed = set()
    for worker in store.smembers(f"function:{want.function}"):
        about = store.hget(f"function:meta:{worker}:{want.function}", "parameters")
        listed |= {parameter["name"] for parameter in json.loads(about or "[]")}
    return json.dumps({name: value for name, value in json.loads(want.params).items() if name in listed})


def call():
    params = listed_params() if want.listed_params else want.params
    if want.seed == "first":
        call_id = f"worker-1_{now_ms()}_{random.random()}"
        fields = {"callId": call_id, "params": params}
    else:
        call_id = f"call-{now_ms()}-{random.getrandbits(52):x}"
        item = {"json": {"body": json.loads(params)}, "pairedItem": {"item": 0}}
        fields = {"callId": call_id, "functionName": want.function, "params": params, "inputItem": json.dumps(item)}
    fields |= {"responseChannel": f"function:response:{call_id}", "timeout": want.timeout_ms}
    if want.seed == "second":
        fields["timestamp"] = now_ms()
    store.xadd(stream, {name: value for name, value in fields.items() if name not in want.without})
    say("called", callId=call_id)
    return call_id


def main():
    if not want.blind and not somebody_is_healthy():
        return say("not found")
    for call_id in [call() for _ in range(want.count)]:
        answer = store.blpop([f"function:response:{call_id}"], want.patience_s)
        if answer is None:
            say("timed out", callId=call_id)
        else:
            say("answer", callId=call_id, reply=json.loads(answer[1]))


main()
