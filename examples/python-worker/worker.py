"""A worker that executes runs of the workflow `order` (version 1): Python 3 and its standard library, nothing else.

Start it with `python3 worker.py [SERVER]`, kill it at any moment and start another one: a task whose result is recorded does not run again.
`class Run` is all that a workflow needs; docs/runs.md describes the requests. It prints what happens, one JSON object per line.
"""
import http.client, json, os, signal, sys, threading, time
from urllib.parse import urlsplit
SERVER = urlsplit(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8690").netloc
LEASE_MS = int(os.environ.get("LEASE_MS", "15000"))  # other workers take over after this much silence

class Stop(Exception): """This worker is done with the run for now: it is parked, paused, closed, or another worker's."""
class Cancelled(Exception): """A caller wants the run cancelled."""
class Diverged(Exception): """The code does not do what the journal says."""

def ask(method, path, body=None):
    """Status and answer. Every request can be repeated, so one without an answer is sent again."""
    while True:
        try:
            connection = http.client.HTTPConnection(SERVER, timeout=90)
            connection.request(method, path, json.dumps(body or {}), {"content-type": "application/json"})
            response = connection.getresponse()
            status, answer = response.status, json.loads(response.read())
            if status not in (429, 500, 502, 503, 504, 507):
                return status, answer
        except (OSError, http.client.HTTPException, ValueError):
            pass
        time.sleep(0.1)

def say(**event): print(json.dumps(event), flush=True)

class Run:
    """A claimed run: what its journal says, and the steps that a workflow can take."""
    def __init__(self, worker, claimed):
        self.id, self.revision, self.claim = claimed["run_id"], claimed["revision"], {"worker_id": worker, "epoch": claimed["epoch"]}
        self.facts, self.cancel = claimed["facts"], claimed["cancel_requested"]
        self.recorded, self.results, self.unbound = {}, {}, 0
        entries, more = claimed["journal"], claimed.get("journal_next")
        while more:
            page = ask("GET", f"/v1/runs/{self.id}/journal?from={more}")[1]
            entries, more = entries + page["entries"], page.get("next")
        for entry in entries:
            kind, body = entry["kind"], entry["body"]
            if kind == "begin":
                self.input = body["v"]
            elif kind == "open":
                self.recorded.setdefault((body["k"], body["name"]), []).append(entry["step_id"])
                self.unbound += 1
            elif kind == "done":
                self.results[entry["step_id"]] = body

    def bind(self, kind, name):
        """The recorded step that this call is: the next one of its kind and name. None: the call is new."""
        if self.recorded.get((kind, name)):
            self.unbound -= 1
            return self.recorded[kind, name].pop(0)
        if self.unbound:
            raise Diverged(f"the code asks for {kind} {name}, and the journal has other steps")
        if self.cancel:
            raise Cancelled

    def commit(self, *steps, then="stay", **more):
        """Writes steps and results as a whole. Goes on only if the run is still this worker's."""
        body = {**self.claim, "revision": self.revision, "steps": steps, "then": {"kind": then, **more}}
        answer = ask("POST", f"/v1/runs/{self.id}/commit", body)[1]
        if answer.get("result") != "committed":
            raise Stop(answer)
        self.revision, self.cancel = answer["revision"], answer["cancel_requested"]
        self.facts = self.facts + answer.get("facts", [])
        if answer["held"] and answer["paused"]:
            self.commit(then="release")
        if not answer["held"]:
            raise Stop
        return answer.get("step_ids", [])

    def task(self, name, work, *inputs):
        """Runs `work` unless its result is recorded. After a crash it may run again, after its commit never."""
        step = self.bind("task", name)
        if step not in self.results:
            say(event="task", name=name, run=self.id)
            value = work(*inputs)
            [step] = self.commit({"step": {"kind": "task", "name": name}, "out": "ok", "value": value})
            self.results[step] = {"v": value}
        return self.results[step]["v"]

    def event(self, name, deadline_ms):
        """Waits for an event; None if it did not come in time. No worker is needed meanwhile."""
        step = self.bind("event", name)
        if step is None:
            [step] = self.commit({"step": {"kind": "event", "name": name, "deadline_ms": deadline_ms}})
        while step not in self.results:
            fits = [fact for fact in self.facts if fact.get("event") == name or fact.get("step_id") == step]
            if fits:
                self.commit({"step_id": step, "fact": fits[0]["number"]})
                self.results[step] = {"v": fits[0].get("data")}
            elif self.cancel:
                raise Cancelled
            else:
                self.commit(then="park")
        return self.results[step].get("v")

def order(run):
    """The workflow: plain code. The same input and the same results must lead to the same steps."""
    reserved = run.task("reserve", lambda: f"{run.input['item']} is reserved")
    if run.input.get("ask") and not run.event("approved", deadline_ms=24 * 3600 * 1000):
        raise ValueError("not approved within a day")
    paid = run.task("charge", charge, run.input.get("price", 0))
    return {"reserved": reserved, "paid": paid, "shipped": run.task("ship", lambda: f"parcel for {run.input['item']}")}

def charge(price):
    time.sleep(float(os.environ.get("CHARGE_SECONDS", "0")))
    return price

def execute(run):
    """Every way out commits what becomes of the run, and then stops."""
    try:
        run.commit(then="complete", value=order(run))
    except Cancelled:
        run.commit(then="cancel", reason="the caller asked for it")
    except Diverged as error:
        run.commit(then="block", cause="nondeterminism", reason=str(error))
    except (ValueError, KeyError) as error:
        run.commit(then="fail", error={"code": type(error).__name__, "message": str(error)})

def renew(worker, held):
    while True:
        time.sleep(LEASE_MS / 3000)
        ask("POST", f"/v1/run-workers/{worker}/renew", {"runs": list(held)})

def main():
    serves = {"build": "1", "workflows": [{"workflow": "order", "version": "1"}], "lease_ms": LEASE_MS}
    worker, held = ask("POST", "/v1/run-workers", serves)[1]["worker_id"], []
    threading.Thread(target=renew, args=(worker, held), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    say(event="serving", worker=worker)
    try:
        while True:
            status, claimed = ask("POST", f"/v1/run-workers/{worker}/claim", {"wait_ms": 20000})
            if status == 404:  # the server was started anew
                ask("POST", "/v1/run-workers", {**serves, "worker_id": worker})
            for run in claimed.get("runs", []):
                held[:] = [{"run_id": run["run_id"], "epoch": run["epoch"]}]
                try:
                    execute(Run(worker, run))
                except Stop as stopped:
                    say(event="done", run=run["run_id"], refused=[*stopped.args])
                    held.clear()
    finally:
        ask("DELETE", f"/v1/run-workers/{worker}")  # other workers go on at once

main()
