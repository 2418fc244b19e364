"""A worker as the seeds describe it: registers, reads the stream with a consumer group, answers into the caller's list.

It knows nothing of Towpath. Generation `a` is what the seeds' text says; `b` came after it and differs at its start, in how it waits and in
how it leaves. Its function adds `a` and `b`.
"""

import argparse
import json
import os
import queue
import threading

from peer import connect, listen, now_ms, redis, say

META_KEPT_S = 3600
REPLY_KEPT_S = 60

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, required=True)
options.add_argument("--function", required=True)
options.add_argument("--scope", default="__global__")
options.add_argument("--worker-id", default="worker-1794767286013-elno0oaxhp6")
options.add_argument("--consumer", help="its name in the group; the text of the seeds takes the worker's id, the field has another")
options.add_argument("--generation", choices="ab", default="a")
options.add_argument("--init-entry", action="store_true", help="writes an entry that is no call when it starts")
options.add_argument("--meta-expired", action="store_true", help="serves for more than an hour: of its hash only the heartbeat is left")
options.add_argument("--bare-reply", action="store_true", help="answers without the call's id, as the first seed has it")
options.add_argument("--parameters", help="what it says its function takes, as JSON; numbers `a` and `b` if nothing else is said")
options.add_argument("--heartbeat-s", type=float, default=10)
options.add_argument("--fail", help="answers every call with this error")
options.add_argument("--hold", action="store_true", help="answers when the test says `answer`, and takes no other call meanwhile")
options.add_argument("--hold-all", action="store_true", help="answers the oldest call when the test says `answer`, and reads on meanwhile")
want = options.parse_args()

store, beats = connect(want.port), connect(want.port)
stream = f"function:stream:{want.scope}:{want.function}"
group = f"group:{want.function}"
meta = f"function:meta:{want.worker_id}:{want.function}"
registry = f"function:{want.function}"
consumer = want.consumer or want.worker_id
held = queue.SimpleQueue()
may_read_on = threading.Semaphore(0)
leaving = threading.Event()


def register():
    try:
        store.xgroup_create(stream, group, "$", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise
    parameters = [{"name": name, "type": "number", "required": True, "defaultValue": "", "description": name} for name in ("a", "b")]
    said = {
        "functionName": want.function,
        "executionId": want.scope,
        "nodeId": "ab000000-1111-4111-8111-111111111111",
        "parameters": want.parameters or json.dumps(parameters),
        "workerId": want.worker_id,
        "lastHeartbeat": now_ms(),
    }
    with store.pipeline(transaction=True) as pipe:
        pipe.hset(meta, mapping=said).expire(meta, META_KEPT_S).sadd(registry, want.worker_id).execute()
    if want.meta_expired:
        store.delete(meta)
        store.hset(meta, "lastHeartbeat", now_ms())
    if want.init_entry:
        store.xadd(stream, {"init": "stream_initialization", "timestamp": now_ms()})
    if want.generation == "b":
        # Whoever they belong to: this is how generation B loses the calls of others.
        for pending in store.xpending_range(stream, group, "-", "+", 100):
            store.xack(stream, group, pending["message_id"])


def beat():
    while not leaving.wait(want.heartbeat_s):
        beats.hset(meta, "lastHeartbeat", now_ms())


def leave():
    leaving.set()
    with beats.pipeline(transaction=True) as pipe:
        pipe.delete(meta).srem(registry, want.worker_id).execute()
    if want.generation == "a":
        beats.xgroup_destroy(stream, group)
    else:
        beats.publish(f"control:stop:{want.function}:{want.scope}:{consumer}", "stop")
    say("left")
    os._exit(0)


def run(params):
    if want.fail:
        return {"success": False, "error": want.fail}
    return {"success": True, "data": {"sum": params["a"] + params["b"]}}


def answer(place, fields):
    call_id, channel = fields["callId"], fields["responseChannel"]
    reply = run(json.loads(fields["params"]))
    if not want.bare_reply:
        reply["callId"] = call_id
    reply["timestamp"] = now_ms()
    if want.generation == "b":
        store.set(f"function:response:sent:{call_id}", "1", ex=REPLY_KEPT_S)
    store.lpush(channel, json.dumps(reply))
    store.expire(channel, REPLY_KEPT_S)
    store.xack(stream, group, place)
    say("answered", callId=call_id)


def answer_held():
    answer(*held.get())
    may_read_on.release()


def serve():
    block_ms = 1000 if want.generation == "a" else 0
    while True:
        for _, entries in store.xreadgroup(group, consumer, {stream: ">"}, count=1, block=block_ms):
            for place, fields in entries:
                say("took", fields=fields)
                if "callId" not in fields:
                    store.xack(stream, group, place)
                    continue
                if want.hold or want.hold_all:
                    held.put((place, fields))
                else:
                    answer(place, fields)
                if want.hold:
                    may_read_on.acquire()


register()
listen({"answer": answer_held, "leave": leave})
threading.Thread(target=beat, daemon=True).start()
say("ready")
try:
    serve()
except redis.ResponseError as error:
    # Another worker has destroyed the group. As the first seed has it, whatever ends the loop ends in a deactivation.
    if "NOGROUP" not in str(error) and "UNBLOCKED" not in str(error):
        raise
    if leaving.is_set():
        threading.Event().wait()  # it is leaving already, and that ends the process
    leave()
