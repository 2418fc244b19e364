//! Workflow runs over HTTP: callers, and a pull worker as any program could be one.

mod bad_input;
mod calling;
mod children;
mod crashes;
mod pulling;
mod waiting;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Server, answer};

/// A worker of runs.
struct RunWorker<'a> {
    server: &'a Server,
    id: String,
}

/// A run in a worker's hands.
struct Held<'a> {
    server: &'a Server,
    worker: String,
    /// As the claim gave it.
    run: Value,
    revision: u64,
}

impl Server {
    async fn run_worker(&self, workflow: &str) -> RunWorker<'_> {
        self.run_worker_of(json!({ "build": "b-1", "workflows": [{ "workflow": workflow, "version": "1" }] })).await
    }

    async fn run_worker_of(&self, body: Value) -> RunWorker<'_> {
        let known = self.post("/v1/run-workers", body).await.with(200);
        RunWorker { server: self, id: known["worker_id"].as_str().unwrap().to_owned() }
    }

    /// Starts a run of version 1.
    async fn start_run(&self, workflow: &str, input: Value) -> String {
        let started = self.post("/v1/runs", json!({ "workflow": workflow, "version": "1", "input": input })).await.with(201);
        started["run_id"].as_str().unwrap().to_owned()
    }

    async fn run(&self, run_id: &str) -> Value {
        self.get(&format!("/v1/runs/{run_id}")).await.with(200)
    }

    async fn run_verb(&self, run_id: &str, verb: &str, body: Value) -> Answer {
        self.post(&format!("/v1/runs/{run_id}/{verb}"), body).await
    }

    /// The journal as `kind` words.
    async fn journal_kinds(&self, run_id: &str) -> Vec<String> {
        let page = self.get(&format!("/v1/runs/{run_id}/journal")).await.with(200);
        page["entries"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap().to_owned()).collect()
    }
}

impl<'a> RunWorker<'a> {
    async fn post(&self, verb: &str, body: Value) -> Answer {
        self.server.post(&format!("/v1/run-workers/{}/{verb}", self.id), body).await
    }

    /// Claims one run, which must come.
    async fn claim(&self) -> Held<'a> {
        let claimed = self.post("claim", json!({ "wait_ms": 20_000 })).await.with(200);
        assert_eq!(claimed["runs"].as_array().map(Vec::len), Some(1), "{claimed}");
        let run = claimed["runs"][0].clone();
        let revision = run["revision"].as_u64().unwrap();
        Held { server: self.server, worker: self.id.clone(), run, revision }
    }

    /// Whether there is nothing to claim at this moment.
    async fn claims_nothing(&self) -> bool {
        self.post("claim", json!({})).await.with(200)["runs"] == json!([])
    }

    async fn leave(&self) -> Value {
        answer(self.server.request(Method::DELETE, &format!("/v1/run-workers/{}", self.id))).await.with(200)
    }
}

impl Held<'_> {
    fn id(&self) -> &str {
        self.run["run_id"].as_str().unwrap()
    }

    fn body(&self, steps: &Value, then: &Value) -> Value {
        json!({ "worker_id": self.worker, "epoch": self.run["epoch"], "revision": self.revision, "steps": steps, "then": then })
    }

    async fn send(&self, steps: &Value, then: &Value) -> Answer {
        self.server.run_verb(self.id(), "commit", self.body(steps, then)).await
    }

    /// A commit that must be taken.
    async fn commit(&mut self, steps: Value, then: Value) -> Value {
        let answer = self.send(&steps, &then).await.with(200);
        assert_eq!(answer["result"], "committed", "{answer}");
        self.revision = answer["revision"].as_u64().unwrap();
        answer
    }

    /// A task that ends well, in one commit. Returns its step id.
    async fn task(&mut self, name: &str, value: Value) -> String {
        let step = json!([{ "step": { "kind": "task", "name": name }, "out": "ok", "value": value }]);
        let answer = self.commit(step, json!({ "kind": "stay" })).await;
        assert_eq!(answer["held"], true);
        answer["step_ids"][0].as_str().unwrap().to_owned()
    }

    /// Issues a step. Returns its id.
    async fn open(&mut self, step: Value) -> String {
        self.commit(json!([{ "step": step }]), json!({ "kind": "stay" })).await["step_ids"][0].as_str().unwrap().to_owned()
    }

    async fn complete(&mut self, value: Value) {
        self.commit(json!([]), json!({ "kind": "complete", "value": value })).await;
    }

    async fn park(&mut self) -> Value {
        self.commit(json!([]), json!({ "kind": "park" })).await
    }
}
