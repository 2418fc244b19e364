"""A worker in another language that takes one call, sends no heartbeat, and answers when the file `go` appears.

Usage: careless_worker.py SERVER FUNCTION FOLDER. Writes the delivery into FOLDER/claimed, and what became of its answer to stdout.
"""

import json
import os
import sys
import time
import urllib.request

server, function, folder = sys.argv[1:4]


def post(path, body):
    request = urllib.request.Request(server + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


worker = post("/v1/workers", {"kind": "python", "functions": [{"name": function}]})["worker_id"]
calls = []
while not calls:
    calls = post(f"/v1/workers/{worker}/claim", {"max": 1, "wait_ms": 20000, "lease_ms": 1000})["calls"]

with open(os.path.join(folder, "claimed"), "w") as claimed:
    claimed.write(calls[0]["delivery_id"] + "\n")
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.01)

result = {"delivery_id": calls[0]["delivery_id"], "success": True, "data": "from the careless one"}
print(json.dumps(post(f"/v1/workers/{worker}/complete", {"results": [result]})["results"][0]), flush=True)
