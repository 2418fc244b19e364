"""A worker in another language that takes calls in batches, notes every run, and answers each call with its parameters and its delivery.

Usage: pull_worker.py SERVER FUNCTION NOTES BATCH LEASE_MS WORK_MS. A run is noted in the file NOTES before it is answered. What happens is
said on stdout, one JSON object per line. It goes on when the server is away for a while or has forgotten it.
"""

import http.client
import json
import sys
import time
import uuid
from urllib.parse import urlsplit

server, function, notes = sys.argv[1:4]
batch, lease_ms, work_ms = map(int, sys.argv[4:7])
worker = f"python-{uuid.uuid4()}"
connection = None


def post(path, body):
    """Status and answer; 0 when there was none."""
    global connection
    try:
        if connection is None:
            connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=20)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        connection = None
        return 0, None


def insist(path, body):
    """The answer, however long the server is away."""
    while True:
        status, answer = post(path, body)
        if status == 200:
            return answer
        time.sleep(0.02)


def say(**event):
    print(json.dumps(event), flush=True)


def register():
    insist("/v1/workers", {"worker_id": worker, "kind": "python", "functions": [{"name": function, "concurrency": batch}]})


def run(calls):
    with open(notes, "a") as file:
        file.write("".join(f"{call['delivery_id']}\n" for call in calls))
    time.sleep(work_ms / 1000)
    answer = lambda call: {"params": call["params"], "delivery": call["delivery_id"]}
    return [{"delivery_id": call["delivery_id"], "success": True, "data": answer(call)} for call in calls]


register()
say(event="serving", worker_id=worker)
number = 0
while True:
    status, claimed = post(f"/v1/workers/{worker}/claim", {"max": batch, "wait_ms": 10000, "lease_ms": lease_ms})
    if status == 404:
        say(event="forgotten")
        register()
    elif status != 200:
        time.sleep(0.02)
    elif claimed["calls"]:
        number += 1
        say(event="claimed", batch=number, calls=len(claimed["calls"]))
        results = insist(f"/v1/workers/{worker}/complete", {"results": run(claimed["calls"])})["results"]
        accepted = sum(result["result"] == "accepted" for result in results)
        say(event="answered", batch=number, accepted=accepted, lost=len(results) - accepted)
